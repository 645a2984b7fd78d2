"""A run as one HTML page that needs no network: the verdict, flame graphs of exposed idle, and two
iterations on a timeline.

The page holds the values as JSON, and its script draws them as text, never as HTML. Its content
security policy names the hash of that script, so that nothing else can run.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from string import Template
from typing import Any

from ftax_run.account import Account, Event, ProcessAccount
from ftax_run.causes import OF_THE_DEVICE, UNSEEN
from ftax_run.findings import Findings, find
from ftax_run.frames import Place, is_users, name_place
from ftax_run.records import write_text
from ftax_run.report import (
    describe,
    describe_iterations,
    describe_limits,
    describe_recording,
    list_causes,
    name_finding,
    name_late,
)
from ftax_run.timeline import DEVICE, ITERATIONS

_TEMPLATES = Path(__file__).parent / "templates"
_SCRIPTS = ("shared", "words", "flame", "timeline", "run")
_MOST_PROCESSES = 16
_IMPORTS = "<frozen importlib."


def write_page(account: Account, path: Path) -> None:
    """Raises RunError where it cannot be written."""
    write_text(path, make_page([account]))


def make_page(accounts: Sequence[Account], title: str | None = None) -> str:
    """The page of one run or more, in ASCII; it begins with the last."""
    values = make_values(accounts)
    script = "".join(read_template(f"{name}.js") for name in _SCRIPTS)
    return Template(read_template("run.html")).substitute(
        title=_escape(title or f"ftax run: {shlex.join(accounts[-1].command)}"),
        headline=_escape(values["headline"]),
        report=_escape("\n".join(describe(accounts[-1]))),
        policy=make_policy(script),
        style=read_template("shared.css") + read_template("run.css"),
        script=script,
        values=json.dumps(values, separators=(",", ":")).replace("<", "\\u003c"),
    )


def make_policy(script: str) -> str:
    """The content security policy of a page with one script."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "base-uri 'none'; form-action 'none'"
    )


def read_template(name: str) -> str:
    """A part of the page; what is named "shared" is of the page of `ftax report` too."""
    return (_TEMPLATES / name).read_text(encoding="utf-8")


def _escape(text: str) -> str:
    return html.escape(text).encode("ascii", "xmlcharrefreplace").decode()


def make_values(accounts: Sequence[Account]) -> dict[str, Any]:
    """What the page shows: of the last run first, and of that its main process; times in ns."""
    lines = describe(accounts[-1])
    places = _Numbers()
    processes = []
    for number, account in reversed(list(enumerate(accounts, 1))):
        run = f"run {number}, " if len(accounts) > 1 else ""
        processes += [_list_process(account, item, places, run) for item in _sort(account)]
    return {
        "headline": lines[0] if processes else "; ".join(lines),
        "processes": processes,
        "places": [
            [name_place(place), place[0], is_users(place[0]) and place[1] > 0]  # 0: not known
            for place in places
        ],
    }


def _sort(account: Account) -> list[ProcessAccount]:
    """The main process, others with a device, and others by how often they were sampled."""
    main = account.find_main()
    seen = [item for item in account.processes if item.windows or item.host.total]
    seen.sort(key=lambda item: (item is not main, not item.windows, -item.host.total))
    return seen[:_MOST_PROCESSES]


class _Numbers(dict[Any, int]):
    """The number of each thing, in the order in which they were met."""

    def __missing__(self, key: Any) -> int:
        self[key] = len(self)
        return self[key]


def _list_process(
    account: Account, process: ProcessAccount, places: _Numbers, run: str
) -> dict[str, Any]:
    found = find(process)
    late = name_late([item for item in account.processes if item.windows])
    return {
        "name": f"{run}process {process.pid}: {process.command}",
        "sentence": name_finding(process),
        "notes": [*describe_iterations(found), *(late if process.windows else [])],
        "limits": [*describe_recording(found), *describe_limits(account)],
        "unit": found.unit,
        "wall": found.wall,
        "busy": found.busy,
        "causes": list_causes(found),
        "lines": [
            {"place": places[line.place], "time": line.time, "cause": line.cause,
             "leaf": places[line.leaf], "leaf_share": line.leaf_share}
            for line in found.lines
        ],
        "syncs": [
            [places[sync.place], sync.count, sync.exposed, sync.is_near] for sync in found.syncs
        ],
        "work": [[name, amount] for name, amount in found.work.items() if amount],
        "stacks": make_tree(found, places),
        "timeline": make_timeline(process.timeline),
    }  # fmt: skip


def make_tree(found: Findings, places: _Numbers) -> list[list[float]]:
    """A row a frame: the row of its caller, its place, its time, and what of that is in no callee.

    Row 0 is all; what is in no callee of it is of stacks that were too rare to be kept. Python's
    own frames of an import are left out, as in a traceback.
    """
    rows: list[list[float]] = [[-1, -1, 0.0, 0.0]]
    known: dict[tuple[int, Place], int] = {}
    for stack, time in found.stacks.list_largest():
        row = 0
        rows[0][2] += time
        for place in stack:
            if place[0].startswith(_IMPORTS):
                continue
            caller, row = row, known.setdefault((row, place), len(rows))
            if row == len(rows):
                rows.append([caller, places[place], 0.0, 0.0])
            rows[row][2] += time
        rows[row][3] += time
    left_out = sum(found.causes[cause] for cause in (*OF_THE_DEVICE, UNSEEN))
    booked = sum(found.causes.values()) - left_out
    rare = max(0.0, booked - rows[0][2])
    rows[0][2:] = [rows[0][2] + rare, rows[0][3] + rare]
    return rows


def make_timeline(events: Sequence[Event]) -> dict[str, Any] | None:
    """Rows of [name, start, end], and when the device is idle; None without events."""
    if not events:
        return None
    marked = [event.end for event in events if event.row == ITERATIONS]
    end = max(marked or [event.end for event in events])
    names = _Numbers()
    rows: dict[str, list[list[float]]] = {}
    for event in sorted(events, key=lambda event: (event.start, -event.end)):
        rows.setdefault(event.row, []).append([names[event.name], event.start, event.end])
    device = [event for event in events if event.row.startswith(DEVICE)]
    return {
        "end": end,
        "names": list(names),
        "rows": [[row, rows[row]] for row in sorted(rows, key=_rank)],
        "idle": find_idle(device, end) if device else [],
    }


def _rank(row: str) -> tuple[bool, bool, int, str]:
    """Iterations, streams, and then threads, each with its calls."""
    number = row.rpartition(" ")[2]
    is_device = row.startswith(DEVICE)
    return row != ITERATIONS, not is_device, int(number) if number.isdecimal() else 0, row


def find_idle(device: Sequence[Event], end: float) -> list[tuple[float, float]]:
    """From when to when nothing runs."""
    idle = []
    busy_until = 0.0
    for event in sorted(device, key=lambda event: event.start):
        if event.start > busy_until:
            idle.append((busy_until, min(event.start, end)))
        busy_until = max(busy_until, event.end)
    return [*idle, (busy_until, end)] if busy_until < end else idle
