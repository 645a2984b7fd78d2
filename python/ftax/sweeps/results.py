"""What a sweep left behind, for readers: the cells by what they are, and the machines.

A cell of two machines is two cells. Nothing here ever averages them, and `SweepResults.find`
refuses to choose between them.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from ftax.errors import InvalidArgumentError, ResultsError
from ftax.records.fields import FrozenMap
from ftax.records.result import Shown
from ftax.records.store import COMPRESSED, find_results, read_records
from ftax.sweeps.sweep_records import EVERY_MACHINE, SweepCell, SweepMachine, SweepRun, SweepTimes
from ftax.timing.trust import NOT_RESOLVED

CELLS_FILE = "cells.jsonl"
RUNS_FILE = "runs.jsonl"
EXPORTS_FILE = "exports.jsonl"
FIELDS = (
    "model",
    "runtime",
    "host",
    "dtype",
    "batch",
    "sequence",
    "device",
    "options",
    "machine",
    "status",
)
_OF_RECORD = ("machine", "status")
_TORN = "not a whole line of JSON"  # what a writer that was stopped leaves behind
_MOST_NAMED = 4

Place = str | os.PathLike[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepResults(Shown):
    """Cells in the order in which they were first written, each as it was last written.

    Attributes:
        machines: by the id that cells name.
        problems: lines that a writer was stopped in, which were left out.
        is_late: the time limit ended the sweep that returned them before all was done.
    """

    kind: ClassVar[str] = "sweep"

    cells: tuple[SweepCell, ...]
    machines: Mapping[str, SweepMachine]
    problems: tuple[str, ...] = ()
    is_late: bool = False

    def describe(self) -> str:
        """ "12 measured (2 disturbed, 1 not resolved), 1 failed, 3 unavailable"; "no cell yet"."""
        counts: Counter[str] = Counter(cell.status for cell in self.cells)
        marks = Counter(
            NOT_RESOLVED if cell.doubt else "disturbed"
            for cell in self.cells
            if cell.status == "measured" and (cell.doubt or cell.disturbance)
        )
        marked = ", ".join(f"{count} {mark}" for mark, count in sorted(marks.items()))
        order = ("measured", "failed", "unavailable")
        parts = {name: f"{counts[name]} {name}" for name in order if counts[name]}
        if marked:
            parts["measured"] += f" ({marked})"
        return ", ".join(parts.values()) or "no cell yet"

    @classmethod
    def load(cls, *paths: Place) -> SweepResults:
        """The results in folders of sweeps or in their files.

        Raises InvalidArgumentError without a path, ResultsError for what is no sweep, or for a line
        that this ftax cannot read.
        """
        if not paths:
            raise InvalidArgumentError("there is no path; give the folder of a sweep")
        cells: list[SweepCell] = []
        machines: dict[str, SweepMachine] = {}
        problems: list[str] = []
        for path in paths:
            records, torn = _read(find_file(path))
            problems += torn
            for record in records:
                if isinstance(record, SweepMachine):
                    machines.setdefault(record.id, record)
                elif isinstance(record, SweepCell):
                    cells.append(record)
        return cls(cells=keep_last(cells), machines=FrozenMap(machines), problems=tuple(problems))

    def select(self, **fields: Any) -> SweepResults:
        """The cells whose fields have these values; a field may have several, in a collection.

        Fields are model, runtime, host, dtype, batch, sequence, device, options (a mapping),
        machine and status. Raises InvalidArgumentError for another.
        """
        wanted = {
            name: list_choices(name, value, FIELDS, "cells of a sweep")
            for name, value in fields.items()
        }
        kept = tuple(
            cell
            for cell in self.cells
            if all(read_field(cell, name) in choices for name, choices in wanted.items())
        )
        return replace(self, cells=kept)

    def find(self, **fields: Any) -> SweepCell | None:
        """The one cell that `select` finds; None if there is none.

        Raises InvalidArgumentError, naming them, if there are several.
        """
        found = self.select(**fields).cells
        if len(found) > 1:
            labels = [f"{cell.cell.label()} of machine {cell.machine}" for cell in found]
            more = f" and {len(labels) - _MOST_NAMED} more" if len(labels) > _MOST_NAMED else ""
            raise InvalidArgumentError(
                f"{fields!r} is {len(found)} cells: {', '.join(labels[:_MOST_NAMED])}{more}; give "
                "more fields (split_by_machine separates machines)"
            )
        return found[0] if found else None

    def split_by_machine(self) -> dict[str, SweepResults]:
        """The results of each machine that has cells, by its id, in the order of the cells."""
        ids = dict.fromkeys(cell.machine for cell in self.cells)
        return {
            name: replace(
                self,
                cells=tuple(cell for cell in self.cells if cell.machine == name),
                machines=FrozenMap({k: v for k, v in self.machines.items() if k == name}),
            )
            for name in ids
        }


def find_file(path: Place) -> Path:
    """The results file in a folder; a file is itself. Raises ResultsError if there is none."""
    place = Path(path)
    if place.is_dir():
        place = place / CELLS_FILE
    found = find_results(place)
    if found is None or not found.is_file():
        raise ResultsError(
            f"there is no {place}, so {Path(path)} is no folder of a sweep; `ftax sweep -o FOLDER` "
            "writes one"
        )
    return found


def is_cells_file(path: Path) -> bool:
    """Whether it is called like the file with a sweep's cells, compressed or not."""
    return path.name in (CELLS_FILE, *(f"{CELLS_FILE}{ending}" for ending in COMPRESSED))


def read_times(folder: Path) -> dict[str, float]:
    """Seconds of each step of a sweep, over all its runs and devices; empty where none were
    written.

    "start" is the wait for a process, "wait" that for the others to idle, "end" what comes after
    the last cell.
    """
    seconds: Counter[str] = Counter()
    for record in _read_runs(folder):
        if isinstance(record, SweepTimes):
            seconds.update(record.seconds)
    return dict(seconds)


def read_days(folder: Path) -> tuple[str, ...]:
    """The days on which a sweep ran, such as "2026-11-22" in UTC; none where none were written."""
    runs = [record for record in _read_runs(folder) if isinstance(record, SweepRun)]
    return tuple(sorted({run.utc[: len("2026-11-22")] for run in runs}))


def _read_runs(folder: Path) -> tuple[Any, ...]:
    path = find_results(folder / RUNS_FILE)
    return _read(path)[0] if path is not None else ()


def keep_last(cells: Iterable[SweepCell]) -> tuple[SweepCell, ...]:
    """The last line of each cell of each machine.

    What was not measured gives way to any later line of its cell, also of another machine, unless
    each machine was to measure it.
    """
    kept: dict[tuple[str, str], SweepCell] = {}
    open_keys: dict[str, tuple[str, str]] = {}  # of cells whose last line has no rounds
    for cell in cells:
        name = cell.cell.key()
        key = (cell.machine, name)
        if name in open_keys and open_keys[name] != key:
            del kept[open_keys[name]]
        kept[key] = cell
        if cell.status == "measured" or EVERY_MACHINE in cell.facts:
            open_keys.pop(name, None)
        else:
            open_keys[name] = key
    return tuple(kept.values())


def read_field(cell: SweepCell, name: str) -> Any:
    """The value of one of `FIELDS`."""
    return getattr(cell if name in _OF_RECORD else cell.cell, name)


def _read(path: Path) -> tuple[tuple[Any, ...], list[str]]:
    """Records, and lines that were torn; any other line that cannot be read is an error."""
    found = read_records(path, skip_bad=True)
    torn = [problem for problem in found.problems if _TORN in problem]
    for problem in found.problems:
        if problem not in torn:
            raise ResultsError(problem)
    return found.records, torn


def list_choices(name: str, value: Any, known: Collection[str], what: str) -> Collection[Any]:
    """The values that ``select(name=value)`` asks for, one or a collection.

    Raises InvalidArgumentError, with ``what`` has no such field, for a name that is not ``known``.
    """
    if name not in known:
        raise InvalidArgumentError(f"{what} have no field {name!r}; there are {', '.join(known)}")
    if isinstance(value, Collection) and not isinstance(value, str | Mapping):
        return value
    return (value,)
