"""Finds and reads the results files of a report; every record keeps its file and line.

A file goes by its path below the folder that all of them share, so that a page which is passed on
tells nothing of where it was made.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ftax.errors import ResultsError
from ftax.records.store import COMPRESSED, MEND, read_records
from ftax.sweeps.results import keep_last
from ftax.sweeps.sweep_records import SweepCell, SweepMachine

SUFFIX = ".jsonl"  # or such a file compressed


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A record and where it stands."""

    record: Any
    file: str
    line: int

    @property
    def ref(self) -> str:
        """``'receipts.jsonl:3'``."""
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """A file that was read: how many records of which kind, and lines that could not be read."""

    name: str
    kinds: Mapping[str, int]
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Everything that was read, in the order of files and lines."""

    found: tuple[Found, ...]
    files: tuple[SourceFile, ...]

    def of(self, kind: type[Any]) -> list[Found]:
        """The records of one class."""
        return [item for item in self.found if isinstance(item.record, kind)]

    @property
    def problems(self) -> tuple[str, ...]:
        """What could not be read, in a line each."""
        return tuple(problem for file in self.files for problem in file.problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweeps:
    """What the records of sweeps say together.

    Attributes:
        cells: the last line of each cell of each machine; those that were measured anew are out.
        machines: by the ids that cells name.
        problems: cells that cannot be shown, a text each.
    """

    cells: tuple[Found, ...]
    machines: Mapping[str, SweepMachine]
    problems: tuple[str, ...]


def read_sources(paths: Sequence[str | Path], *, skip_bad: bool = False) -> Sources:
    """Read results files; of folders, all that end in .jsonl (or .jsonl.xz or
    .jsonl.gz), at any depth.

    Raises:
        ResultsError: a path does not exist, a folder has no such file, or there is no record at
            all; without ``skip_bad`` also for a line that cannot be read, with its file and number.
    """
    places = list(_list_files(paths))
    names = _name(places)
    found: list[Found] = []
    files: list[SourceFile] = []
    for place, name in zip(places, names, strict=True):
        records, problems = _read(place, name, skip_bad)
        found += records
        kinds = Counter(item.record.kind for item in records)
        files.append(SourceFile(name=name, kinds=dict(kinds), problems=tuple(problems)))
    if not found:
        reason = f": {files[0].problems[0]}" if files and files[0].problems else ""
        raise ResultsError(
            f"there is no record in {', '.join(str(path) for path in paths)}{reason}; write some "
            "with --json of `ftax tax`, `ftax bench` or `ftax knee`, or with `ftax sweep`"
        )
    return Sources(found=tuple(found), files=tuple(files))


def read_sweeps(sources: Sources, *, skip_bad: bool) -> Sweeps:
    """The cells of all sweeps.

    Raises:
        ResultsError: a cell names a machine that no file describes; with ``skip_bad`` such cells
            are left out and listed.
    """
    machines = {item.record.id: item.record for item in sources.of(SweepMachine)}
    known: list[Found] = []
    problems: list[str] = []
    for item in sources.of(SweepCell):
        if item.record.machine in machines:
            known.append(item)
            continue
        problem = (
            f"{item.ref}: the cell names machine {item.record.machine!r}, which no file describes; "
            "add the file that has the line of this machine, or delete this one"
        )
        if not skip_bad:
            raise ResultsError(problem)
        problems.append(problem)
    last = {id(record) for record in keep_last([item.record for item in known])}
    return Sweeps(
        cells=tuple(item for item in known if id(item.record) in last),
        machines=machines,
        problems=tuple(problems),
    )


def _list_files(paths: Sequence[str | Path]) -> Iterator[Path]:
    """Each file once, however often it is named."""
    seen: set[Path] = set()
    for path in map(Path, paths):
        inside = [path]
        if path.is_dir():
            endings = ("", *COMPRESSED)
            inside = sorted(file for end in endings for file in path.rglob(f"*{SUFFIX}{end}"))
        if not inside:
            raise ResultsError(
                f"{path} has no file that ends in {SUFFIX}; name a folder or a file with results"
            )
        for file in inside:
            if not file.exists():
                raise ResultsError(f"there is no {file}; name a folder or a file with results")
            if file.resolve() not in seen:
                seen.add(file.resolve())
                yield file


def _name(places: Sequence[Path]) -> list[str]:
    full = [place.resolve() for place in places]
    shared = os.path.commonpath([place.parent for place in full]) if full else ""
    return [place.relative_to(shared).as_posix() for place in full]


def _read(place: Path, name: str, skip_bad: bool) -> tuple[list[Found], list[str]]:
    try:
        result = read_records(place, skip_bad=skip_bad)
    except ResultsError as error:
        if not skip_bad:
            told = str(error).replace(MEND, "delete the line")
            raise ResultsError(
                f"{told}; --skip-bad goes on without such lines and lists them in the report"
            ) from error
        return [], [_tell(error, place, name)]
    records = [
        Found(record=record, file=name, line=line)
        for record, line in zip(result.records, result.lines, strict=True)
    ]
    problems = [_tell(problem, place, name) for problem in result.problems]
    if not records and len(problems) > 1:  # another program's file: one line says it all
        problems = [f"{name}: none of its {len(problems)} lines can be read; {problems[0]}"]
    return records, problems


def _tell(problem: object, place: Path, name: str) -> str:
    """Without the remedy, which is for who runs the command and not for who reads the page."""
    text = str(problem).removeprefix(str(place))
    for end in (f"; {MEND}", f", or {MEND}"):
        text = text.removesuffix(end)
    return f"{name}{text}"
