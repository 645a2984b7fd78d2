"""How far a sweep is, and how long the rest will take if it goes on as it went so far.

The surprising choice: a cell that is ready to be timed counts for half of one. Workers make dozens
ready before they time the first, which would seem to have taken all that time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable

from ftax.timing.session import Progress

_LEAST_FOR_A_GUESS = 3  # cells
_READY_SHARE = 0.5  # of the work on a cell is done when it is ready


class SweepProgress:
    """Counts finished cells of ``total``, of which only those at the places ``to_time`` were left
    when it began."""

    def __init__(
        self,
        total: int,
        to_time: Collection[int],
        callback: Progress | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.total, self._to_time = total, set(to_time)
        self._callback, self._clock = callback, clock
        self._finished: set[int] = set()  # by this run, for which time passed
        self._ready: set[int] = set()  # and not finished
        self._exports = self._exported = 0
        self._start = clock()
        self._lock = threading.Lock()

    @property
    def done(self) -> int:
        """Cells that are finished, by this run or before it."""
        return self.total - len(self._to_time) + len(self._finished)

    def note_ready(self, places: Iterable[int]) -> None:
        """These cells are ready to be timed, or about to be."""
        with self._lock:
            self._ready.update(self._to_time.intersection(places) - self._finished)

    def finish(self, places: Iterable[int]) -> None:
        """These cells are measured, or have failed; one that is measured twice counts once."""
        with self._lock:
            self._finished.update(places)
            self._ready -= self._finished

    def tell(self, step: str, label: str, cells: int) -> None:
        """What is being done now, for the cell ``label`` and others beside it."""
        with self._lock:
            if self._callback is None:
                return
            others = f" and {cells - 1} more" if cells > 1 else ""
            left = self.left_s
            rest = "" if left is None else f", {describe_time(left)} left"
            self._callback(f"{step} {label}{others}{rest}", self.done, self.total)

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
        """Seconds that the rest will take; None as long as nobody can know."""
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
