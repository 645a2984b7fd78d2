"""Who may use a GPU when several workers share it: many get ready side by side, or one measures.

The surprising choice: who waits to measure goes before whoever gets ready, which stops for it
between two cells. A measurement so waits for one cell of each other worker, not for its whole job.
"""

from __future__ import annotations

import threading
from typing import Literal

from ftax.sweep.process import Stop, Stopped

State = Literal["away", "getting ready", "measuring"]
_LOOK_S = 0.2  # at whether the sweep is to end


class Turns:
    """Of the workers of one GPU; read and written by each `Turn` under ``changed``."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.getting_ready = 0
        self.waiting = 0  # to measure
        self.is_measured = False  # the GPU, by one of them

    @property
    def may_get_ready(self) -> bool:
        """Whether nobody measures, or waits to."""
        return not self.is_measured and self.waiting == 0

    @property
    def may_measure(self) -> bool:
        """Whether nobody else is at work."""
        return not self.is_measured and self.getting_ready == 0


class Turn:
    """One worker's part of `Turns`."""

    def __init__(self, turns: Turns, stop: Stop) -> None:
        self._turns, self._stop = turns, stop
        self.state: State = "away"

    def get_ready(self) -> None:
        """Return when nobody measures, or waits to. Raises Stopped if the sweep is to end."""
        with self._turns.changed:
            self._leave()
            while not self._turns.may_get_ready:
                self._wait()
            self._turns.getting_ready += 1
            self.state = "getting ready"

    def measure(self) -> None:
        """Return when this worker has the GPU to itself. Raises Stopped if the sweep is to end."""
        with self._turns.changed:
            self._leave()
            self._turns.waiting += 1
            try:
                while not self._turns.may_measure:
                    self._wait()
                self._turns.is_measured = True
                self.state = "measuring"
            finally:
                self._turns.waiting -= 1
                self._turns.changed.notify_all()

    def leave(self) -> None:
        """This worker has ended, or does nothing."""
        with self._turns.changed:
            self._leave()

    def _leave(self) -> None:
        if self.state == "getting ready":
            self._turns.getting_ready -= 1
        elif self.state == "measuring":
            self._turns.is_measured = False
        self.state = "away"
        self._turns.changed.notify_all()

    def _wait(self) -> None:
        if self._stop.is_set:
            raise Stopped
        self._turns.changed.wait(_LOOK_S)
