"""The recordings of one callable: when another is made, which are kept, and when one is given up.

`record` makes one. `ledger` counts what recording costs and saves.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch

from ftax.captures.around import is_only_thread
from ftax.captures.checks import choose_most_bytes
from ftax.captures.followed import FollowedProgram
from ftax.captures.gradients import note_holders
from ftax.captures.kinds import MOVES, CallKind, CallKinds
from ftax.captures.ledger import Ledger
from ftax.captures.notices import Notices
from ftax.captures.options import Options
from ftax.captures.passes import Backward, Grads
from ftax.captures.program import Program
from ftax.captures.record import Request, record_backward, record_program
from ftax.errors import FtaxError, UnsupportedError
from ftax.steps.collectives import Unsettled
from ftax.steps.given import is_measuring
from ftax.steps.left_as_found import try_lock
from ftax.steps.setting import use_autograd
from ftax.tape.capture import GraphMemory

_MOST_OF_A_KIND = 4  # recordings of one signature that are kept, such as with two values of a flag
_GIVE_UP_AFTER_CALLS = 8
_MOST_SETTLING = 4  # calls
_MOST_BACKWARDS = 8  # of a recording, by how gradients lie
_MANY_NEW = 64  # kinds of calls in a row, after which it is worth a warning
_NOT_YET = "such arguments are not recorded yet"


class _ThisThread(threading.local):
    is_recording = False  # whatever it is that it records


this_thread = _ThisThread()


class Recordings:
    """Those of ``function``.

    Attributes:
        kinds: of its calls.
        has_state: calls change state, or may.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        options: Options,
        grad_mode: str | None,
        *,
        ledger: Ledger,
        notices: Notices,
    ) -> None:
        self._function, self._name, self._options = function, name, options
        self._grad_mode = grad_mode  # None: that of the caller
        self._ledger, self._notices = ledger, notices
        self.kinds = CallKinds()
        self.has_state = options.reset is not None
        self._has_graphs = False
        self._memory = GraphMemory()
        self._changed = 0  # values that were compared and differed

    @property
    def programs(self) -> list[Program]:
        """All, those of the most recently used kind first."""
        with self._ledger.lock:
            return self.kinds.list_programs()

    @property
    def memory_bytes(self) -> int:
        """That they hold; of a tape's memory an estimate."""
        return sum(program.memory_bytes for program in self.programs)

    @property
    def from_tape(self) -> int:
        """Replays of the tape in place of a graph that a call before still held."""
        programs = self.programs
        return sum(item.from_tape for item in programs if isinstance(item, FollowedProgram))

    def explain_original(self, kind: CallKind) -> str:
        """Why the original answers this call, for which no recording fits; "": record it."""
        if kind.is_new:
            self._note_new(kind)
        if kind.is_first:
            kind.is_first, kind.is_settled = False, True
            return "a first call, which makes state"
        if self._options.on_miss == "eager" and self._ledger.recorded:
            return "nothing recorded fits"
        if kind.why or kind.is_settled:
            return kind.why
        kind.note_miss()
        if self._options.on_miss == "raise":
            return ""
        place = kind.change[0]
        if kind.moves == MOVES:
            self._notices.tell_moves(place)
        if not self._ledger.budget.pays(kind) and not (is_measuring() and kind.moves < MOVES):
            return kind.skip(f"{place} has changed" if place else _NOT_YET)
        if self._has_graphs and not is_only_thread():
            return "other threads live"
        return ""

    def _note_new(self, kind: CallKind) -> None:
        kind.is_new = False
        self._ledger.new_in_a_row += 1
        if self._ledger.new_in_a_row == _MANY_NEW:
            self._notices.tell_new(kind, _MANY_NEW)

    def record(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        kind: CallKind,
        check_inputs: Any = None,
        *,
        is_asked: bool,
    ) -> Program | None:
        """Record a call, for the next such. None where it has to run once as it is. ``is_asked``:
        by the user, who answers for what other threads do to a GPU meanwhile."""
        this_thread.is_recording = True
        begun, begun_work = time.perf_counter_ns(), time.thread_time_ns()
        request = self._make_request(check_inputs, is_asked=is_asked)
        try:
            with note_holders([program.gradients for program in self.programs]):
                return self._keep(self._make_program(args, kwargs, request), kind)
        except Unsettled:
            if kind.settling == _MOST_SETTLING:
                raise
            kind.settling += 1
            kind.is_first, kind.is_settled, self.has_state = True, False, True
            return None
        finally:
            this_thread.is_recording = False
            self._ledger.note_recording(begun, begun_work, is_asked=is_asked)

    def _make_program(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], request: Request
    ) -> Program:
        mode = self._grad_mode
        with nullcontext() if mode is None else use_autograd(mode == "grad"):
            program = record_program(self._function, args, kwargs, request)
        if isinstance(program, FollowedProgram):
            program.find_backward = self._find_backward
        self._notices.tell_acts(program.executed.acts)
        if program.groups:
            program.schedule.check_first()  # no other rank took part in its recording
        if not program.unsettled and (changed := program.state.find_change()):
            raise UnsupportedError(
                f"cannot capture {self._name}: {changed} is not the same when it is read twice"
            )
        return program

    def _find_backward(
        self, program: FollowedProgram, tensors: Sequence[torch.Tensor | None], grads: Grads
    ) -> Backward | None:
        """Record the backward pass for gradients that lie in another way than known ones."""
        if len(program.passes.backwards) >= _MOST_BACKWARDS:
            return None
        this_thread.is_recording = True
        begun, begun_work = time.perf_counter_ns(), time.thread_time_ns()
        try:
            with try_lock() as is_alone:
                if not is_alone:
                    return None
                request = self._make_request(None, is_asked=True)
                return record_backward(self._function, program, tensors, grads, request)
        except FtaxError as error:
            self._notices.tell_backward(error)
            return None
        finally:
            this_thread.is_recording = False
            self._ledger.note_recording(begun, begun_work, is_asked=False)

    def _make_request(self, check_inputs: Any, *, is_asked: bool) -> Request:
        return Request(
            name=self._name,
            options=self._options,
            memory=self._memory,
            check_inputs=check_inputs,
            is_alone=is_only_thread() or (is_asked and torch.cuda.is_initialized()),
        )

    def _keep(self, program: Program, kind: CallKind) -> Program | None:
        """Use it for the next such call, unless a first call has to run as it is."""
        is_settled, kind.is_settled = kind.is_settled, False
        if program.unsettled and is_settled:
            raise UnsupportedError(f"cannot capture {self._name}: {program.unsettled}")
        self.has_state |= program.has_state or bool(program.unsettled)
        kind.original_ns, kind.skips, kind.why = 0, 0, ""
        self._ledger.recorded += 1
        if program.unsettled:
            kind.is_first = True
            return None
        self._has_graphs |= program.kind == "graph"
        with self._ledger.lock:
            kind.programs.insert(0, program)
        most_bytes = choose_most_bytes(program) if (n := self._options.max_bytes) is None else n
        for old in kind.programs[_MOST_OF_A_KIND:]:
            self.drop(old)
        while self.memory_bytes > most_bytes and len(self.programs) > 1:
            self.drop(self.programs[-1])  # of the kind that was not called for longest
        return program

    def note_change(self, kind: CallKind, program: Program) -> None:
        """A number is not as recorded. Drop the recording, once, where the first call alone had
        this number; and where most calls have another one, for good."""
        if program.replays <= 1 and not kind.is_renewed:
            kind.is_renewed = True
            self.drop(program)
            return
        self._changed += 1
        if self._changed >= _GIVE_UP_AFTER_CALLS and self._changed > self._ledger.replayed:
            self.give_up(kind, program, "numbers that it reads are others in most calls")
            self._notices.tell_other_numbers(self._changed)

    def give_up(self, kind: CallKind, program: Program, why: str) -> None:
        """Drop it, and have the original answer calls of its kind from now on."""
        kind.why = why
        self.drop(program)

    def drop(self, program: Program) -> None:
        """Let go of it."""
        with self._ledger.lock:
            for kind in self.kinds:
                if program in kind.programs:
                    kind.programs.remove(program)
        program.close()
