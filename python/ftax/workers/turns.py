"""Processes that measure by turns, a tenth of a second each; all are alive and all but one sleep.

The turn changes in the progress callback between two rounds, so what is measured keeps its stopping
rule.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ftax.errors import FtaxError
from ftax.workers.child import DONE, Line

MEASURING = "measuring"  # the phase before the first round
ROUNDS_A_TURN = 5
_LIMIT_S = 24 * 3600.0  # of one step of a worker: to build, to compile, or a turn


class Asked(Protocol):
    """A process with a `TurnTaker`: a worker, or a fork."""

    @property
    def pid(self) -> int:
        """Of the process."""

    def send(self, job: Any) -> None:
        """Answer its question."""

    def receive(self, limit_s: float) -> dict[str, Any]:
        """Its next answer."""


class TurnTaker:
    """The progress callback of a process that measures by turns: it returns when its turn comes.

    That is before measuring, and after every `ROUNDS_A_TURN` rounds. `take_turns` is its parent.
    ``tell_others`` is given, at each turn, the process ids of those that sleep meanwhile.
    """

    def __init__(self, line: Line, tell_others: Callable[[Sequence[int]], None]) -> None:
        self._line, self._tell_others = line, tell_others
        self._began = 0  # with which round the last turn did

    def __call__(self, phase: str, done: int, total: int) -> None:
        """Wait if a turn begins here. Once a round: who waits for a quiet core calls many times."""
        if phase not in (MEASURING, "round") or done % ROUNDS_A_TURN:
            return
        goes_on = phase == "round" and done in (0, self._began)
        self._began = done
        if goes_on:
            return
        self._line.say("turn")
        others = self._line.hear() or []
        self._tell_others(others)

    def begin(self) -> None:
        """Wait for the first turn."""
        self(MEASURING, 0, 1)


def take_turns(
    workers: Sequence[Asked], names: Sequence[str], shuffler: random.Random
) -> list[list[dict[str, Any]]]:
    """Let processes with a `TurnTaker` measure, one at a time, in random order each turn; what each
    answered, beside asking for turns.

    Raises:
        RunnerError: one of them ended before; its name is said.
        FtaxError: what one of them was stopped by, of the same kind, with its name.
    """
    said: list[list[dict[str, Any]]] = [[] for _ in workers]

    def listen(place: int) -> bool:
        """Until it wants another turn, or has none left."""
        try:
            while (answer := workers[place].receive(_LIMIT_S))["say"] != DONE:
                if answer["say"] == "turn":
                    return True
                said[place].append(answer)
        except FtaxError as error:
            error.args = (f"{names[place]}: {error}",)
            raise
        return False

    waiting = [place for place in range(len(workers)) if listen(place)]  # all are ready now
    while waiting:
        for place in shuffler.sample(waiting, len(waiting)):
            others = [worker.pid for worker in workers if worker is not workers[place]]
            workers[place].send(others)
            if not listen(place):
                waiting.remove(place)
    return said
