"""Who may use a GPU when several workers share it: many get ready side by side, or one measures.

The surprising choice: who waits to measure goes before whoever wants to get ready. Workers fall
into step by that: all get ready together, then they measure one after the other.
"""

from __future__ import annotations

import threading
from typing import Literal

from ftax.sweep.process import Stop, Stopped

State = Literal["away", "getting ready", "measuring"]
_LOOK_S = 0.2  # at whether the sweep is to end


class Turns:
    """Of the workers of one GPU."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._getting_ready = 0
        self._waiting = 0  # to measure
        self._is_measured = False  # the GPU, by one of them

    def _may_get_ready(self) -> bool:
        return not self._is_measured and self._waiting == 0

    def _may_measure(self) -> bool:
        return not self._is_measured and self._getting_ready == 0


class Turn:
    """One worker's part of `Turns`."""

    def __init__(self, turns: Turns, stop: Stop) -> None:
        self._turns, self._stop = turns, stop
        self.state: State = "away"

    def get_ready(self) -> None:
        """Return when nobody measures, or waits to. Raises Stopped if the sweep is to end."""
        with self._turns._changed:
            self._leave()
            while not self._turns._may_get_ready():
                self._wait()
            self._turns._getting_ready += 1
            self.state = "getting ready"

    def measure(self) -> None:
        """Return when this worker has the GPU to itself. Raises Stopped if the sweep is to end."""
        with self._turns._changed:
            self._leave()
            self._turns._waiting += 1
            try:
                while not self._turns._may_measure():
                    self._wait()
                self._turns._is_measured = True
                self.state = "measuring"
            finally:
                self._turns._waiting -= 1
                self._turns._changed.notify_all()

    def leave(self) -> None:
        """This worker has ended, or does nothing."""
        with self._turns._changed:
            self._leave()

    def _leave(self) -> None:
        if self.state == "getting ready":
            self._turns._getting_ready -= 1
        elif self.state == "measuring":
            self._turns._is_measured = False
        self.state = "away"
        self._turns._changed.notify_all()

    def _wait(self) -> None:
        if self._stop.is_set:
            raise Stopped
        self._turns._changed.wait(_LOOK_S)
