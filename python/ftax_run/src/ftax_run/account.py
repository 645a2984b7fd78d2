"""What was found of a program: kept while it runs, written into a file, and read back."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ftax_run.errors import RunError
from ftax_run.frames import Place
from ftax_run.sums import Sums
from ftax_run.window import WAIT, Window

FORMAT = "ftax run"
VERSION = 1
_MOST_STACKS = 2000  # that are written


@dataclass(slots=True)
class HostTime:
    """Where the main thread of a process without a device was, in samples."""

    total: int = 0
    wall: float = 0.0  # ns
    spent: Sums[tuple[Place, str]] = field(default_factory=Sums)  # by line and cause
    leaves: Sums[tuple[Place, Place]] = field(default_factory=Sums)
    stacks: Sums[tuple[Place, ...]] = field(default_factory=Sums)

    def count_busy(self) -> float:
        """Samples that wait for nothing."""
        return sum(count for (_, cause), count in self.spent.items() if cause != WAIT)


@dataclass(frozen=True, slots=True)
class Event:
    """Something on the timeline of the last two iterations."""

    row: str  # "device", or "host" for a thread of Python
    name: str
    start: float  # ns from the first
    end: float


@dataclass(slots=True)
class ProcessAccount:
    """One process."""

    pid: int
    command: str = ""
    problem: str = ""
    windows: list[Window] = field(default_factory=list)  # one a kind of iteration
    rates: list[float] = field(default_factory=list)  # launches a second, while only they are seen
    host: HostTime = field(default_factory=HostTime)
    timeline: list[Event] = field(default_factory=list)
    lost: int = 0  # records of the device
    left_out: int = 0  # iterations that were recorded while it was still getting faster
    marked: int = 0  # iterations that the program marked

    def find_steady(self) -> Window:
        """The iterations that took most of the time; without any, all that was recorded."""
        found = [window for window in self.windows if window.count]
        return max(found or self.windows, key=lambda window: window.wall)

    def find_iteration(self) -> float | None:
        """How long a steady iteration takes while only calls are recorded, in ns: from how many
        launches it makes, and how many are made in a second. None where that is not known."""
        window = self.find_steady()
        launches = window.work["launches"]
        if not window.count or not launches:
            return None
        usual = launches * 1e9 / window.wall  # with all recorded: a little slower
        steady = [rate for rate in self.rates if 0.9 * usual < rate < 1.5 * usual]
        if not steady:
            return None
        return launches / window.count * 1e9 * len(steady) / sum(steady)

    def correct(self) -> tuple[Window, float | None]:
        """The steady state without what recording cost, and that cost as a share; None where it is
        not known."""
        window = self.find_steady()
        iteration = self.find_iteration()
        if iteration is None:
            return window, None
        excess = window.wall - window.count * iteration
        return window.take_out(excess), excess / (window.wall - excess)


@dataclass(slots=True)
class Account:
    """One run."""

    command: list[str]
    exit_code: int = 0
    samples: int = 0
    sample_us: float = 0.0  # what one takes, on average
    torn: int = 0
    lost: int = 0
    processes: list[ProcessAccount] = field(default_factory=list)

    def find_main(self) -> ProcessAccount | None:
        """The process whose device was recorded longest; else the one that waited least for others:
        a launcher only waits."""
        with_device = [item for item in self.processes if item.windows]
        if with_device:
            return max(with_device, key=lambda item: sum(window.wall for window in item.windows))
        sampled = [item for item in self.processes if item.host.total]
        return max(sampled, key=lambda item: item.host.count_busy(), default=None)


def write(account: Account, path: Path) -> None:
    """One line of JSON, in which each place is written once."""
    places: dict[Place, int] = {}

    def number(place: Place) -> int:
        return places.setdefault(place, len(places))

    def list_pairs(sums: Sums[Any], most: int | None = None) -> list[list[Any]]:
        return [[_encode(key, number), round(amount, 1)] for key, amount in sums.list_largest(most)]

    processes = []
    for item in account.processes:
        windows = [
            {"kinds": dict(window.kinds), "count": window.count, "wall": window.wall,
             "busy": window.busy, "gaps": window.gaps, "unseen": window.unseen,
             **{name: list_pairs(getattr(window, name), _MOST_STACKS) for name in _SUMS}}
            for window in item.windows
        ]  # fmt: skip
        host = item.host
        processes.append(
            {"pid": item.pid, "command": item.command, "problem": item.problem, "windows": windows,
             "rates": item.rates, "lost": item.lost,
             "left_out": item.left_out, "marked": item.marked,
             "timeline": [[e.row, e.name, e.start, e.end] for e in item.timeline],
             "host": {"total": host.total, "wall": host.wall,
                      **{name: list_pairs(getattr(host, name), _MOST_STACKS)
                         for name in _HOST_SUMS}}}
        )  # fmt: skip
    record = {
        "format": FORMAT, "version": VERSION, "command": account.command,
        "exit_code": account.exit_code, "samples": account.samples,
        "sample_us": account.sample_us, "torn": account.torn, "lost": account.lost,
        "processes": processes, "places": [list(place) for place in places],
    }  # fmt: skip
    try:
        path.write_text(json.dumps(record, separators=(",", ":")) + "\n")
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error.strerror}") from None


_SUMS = ("idle", "leaves", "stacks", "syncs", "sync_idle", "work", "launched")
_HOST_SUMS = ("spent", "leaves", "stacks")


def _encode(key: Any, number: Any) -> Any:
    """A place as its number, a cause as its name, a stack as a list."""
    if isinstance(key, str):
        return key
    if len(key) == 3 and isinstance(key[0], str) and isinstance(key[1], int):
        return number(key)
    return [_encode(part, number) for part in key]


def read(path: Path) -> Account:
    """Raises RunError for a file that `ftax run -o` did not write."""
    try:
        record = json.loads(path.read_text())
        if record["format"] != FORMAT or record["version"] != VERSION:
            raise ValueError
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise RunError(f"{path} is no record of this version of `ftax run -o`") from None
    places: list[Place] = [(file, line, name) for file, line, name in record["places"]]

    def decode(key: Any) -> Any:
        if isinstance(key, list):
            return tuple(decode(part) for part in key)
        return places[key] if isinstance(key, int) else key

    def sums(holder: Mapping[str, Any], name: str) -> Sums[Any]:
        return Sums({decode(key): amount for key, amount in holder[name]})

    account = Account(
        record["command"], record["exit_code"], record["samples"], record["sample_us"],
        record["torn"], record["lost"],
    )  # fmt: skip
    for item in record["processes"]:
        windows = [
            Window(Counter(window["kinds"]), window["count"], window["wall"], window["busy"],
                   window["gaps"], window["unseen"],
                   **{name: sums(window, name) for name in _SUMS})
            for window in item["windows"]
        ]  # fmt: skip
        host = HostTime(
            item["host"]["total"], item["host"]["wall"],
            **{name: sums(item["host"], name) for name in _HOST_SUMS},
        )  # fmt: skip
        account.processes.append(
            ProcessAccount(
                item["pid"],
                item["command"],
                item["problem"],
                windows,
                item["rates"],
                host,
                [Event(*event) for event in item["timeline"]],
                item["lost"],
                item["left_out"],
                item["marked"],
            )
        )
    return account
