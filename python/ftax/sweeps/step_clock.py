"""Where the time of a device goes, by steps.

The surprising choice: the seconds of all steps add up to the time that has passed, also where
several workers get ready side by side. A moment is shared out equally among those that do
something; it is waiting only if all of them wait.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from itertools import count

WAITING = "wait"

Switch = Callable[[str | None], None]  # to the next step of one worker; None: it has ended


class StepClock:
    """The clock of one device."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.seconds: dict[str, float] = {}
        self._now, self._since = now, now()
        self._steps: dict[int, str] = {}
        self._lock = threading.Lock()
        self._numbers: Iterator[int] = count()

    def add_worker(self) -> Switch:
        """What tells the clock what one worker does next."""
        number = next(self._numbers)

        def switch(step: str | None) -> None:
            with self._lock:
                self._share_out()
                if step is None:
                    self._steps.pop(number, None)
                else:
                    self._steps[number] = step

        return switch

    def _share_out(self) -> None:
        now = self._now()
        at_work = [step for step in self._steps.values() if step != WAITING]
        steps = at_work or ([WAITING] if self._steps else [])
        for step in steps:
            share = (now - self._since) / len(steps)
            self.seconds[step] = self.seconds.get(step, 0.0) + share
        self._since = now
