"""The lines of a results file that hold runs, in the form that ftax's other results have."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from ftax_run.account import Account, Event, HostTime, ProcessAccount
from ftax_run.errors import RunError
from ftax_run.frames import Place
from ftax_run.sums import Sums
from ftax_run.window import SUMS, TOTALS, Window

SCHEMA = 6  # `ftax.records.store.SCHEMA_VERSION`
KIND = "run"
PREFIX = '{"ftax_schema":'
_MOST_STACKS = 2000  # that are written
_OF_HOST = ("spent", "leaves", "stacks")
_VALUES = ("pid", "command", "problem", "rates", "lost", "recorded", "left_out", "marked",
           "marked_ns")  # fmt: skip


def append(account: Account, path: Path) -> None:
    """Add a line with a run to a results file."""
    line = {"ftax_schema": SCHEMA, "kind": KIND, "record": to_record(account)}
    write_text(path, json.dumps(line, separators=(",", ":")) + "\n", mode="a")


def check_output(path: Path, begins: str) -> None:
    """Before minutes of watching: raises RunError if a file cannot be written, or is there and
    begins as nothing that is written here does, such as the program itself."""
    folder = path.absolute().parent
    if not folder.is_dir():
        raise RunError(f"{path} cannot be written: there is no folder {path.parent}")
    try:
        if not path.exists():
            if not os.access(folder, os.W_OK | os.X_OK):
                raise RunError(f"{path} cannot be written: its folder may not be written to")
        elif path.is_file():
            with path.open("r+b") as file:
                found = file.read(len(begins))
            if found not in (b"", begins.encode()):
                raise RunError(
                    f"{path} is there and is nothing that ftax wrote: name a file that is not there"
                )
        elif path.is_dir():
            raise RunError(f"{path} is a folder: name a file in it")
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error.strerror}") from None


def write_text(path: Path, text: str, mode: Literal["w", "a"] = "w") -> None:
    """Write ASCII into a file anew, or append it. Raises RunError where that cannot be."""
    try:
        with path.open(mode, encoding="ascii") as file:
            file.write(text)
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error.strerror}") from None


def read(path: Path) -> list[Account]:
    """The runs of a results file. Raises RunError where it has none."""
    try:
        lines = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
        found = [from_record(line["record"]) for line in lines
                 if (line["ftax_schema"], line["kind"]) == (SCHEMA, KIND)]  # fmt: skip
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, IndexError):
        found = []
    if not found:
        raise RunError(f"{path} has no run that this version of `ftax run -o` wrote")
    return found


def to_record(account: Account) -> dict[str, object]:
    """Plain dicts, lists and numbers, in which each place is written once."""
    places: dict[Place, int] = {}

    def number(place: Place) -> int:
        return places.setdefault(place, len(places))

    def list_pairs(sums: Sums[Any]) -> list[list[Any]]:
        largest = sums.list_largest(_MOST_STACKS)
        return [[_encode(key, number), round(amount, 1)] for key, amount in largest]

    def list_sums(holder: object, names: tuple[str, ...]) -> dict[str, object]:
        return {name: list_pairs(getattr(holder, name)) for name in names}

    processes = []
    for item in account.processes:
        windows = [
            {"kinds": dict(window.kinds), **{name: getattr(window, name) for name in TOTALS},
             **list_sums(window, SUMS)}
            for window in item.windows
        ]  # fmt: skip
        host = {
            "total": item.host.total,
            "wall": item.host.wall,
            "late": item.host.late,
            **list_sums(item.host, _OF_HOST),
        }
        timeline = [[event.row, event.name, event.start, event.end] for event in item.timeline]
        values = {**{name: getattr(item, name) for name in _VALUES}, **list_sums(item, ("rest",))}
        processes.append({**values, "windows": windows, "host": host, "timeline": timeline})
    return {
        "command": account.command, "exit_code": account.exit_code, "samples": account.samples,
        "sample_us": account.sample_us, "torn": account.torn, "lost": account.lost,
        "problem": account.problem, "processes": processes,
        "places": [list(place) for place in places],
    }  # fmt: skip


def _encode(key: Any, number: Any) -> Any:
    """A place as its number, a cause as its name, a stack as a list."""
    if isinstance(key, str):
        return key
    if len(key) == 3 and isinstance(key[0], str) and isinstance(key[1], int):
        return number(key)
    return [_encode(part, number) for part in key]


def from_record(record: Mapping[str, Any]) -> Account:
    """What `to_record` was given. Raises ValueError, KeyError, TypeError or IndexError for another
    record."""
    places: list[Place] = [(file, line, name) for file, line, name in record["places"]]

    def decode(key: Any) -> Any:
        if isinstance(key, list):
            return tuple(decode(part) for part in key)
        return places[key] if isinstance(key, int) else key

    def read_sums(holder: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
        return {
            name: Sums({decode(key): amount for key, amount in holder.get(name, ())})
            for name in names
        }

    processes = []
    for item in record["processes"]:
        windows = [
            Window(Counter(window["kinds"]), **{name: window.get(name, 0) for name in TOTALS},
                   **read_sums(window, SUMS))
            for window in item["windows"]
        ]  # fmt: skip
        host = HostTime(
            item["host"]["total"], item["host"]["wall"], **read_sums(item["host"], _OF_HOST),
            late=item["host"].get("late", 0.0),
        )  # fmt: skip
        timeline = [Event(*event) for event in item["timeline"]]
        values = {name: item[name] for name in _VALUES if name in item}
        values |= read_sums(item, ("rest",))
        processes.append(ProcessAccount(**values, windows=windows, host=host, timeline=timeline))
    return Account(
        record["command"], record["exit_code"], record["samples"], record["sample_us"],
        record["torn"], record["lost"], processes, record.get("problem", ""),
    )  # fmt: skip
