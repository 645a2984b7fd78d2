"""Who may use a GPU when several workers share it: many get ready side by side, or one measures.

The surprising choice: who waits to measure goes before whoever gets ready, which stops for it
between two cells. A measurement so waits for one cell of each other worker, not for its whole job.
"""

from __future__ import annotations

import threading
from typing import Literal

from ftax.workers.process import Stop, Stopped

State = Literal["away", "getting ready", "waiting to measure", "measuring"]
_LOOK_S = 0.2  # at whether the sweep is to end


class Turns:
    """Of the workers of one GPU; read and written by each `Turn` under ``changed``."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.all: list[Turn] = []

    def is_any(self, *states: State) -> bool:
        """Whether a worker is in one of ``states``."""
        return any(turn.state in states for turn in self.all)


class Turn:
    """One worker's part of `Turns`; ``pid`` is that of its process, once there is one."""

    def __init__(self, turns: Turns, stop: Stop) -> None:
        self._turns, self._stop = turns, stop
        self.state: State = "away"
        self.pid: int | None = None
        turns.all.append(self)

    def list_others(self) -> list[int]:
        """The processes of the others, which idle while this one measures."""
        return [turn.pid for turn in self._turns.all if turn is not self and turn.pid is not None]

    def get_ready(self) -> None:
        """Return when nobody measures, or waits to. Raises Stopped if the sweep is to end."""
        with self._turns.changed:
            self._become("away")
            while self._turns.is_any("measuring", "waiting to measure"):
                self._wait()
            self._become("getting ready")

    def measure(self) -> None:
        """Return when this worker has the GPU to itself. Raises Stopped if the sweep is to end."""
        with self._turns.changed:
            self._become("waiting to measure")
            while self._turns.is_any("measuring", "getting ready"):
                self._wait()
            self._become("measuring")

    def leave(self) -> None:
        """This worker has ended, or does nothing."""
        with self._turns.changed:
            self._become("away")

    def _become(self, state: State) -> None:
        self.state = state
        self._turns.changed.notify_all()

    def _wait(self) -> None:
        if self._stop.is_set:
            self._become("away")
            raise Stopped
        self._turns.changed.wait(_LOOK_S)
