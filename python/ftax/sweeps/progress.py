"""How far a sweep is, and how long the rest will take if it goes on as it went so far.

A cell that is ready to be timed counts for half of one. Workers make dozens ready before they time
the first, which would seem to have taken all that time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from ftax.timing.plan import Progress

# What is counted: a cell by its place, and the id of the machine if it has to be that one.
_Counted = tuple[int, str]
_LEAST_FOR_A_GUESS = 3  # cells
_READY_SHARE = 0.5  # of the work on a cell is done when it is ready


class SweepProgress:
    """Counts cells that are to be timed, by one machine or by any, and what was done before."""

    def __init__(
        self,
        callback: Progress | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._done_before = 0
        self._callback, self._clock = callback, clock
        self._to_time: set[_Counted] = set()
        self._finished: set[_Counted] = set()  # by this run, for which time passed
        self._ready: set[_Counted] = set()  # and not finished
        self._exports = self._exported = 0
        self._start = clock()
        self._lock = threading.Lock()

    @property
    def total(self) -> int:
        """All cells, one of several machines as often."""
        return self._done_before + len(self._to_time)

    @property
    def done(self) -> int:
        """Cells that are finished, by this run or before it."""
        return self._done_before + len(self._finished)

    def expect(self, cells: Iterable[_Counted], done_before: int = 0) -> None:
        """These are to be timed too, and so many others are done."""
        with self._lock:
            self._to_time.update(cells)
            self._done_before += done_before

    def note_ready(self, places: Iterable[int], machine: str = "") -> None:
        """These cells are ready to be timed by a machine, or about to be."""
        with self._lock:
            self._ready.update(self._find(places, machine) - self._finished)

    def finish(self, places: Iterable[int], machine: str = "") -> None:
        """A machine measured these cells, or they failed; one that is measured twice counts
        once."""
        with self._lock:
            self._finished.update(self._find(places, machine))
            self._ready -= self._finished

    def _find(self, places: Iterable[int], machine: str) -> set[_Counted]:
        return {(place, name) for place in places for name in ("", machine)} & self._to_time

    def tell(self, step: str, label: str, cells: int, machine: str = "") -> None:
        """What is being done now, for the cell ``label`` and others beside it, on a machine."""
        with self._lock:
            if self._callback is None:
                return
            others = f" and {cells - 1} more" if cells > 1 else ""
            left = self.left_s
            rest = "" if left is None else f", {describe_time(left)} left"
            where = f"{machine}: " if machine else ""
            self._callback(f"{where}{step} {label}{others}{rest}", self.done, self.total)

    def say(self, words: str) -> None:
        """Something that is of no cell."""
        if self._callback is not None:
            self._callback(words, self.done, self.total)

    def expect_exports(self, cells: int) -> None:
        """Something is to be exported for so many cells."""
        self._exports, self._exported = cells, 0

    def tell_export(self, label: str) -> None:
        """Which cell something is exported for now."""
        with self._lock:
            self._start = self._clock()  # the time left is that of measuring
            if self._callback is not None:
                words = f"export {self._exported} of {self._exports}: {label}"
                self._callback(words, self.done, self.total)
            self._exported += 1

    @property
    def left_s(self) -> float | None:
        """Seconds that the rest will take; None before enough is done."""
        half_done = _READY_SHARE * len(self._ready)
        worked = len(self._finished) + half_done
        if worked < _LEAST_FOR_A_GUESS:
            return None
        return (self._clock() - self._start) / worked * (self.total - self.done - half_done)


def describe_time(seconds: float) -> str:
    """ "40 s", "12 min", "3.5 h"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
