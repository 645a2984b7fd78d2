"""The folder of a running sweep, which one process at a time may write to: what is known of each
cell, and each new line at once.

A cell is written as soon as it has rounds, and once more when its trace is
there. A crash in between costs the trace, never the rounds.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from ftax.errors import InvalidArgumentError, ResultsError
from ftax.machines.environment import Environment
from ftax.records.fields import FrozenMap
from ftax.records.store import append_record, find_results
from ftax.sweeps.job import FOUND
from ftax.sweeps.results import CELLS_FILE, EXPORTS_FILE, SweepResults
from ftax.sweeps.sweep_records import EVERY_MACHINE, SweepCell, SweepExport, SweepMachine
from ftax.timing.cell import Cell

LOCK_FILE = "lock"


class CellStore:
    """Written to from several threads; ``everywhere`` are the keys of the cells that each machine
    measures. Raises ResultsError where the file cannot take a line."""

    def __init__(
        self,
        folder: Path,
        cells: tuple[Cell, ...],
        known: Iterable[SweepCell],
        everywhere: Collection[str] = (),
    ) -> None:
        self.path = folder / CELLS_FILE
        self.cells, self.everywhere = cells, everywhere
        # The last line of each cell by each machine, the latest machine last.
        self.known: dict[str, dict[str, SweepCell]] = {}
        for cell in known:
            self._note(cell)
        self._lock = threading.Lock()
        self._machines: set[str] = set()

    def add_machine(self, environment: Environment) -> str:
        """The id of a machine, which is written when it first appears in this run."""
        machine = SweepMachine.of(environment)
        with self._lock:
            if machine.id not in self._machines:
                append_record(self.path, machine)
                self._machines.add(machine.id)
        return machine.id

    def add_measured(self, place: int, machine: str, gpu: str, fields: Mapping[str, Any]) -> None:
        """A cell with its rounds; ``gpu`` is the device that measured it, of several."""
        facts = {**fields["facts"], **({"gpu": gpu} if gpu != "cpu" else {})}
        self._add(place, machine, status="measured", **{**fields, "facts": facts})

    def add_failed(
        self, place: int, machine: str, status: Any, reason: str, seconds: float = 0.0
    ) -> None:
        """A cell without rounds, and why."""
        reason = reason or "no reason was given"
        self._add(place, machine, status=status, reason=reason, seconds=seconds)

    def add_look(
        self,
        place: int,
        machine: str,
        look: str,
        *,
        fact: str,
        fields: Mapping[str, Any] | None = None,
        warnings: Sequence[str] = (),
        seconds: float = 0.0,
    ) -> None:
        """What a look at a measured cell found, or why it found nothing."""
        old = self.known[self.cells[place].key()][machine]
        missing = [] if fact == FOUND else [f"no {look}: {fact}"]
        self._write(
            replace(
                old,
                facts={**old.facts, look: fact},
                warnings=tuple(dict.fromkeys((*old.warnings, *missing, *warnings))),
                seconds=old.seconds + seconds,
                **(fields or {}),
            )
        )

    def add_export(self, place: int, seconds: float, reason: str) -> None:
        """What was exported for a cell, or why it could not be."""
        record = SweepExport(cell=self.cells[place], seconds=seconds, reason=reason)
        with self._lock:
            append_record(self.path.with_name(EXPORTS_FILE), record)

    def collect(self) -> SweepResults:
        """All that is in the file; nothing if the time was over before there was one."""
        if not self.path.exists():
            return SweepResults(cells=(), machines=FrozenMap({}))
        return SweepResults.load(self.path)

    def _add(
        self, place: int, machine: str, facts: Mapping[str, Any] = FrozenMap({}), **fields: Any
    ) -> None:
        cell = self.cells[place]
        if cell.key() in self.everywhere:
            facts = {**facts, EVERY_MACHINE: True}
        self._write(SweepCell(cell=cell, machine=machine, facts=facts, **fields))

    def _write(self, cell: SweepCell) -> None:
        with self._lock:
            append_record(self.path, cell)
            self._note(cell)

    def _note(self, cell: SweepCell) -> None:
        lines = self.known.setdefault(cell.cell.key(), {})
        lines.pop(cell.machine, None)
        lines[cell.machine] = cell


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Make the folder, and hold its lock inside: one sweep at a time may write to it. A folder that
    was made for nothing goes again.

    The lock is the kernel's on an open file, so a process that dies, however it dies, holds it no
    longer; the file that stays behind is not the lock and says only who had it last. It is not
    filelock's, which until its latest releases empties the file that names the process.

    Raises ResultsError if another process holds it, with its pid, or the folder cannot be made.
    """
    is_new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise ResultsError(
            f"{folder}: {error.strerror}; choose a folder that can be written"
        ) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
            raise ResultsError(
                f"another sweep (process {owner}) is writing to {folder}; wait for it, end it, or "
                "choose another folder"
            ) from None
        _write_pid(folder, descriptor)
        yield
        is_new = False
    finally:
        if is_new and os.listdir(folder) == [LOCK_FILE]:
            (folder / LOCK_FILE).unlink()
            folder.rmdir()
        os.close(descriptor)


def _write_pid(folder: Path, descriptor: int) -> None:
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    except OSError as error:
        raise ResultsError(
            f"{folder / LOCK_FILE}: {error.strerror}; free space on the disk, or choose another "
            "folder"
        ) from error


def read_known(folder: Path, resume: bool) -> SweepResults:
    """What the folder has. Raises InvalidArgumentError for cells that are not to be resumed."""
    path = find_results(folder / CELLS_FILE)
    if path is None or path.stat().st_size == 0:
        return SweepResults(cells=(), machines=FrozenMap({}))
    known = SweepResults.load(path)
    if known.cells and not resume:
        raise InvalidArgumentError(
            f"{folder} has {len(known.cells)} cells of a sweep already; resume it (--resume), "
            "which runs only what is missing, or choose another folder"
        )
    return known
