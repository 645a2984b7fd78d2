"""What one worker process is asked to do, in JSON: cells on one device that lack rounds or looks.

A job is also the list of what is left of it. When a worker dies, what it answered is removed, what
it died at is taken out, and the rest is the next worker's job.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import groupby
from typing import Any, Self

from ftax.records.record import Record
from ftax.steps.setting import Setting
from ftax.timing.plan import Plan

TASK = "ftax.sweeps.worker:work"  # of the workers that do jobs

Say = Callable[..., None]  # answers: what it is, and its fields
Ask = Callable[[str], None]  # asks for a purpose, and returns when the parent lets the worker go on

# After the rounds of a whole job: counters first, because a trace slows its process for good;
# memory last, because everything that is ready has to go for it.
LOOKS = ("utilisation", "trace", "memory")
FOUND = "found"  # the fact of a look that went well; otherwise it says why not
_OF_SIZES = ("dtype", "batch", "sequence")
_OF_VARIANTS = tuple(item.name for item in fields(Setting) if item.name not in _OF_SIZES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted(Record):
    """What a cell asks of the site that measures it."""

    device: str  # "cpu", "cuda" (any GPU that is for all) or "cuda:1"
    gpu: str = ""  # a part of its name
    machine: str = ""  # the id of the only one that may

    def describe(self) -> str:
        """ "cpu", "NVIDIA H100" or "cuda of the machine 1a2b3c", by the beginning of its id."""
        where = f" of the machine {self.machine[:6]}" if self.machine else ""
        return f"{self.gpu or self.device}{where}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCell(Record):
    """What is missing of one cell, by its place in the sweep.

    Attributes:
        setting: all of it but the device, which is the job's.
        time: whether rounds are missing; otherwise only looks are.
        looks: of `LOOKS`, in their order.
        count: whether to count its work; False once a worker died of that.
        apart: timed alone, because a worker died when all of its size were timed together.
        repetition: how many times it was to be measured before.
    """

    place: int
    model: str
    setting: Setting
    runtime: str
    host: str
    wanted: Wanted
    time: bool = True
    looks: tuple[str, ...] = ()
    count: bool = True
    apart: bool = False
    repetition: int = 0

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to do."""
        return not self.time and not self.looks

    @property
    def variant(self) -> tuple[object, ...]:
        """Equal for all dtypes and sizes of one model."""
        return self.model, *(getattr(self.setting, name) for name in _OF_VARIANTS)

    @property
    def build_key(self) -> tuple[object, ...]:
        """Equal for all sizes of one built model."""
        return *self.variant, self.setting.dtype

    @property
    def size(self) -> tuple[object, ...]:
        """Equal for cells that are timed in the same rounds, which differ in their runtimes."""
        size = self.setting.batch, self.setting.sequence
        alone = self.place if self.apart else None
        return *self.build_key, *size, self.wanted, self.repetition, alone


Cells = tuple[JobCell, ...]  # of one size, where nothing else is said


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(Record):
    """Cells by model, dtype and size, in the order in which they are to be measured.

    In the queue it has cells alone; where and how is said when a site takes it.

    Attributes:
        threads_ahead: of torch, while all is made ready before anything is timed; None: that is
            not to be done.
        exports: make the files that runtimes load, and time nothing.
        end_at: of time.monotonic: when looks have to be over too.
    """

    cells: Cells
    device: str = "cpu"
    threads: int = 1
    plan: Plan = field(default_factory=Plan)
    trace_iterations: int = 3
    threads_ahead: int | None = None
    exports: bool = False
    end_at: float | None = None

    @property
    def to_time(self) -> int:
        """How many of its cells are to be timed."""
        return sum(cell.time for cell in self.cells)

    @property
    def sizes(self) -> list[Cells]:
        """The cells of each size, which are timed in the same rounds."""
        return [tuple(cells) for _, cells in groupby(self.cells, key=lambda cell: cell.size)]

    def to_dict(self) -> dict[str, object]:
        """The job as JSON, to be sent now: machines have no clock in common."""
        left_s = None if self.end_at is None else self.end_at - time.monotonic()
        return {**Record.to_dict(self), "end_at": left_s}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The job that `to_dict` wrote, just now."""
        end_at = None if data["end_at"] is None else data["end_at"] + time.monotonic()
        # Named, not bare: slots=True makes a new class, which a bare super() does not know.
        return super(Job, cls).from_dict({**data, "end_at": end_at})


def remove_done(cells: Iterable[JobCell], answer: Mapping[str, Any]) -> Cells:
    """What is left of cells after an answer; one that failed is not looked at either."""
    changed = (_note(cell, answer) if cell.place == answer.get("place") else cell for cell in cells)
    return tuple(cell for cell in changed if not cell.is_done)


def _note(cell: JobCell, answer: Mapping[str, Any]) -> JobCell:
    if answer["say"] == "measured":
        return replace(cell, time=False)
    if answer["say"] == "failed":
        return replace(cell, time=False, looks=())
    if answer["say"] == "looked":
        return replace(cell, looks=tuple(look for look in cell.looks if look != answer["look"]))
    return cell
