"""Children of a worker that share its hash seed, its memory layout and all that it imported; and
processes that measure by turns, a tenth of a second each, while all others sleep.

Two processes of the same code differ by some per cent, by where their memory lies and in which
order their dictionaries are. Two forks of one process do not. They are forked before any operator
ran, because neither OpenMP's threads nor a CUDA context survive a fork.

The turn changes in the progress callback between two rounds, so a worker needs no rounds of another
kind, and what it measures keeps its stopping rule.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NoReturn

from ftax.errors import FtaxError, RunnerError, describe_fault
from ftax.workers.child import DONE, REFUSED, Line, die_with, name_kind
from ftax.workers.process import Worker, make_error

MEASURING = "measuring"  # the phase before the first round
ROUNDS_A_TURN = 5
_LIMIT_S = 24 * 3600.0  # of one step of a worker: to build, to compile, or a turn
_DIED = "died"  # the last answer of a fork that met an error which is not ftax's


class Fork:
    """A child that does ``work``, which is given its `Line`; asked and listened to as a
    `ftax.workers.process.Worker` is."""

    def __init__(self, work: Callable[[Line], Any]) -> None:
        self._socket, theirs = socket.socketpair()
        parent = os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            self._socket.close()
            _become(work, theirs, parent)
        theirs.close()
        self._answers = self._socket.makefile(encoding="utf-8")

    def send(self, job: Any) -> None:
        """Answer a question. Raises RunnerError if it has ended."""
        try:
            self._socket.sendall(json.dumps(job).encode() + b"\n")
        except OSError:
            raise self._explain() from None

    def receive(self, limit_s: float) -> dict[str, Any]:
        """The next answer. Raises RunnerError if it died or was silent for so long, FtaxError for
        what its work was stopped by."""
        self._socket.settimeout(limit_s)
        try:
            line = self._answers.readline()
        except TimeoutError:
            raise RunnerError(f"a forked process was silent for {limit_s:g} s") from None
        if not line:
            raise self._explain()
        answer: dict[str, Any] = json.loads(line)
        if answer["say"] == REFUSED:
            raise make_error(answer)
        if answer["say"] == _DIED:
            raise RunnerError(answer["reason"])
        return answer

    def end(self) -> None:
        """End it at once."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)
        self._answers.close()
        self._socket.close()

    def _explain(self) -> RunnerError:
        with suppress(ChildProcessError):
            code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            if code < 0:
                return RunnerError(f"it was ended by {signal.Signals(-code).name}")
            return RunnerError(f"it ended with exit code {code}")
        return RunnerError("it ended without an answer")


def _become(work: Callable[[Line], Any], theirs: socket.socket, parent: int) -> NoReturn:
    """The child, up to its end: nothing of its parent's frames may run on in it."""
    code = 1
    try:
        die_with(parent)
        descriptor = theirs.detach()
        line = Line(os.dup(descriptor), descriptor)
        try:
            line.say(DONE, result=work(line))
        except FtaxError as error:
            line.say(REFUSED, error=name_kind(error), reason=str(error))
        except BaseException as error:
            traceback.print_exc()
            line.say(_DIED, reason=describe_fault(error))
        code = 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


class TurnTaker:
    """The progress callback of a process that measures by turns: it returns when its turn comes.

    That is before measuring, and after every `ROUNDS_A_TURN` rounds. `take_turns` is its parent.
    ``tell_others`` is given, at each turn, the process ids of those that sleep meanwhile.
    """

    def __init__(self, line: Line, tell_others: Callable[[Sequence[int]], None]) -> None:
        self._line, self._tell_others = line, tell_others
        self._began = 0  # with which round the last turn did

    def __call__(self, phase: str, done: int, total: int) -> None:
        """Wait if a turn begins here. Once a round: one that waits for a
        quiet core calls many times."""
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
    workers: Sequence[Worker | Fork], names: Sequence[str], shuffler: random.Random
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
