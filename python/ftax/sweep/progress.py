"""How far a sweep is, and how long the rest will take if it goes on as it went so far."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from ftax.measure import Progress

_LEAST_FOR_A_GUESS = 3  # cells


class SweepProgress:
    """Counts finished cells of ``total``, of which ``done`` were finished before it began."""

    def __init__(
        self,
        total: int,
        done: int,
        callback: Progress | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.total, self.done = total, done
        self._callback, self._clock = callback, clock
        self._finished = 0  # by this run, for which time passed
        self._start = clock()
        self._lock = threading.Lock()

    def finish(self, cells: int) -> None:
        """So many cells more are measured, or have failed."""
        with self._lock:
            self.done += cells
            self._finished += cells

    def tell(self, step: str, label: str, cells: int) -> None:
        """What is being done now, for the cell ``label`` and others beside it."""
        with self._lock:
            if self._callback is None:
                return
            others = f" and {cells - 1} more" if cells > 1 else ""
            left = self.left_s
            rest = "" if left is None else f", {describe_time(left)} left"
            self._callback(f"{step} {label}{others}{rest}", self.done, self.total)

    def tell_export(self, label: str, done: int, total: int) -> None:
        """Which cell something is exported for now, of how many."""
        with self._lock:
            self._start = self._clock()  # the time left is that of measuring
            if self._callback is not None:
                self._callback(f"export {done} of {total}: {label}", self.done, self.total)

    @property
    def left_s(self) -> float | None:
        """Seconds that the rest will take; None as long as nobody can know."""
        if self._finished < _LEAST_FOR_A_GUESS:
            return None
        return (self._clock() - self._start) / self._finished * (self.total - self.done)


def describe_time(seconds: float) -> str:
    """ "40 s", "12 min", "3.5 h"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
