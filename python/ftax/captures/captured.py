"""`ftax.capture`: a callable that is called like the original and replays what it recorded.

Whatever is not certain is recorded again, not guessed. A call that differs in its arguments, or
that finds anything of Python changed that the recorded one could have read, is another call. When
one is recorded or given up is decided in `recordings`.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple, NoReturn

import torch
from torch import nn

from ftax.captures.around import OtherThreads, find_mode
from ftax.captures.checks import (
    Before,
    check,
    check_communicating,
    find_obstacle,
    give_to_borrower,
    replay,
)
from ftax.captures.followed import FollowedProgram
from ftax.captures.guards import Wraps
from ftax.captures.kinds import CallKind
from ftax.captures.ledger import CaptureStats, Clock, Ledger
from ftax.captures.notices import Explanation, Notices, describe_acts, explain
from ftax.captures.options import Options
from ftax.captures.program import Program, ValueChanged
from ftax.captures.recordings import Recordings, this_thread
from ftax.errors import FtaxError, InvalidArgumentError, RunnerError, UnsupportedError, say_count
from ftax.steps.given import is_measuring
from ftax.steps.left_as_found import try_lock
from ftax.steps.setting import read_grad_mode, use_autograd
from ftax.steps.step import StandIn, Step
from ftax.steps.user_inputs import split_inputs

_MAKES_STATE = (
    "the first call runs as it is: it makes state (an optimizer's, a cache, a flag) that replays "
    "need; the second records"
)
_COMMUNICATES = (
    "ftax: a replay that communicates raised this; where a connection was closed or a collective "
    "timed out, another rank has raised or ended, and its own output says why"
)


class _Given(NamedTuple):
    """The arguments of a call, and when it began."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    start: int  # ns


class _Match(NamedTuple):
    """A call, and the program that stands for it."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    start: int  # ns
    kind: CallKind
    program: Program
    tensors: list[torch.Tensor]


class _Unanswered(NamedTuple):
    """A call that the original is to answer, and why."""

    why: str
    kind: CallKind | None
    start: int  # ns


captures: weakref.WeakValueDictionary[int, Captured] = weakref.WeakValueDictionary()  # by function


class Captured(Wraps, StandIn):
    """What `ftax.capture` gives. Called like the original, from any thread; where calls change
    state, they take turns.

    Attributes:
        original: what was captured.
        inputs: those that it was captured with first, (args, kwargs); borrowed, the graph's own.
        name: of the original.
        options: it was captured with.
        grad_mode: under which it was captured.
    """

    def __init__(self, what: Callable[..., Any] | Step, options: Options, name: str = "") -> None:
        self.original = what
        self.inputs: tuple[tuple[Any, ...], dict[str, Any]] = ((), {})
        self._function = what.function if isinstance(what, Step) else what
        self._grad_mode = what.grad_mode if isinstance(what, Step) else None
        self.grad_mode = self._grad_mode or read_grad_mode()
        self.__wrapped__ = self._function  # for who asks for its arguments
        self.name = name or (what.name if isinstance(what, Step) else _name(what))
        self.options = options
        self._ledger, self._notices = Ledger(), Notices(self.name)
        self._recordings = Recordings(
            self._function,
            self.name,
            options,
            self._grad_mode,
            ledger=self._ledger,
            notices=self._notices,
        )
        self._kinds = self._recordings.kinds
        self._turns = threading.RLock()  # of calls that must not run at once
        self._books = self._ledger.lock  # held for moments
        self._is_exclusive = False  # while a call is recorded that others must not disturb
        self._is_closed = False
        self._audits_left = 0
        captures[id(self._function)] = self
        self._release: Callable[[], None] | None = None  # gives a module its forward back

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the original returns for these arguments, bit for bit."""
        if this_thread.is_recording:  # what is recorded calls a capture, maybe its own
            return self._function(*args, **kwargs)
        if self._recordings.has_state or self._is_exclusive or self._grad_mode is not None:
            return self._call_in_turn(args, kwargs)
        answer = self._answer(args, kwargs)
        if type(answer) is not _Unanswered:
            return answer
        # Here, not deeper: in Python 3.11 calls are slower at some depths of its stack.
        begun = self._ledger.begin_original(answer.why, answer.kind)
        try:
            return self._function(*args, **kwargs)
        finally:
            self._ledger.end_original(answer.start, begun, answer.kind)

    def _call_in_turn(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        mode = self._grad_mode
        with self._turns, nullcontext() if mode is None else use_autograd(mode == "grad"):
            answer = self._answer(args, kwargs)
            if type(answer) is not _Unanswered:
                return answer
            return self._call_original(_Given(args, kwargs, answer.start), answer.why, answer.kind)

    def _answer(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        start = time.perf_counter_ns()
        if self._is_closed:
            raise RunnerError(f"the capture of {self.name} was closed: call {self.name} itself")
        if self.options.reset is not None:
            self.options.reset()
        kind = self._find_kind(args, kwargs)
        if kind is None:
            return _Unanswered("it cannot be captured", None, start)
        if kind.skips:
            kind.skips -= 1
            return _Unanswered(kind.why_skipped, kind, start)
        for program in tuple(kind.programs):
            tensors = program.match(args, kwargs)
            if tensors is not None:
                return self._run(_Match(args, kwargs, start, kind, program, tensors))
        if kind.why:
            return _Unanswered(kind.why, kind, start)
        return self._miss(_Given(args, kwargs, start), kind)

    def _run(self, match: _Match) -> Any:
        if match.program.is_concurrent:
            return self._replay_or_check(match)
        with self._turns:
            return self._replay_or_check(match)

    def _replay_or_check(self, match: _Match) -> Any:
        if isinstance(match.program, FollowedProgram) and match.program.difference:
            result = self._function(*match.args, **match.kwargs)
            return self._give_up(match, result, match.program.difference, raises=False)
        if self._audits_left:
            self._audits_left -= 1
            return self._check(match, raises=True)
        if self.options.audit and match.program.schedule.is_due() and not is_measuring():
            return self._check(match, raises=False)
        return self._replay(match)

    def _replay(self, match: _Match) -> Any:
        """A replay; the original where it cannot be one after all."""
        program = match.program
        before = Before(program, match.tensors) if program.checked else None
        result, failure = replay(program, match.tensors)
        if failure is not None:
            return self._recover(match, failure, before)
        self._ledger.note_replay(match.kind, match.program, match.start)
        return result

    def _recover(self, match: _Match, error: Exception, before: Before | None) -> Any:
        """What the original does after a replay that raised ``error``, from the same state; raises
        the error where that is not known any more, as of an operator that failed half-way."""
        if match.program.groups:  # other ranks do not take part again
            error.add_note(_COMMUNICATES)
            raise error
        if before is not None:
            before.put_back()
        elif not match.program.is_pure:
            raise error
        if isinstance(error, ValueChanged):
            self._recordings.note_change(match.kind, match.program)
            return self._call_original(match, "a number that it read has changed")
        result = self._call_original(match, "the replay failed")  # what it raises, it raises alone
        self._notices.tell_failure(error)
        return result

    def _check(self, match: _Match, *, raises: bool) -> Any:
        """A replay, and the original from the same state, whose results and state are left. Where
        they differ, the original is called from now on; or, with ``raises``, an error tells."""
        program, tensors = match.program, match.tensors
        if find_obstacle(program, tensors, asked=raises):
            self._ledger.unchecked += 1
            return self._replay(match)
        clock = Clock(program)
        before = Before(program, tensors)
        given, args, kwargs = tensors, match.args, match.kwargs
        if isinstance(program, FollowedProgram):
            given = program.separate(tensors)
            args, kwargs = program.signature.fill(given)
        compare = check_communicating if program.groups else check
        found = compare(program, given, args, kwargs, self._function, before, clock)
        if found is None:
            self._ledger.unchecked += 1
            return self._replay(match)
        if found.failure is not None:
            return self._recover(match, found.failure, before)
        if found.difference:
            result = found.result
            if given is not tensors and not raises:
                before.put_back()
                result = self._function(*match.args, **match.kwargs)
            return self._give_up(match, result, found.difference, raises=raises)
        unchecked, times = program.schedule.unchecked, (found.replay_ns, found.original_ns)
        self._ledger.note_check(match.kind, program, match.start, clock, *times)
        if program.schedule.is_no_faster:
            self._recordings.give_up(match.kind, program, "a replay is no faster")
        if isinstance(program, FollowedProgram):
            return program.follow(tensors, given, found, unchecked)
        if self.options.borrow:
            return give_to_borrower(found.replayed, found.result)
        return found.result

    def _give_up(self, match: _Match, result: Any, difference: str, *, raises: bool) -> Any:
        """After a replay that was not what the original gives."""
        program = match.program
        self._ledger.originals["a replay was wrong"] += 1
        if raises:
            raise RunnerError(
                f"the capture of {self.name} is not what the original computes: {difference}. "
                "explain() lists what it takes as fixed; close() it and call the original"
            )
        self._recordings.give_up(match.kind, program, "a replay was wrong")
        self._notices.tell_difference(program, difference)
        return result

    def _call_original(self, call: _Match | _Given, why: str, kind: CallKind | None = None) -> Any:
        """Beside other threads, unless calls take turns."""
        begun = self._ledger.begin_original(why, kind)
        try:
            return self._function(*call.args, **call.kwargs)
        finally:
            self._ledger.end_original(call.start, begun, kind)

    def _miss(self, call: _Given, kind: CallKind) -> Any:
        with self._books:
            why = self._recordings.explain_original(kind)
        if why:
            return _Unanswered(why, kind, call.start)
        if self.options.on_miss == "raise" and self._ledger.count() and not kind.is_settled:
            raise InvalidArgumentError(
                f"no recorded call of {self.name} fits: {_describe_miss(kind)}; "
                "on_miss='capture' records it, 'eager' calls the original"
            )
        if mode := find_mode():
            self._warn_mode(mode)
            return _Unanswered("a mode of torch is on", kind, call.start)
        with try_lock() as is_alone:
            # Another thread measures or records, and what it runs may wait for this capture.
            if not is_alone:
                return _Unanswered("another thread measures or records", kind, call.start)
            return self._record_and_run(call, kind)

    def _find_kind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallKind | None:
        """None for arguments that no recording can be told by."""
        try:
            with self._books:
                return self._kinds.find(args, kwargs)
        except InvalidArgumentError as error:
            if mode := find_mode():  # in which tensors are of another kind
                self._warn_mode(mode)
            else:
                self._notices.tell_refused(error)
            return None

    def _warn_mode(self, mode: str) -> None:
        if not is_measuring() and self.options.on_refusal == "raise":
            self._notices.tell_mode(mode)

    def _record_and_run(self, call: _Given, kind: CallKind) -> Any:
        """Record the call and replay it; the original where that cannot be."""
        error: Exception | None = None
        with self._undisturbed(kind) as is_undisturbed:
            if not is_undisturbed:
                return _Unanswered("other threads call it", kind, call.start)
            reason = _describe_miss(kind)
            try:
                program = self._recordings.record(
                    call.args, call.kwargs, kind, is_asked=kind.is_settled
                )
            except FtaxError as found:
                error, program = found, None
        call = call._replace(start=time.perf_counter_ns())
        if error is not None:
            return self._call_refused(call, kind, error)
        if program is None:  # it has to run once as it is
            return self._miss(call, kind)
        program.reason = reason
        tensors = program.match(call.args, call.kwargs)
        if tensors is None:
            kind.why = "its recording does not fit it"
            return self._call_original(call, kind.why)
        return self._run(_Match(*call, kind, program, tensors))

    def _call_refused(self, call: _Given, kind: CallKind, error: Exception) -> Any:
        """Warn once, and do not try again. What the original raises, it raises alone."""
        if isinstance(error, OtherThreads):
            kind.original_ns = 0
            self._notices.tell_threads(error)
            return self._call_original(call, "other threads live", kind)
        result = self._call_original(call, "it cannot be captured")
        kind.why = "it cannot be captured"
        self._notices.tell_refused(error)
        return result

    @contextmanager
    def _undisturbed(self, kind: CallKind) -> Iterator[bool]:
        """Whether the kind can be recorded now. What is not as it was may be that the call writes
        state from now on, which no other call may do meanwhile."""
        if not self._recordings.has_state and not kind.programs:
            yield True
            return
        with self._turns:
            self._is_exclusive = True
            try:
                yield self._ledger.running == 0
            finally:
                self._is_exclusive = False

    def warm(self, calls: Iterable[Any]) -> None:
        """Record calls now that no recording fits, such as one of each length that will come; each
        in the forms of `inputs`. Other threads had better rest: what Python keeps is put back
        afterwards, and so are random states of a GPU.

        Raises as `capture` does.
        """
        with self._turns:
            for call in calls:
                args, kwargs = split_inputs(call)
                if self.options.reset is not None:
                    self.options.reset()
                kind = self._find_kind(args, dict(kwargs))
                known = () if kind is None else kind.programs
                if not any(item.match(args, dict(kwargs)) is not None for item in known):
                    self.record(args, dict(kwargs), None)

    def record(self, args: tuple[Any, ...], kwargs: dict[str, Any], check_inputs: Any) -> bool:
        """Record the call with these arguments, which changes nothing else. Whether it can be
        replayed: it may be refused, or have to run once first."""
        try:
            kind = self._kinds.find(args, kwargs)
            program = self._recordings.record(args, kwargs, kind, check_inputs, is_asked=True)
            return program is not None
        except OtherThreads:
            raise
        except UnsupportedError as error:
            kind.why = "it cannot be captured"
            if self.options.on_refusal == "raise":
                raise
            self._notices.tell_refused(error)
            return False

    def open(self, inputs: Any = None) -> tuple[nn.Module | Step, Any]:
        """The original, as it is measured, and the inputs that it was captured with."""
        if isinstance(self.original, Step):
            return self.original, inputs
        given = self.inputs if inputs is None else inputs
        if isinstance(self.original, nn.Module):
            return self.original, given
        reset, mode = self.options.reset, self.grad_mode
        step = Step(
            function=self.original, inputs=given, name=self.name, grad_mode=mode, reset=reset
        )
        return step, None

    def record_first(self, inputs: Any, check_inputs: Any) -> None:
        """Record the call that `inputs` are of from now on."""
        args, kwargs = split_inputs(() if inputs is None else inputs)
        self.inputs = args, dict(kwargs)
        if self.record(*self.inputs, check_inputs) and self.options.borrow:
            # In the memory from which the recording reads.
            self.inputs = self._recordings.programs[0].lend_inputs(*self.inputs)

    def stand_in_for(self, module: nn.Module) -> None:
        """Be its forward, until `close`."""
        self._release = stand_in(module, self)

    def audit(self, calls: int) -> None:
        """Have the original run beside the next ``calls`` replays, from the same state and random
        numbers. A replay that gives anything else raises RunnerError; what is returned is the
        original's. Raises InvalidArgumentError unless ``calls`` is 0 or more."""
        if not isinstance(calls, int) or isinstance(calls, bool) or calls < 0:
            raise InvalidArgumentError(f"calls is {calls!r}; give how many to compare, 0 or more")
        self._audits_left = calls

    @property
    def left_out(self) -> tuple[str, ...]:
        """What calls print, write, send or wait for beside their work, in a warning's words."""
        acts = [act for program in self._recordings.programs for act in program.executed.acts]
        return describe_acts(self.name, tuple(dict.fromkeys(acts)))

    def explain(self) -> Explanation:
        """What is compared before each call, and what is taken as fixed."""
        note = _MAKES_STATE if self._kinds.has_first else self._notices.refusal
        return explain(self.name, self._recordings.programs, self._ledger.count(), note)

    def stats(self) -> CaptureStats:
        """How calls were answered so far, and what that took."""
        return self._ledger.make_stats(self.memory_bytes, self._recordings.from_tape)

    @property
    def recordings(self) -> int:
        """How many calls were recorded so far."""
        return self._ledger.recorded

    @property
    def memory_bytes(self) -> int:
        """Of memory that the recorded calls hold beside what the original holds; of a tape's own,
        an estimate."""
        return self._recordings.memory_bytes

    def close(self) -> None:
        """Let go of all that was recorded, and of a module that was captured in place. Calls raise
        RunnerError afterwards."""
        with self._turns:
            self._is_closed = True
            if self._release is not None:
                self._release()
                self._release = None
            for program in self._recordings.programs:
                self._recordings.drop(program)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"the capture of {self.name} holds addresses of this process, so it cannot be pickled "
            "or copied: pickle captured.original and capture it again where it is loaded"
        )

    def __repr__(self) -> str:
        count = len(self._recordings.programs)
        return f"<capture of {self.name}, {say_count(count, 'recorded call')}>"


def _describe_miss(kind: CallKind) -> str:
    if kind.change[0]:
        return f"{kind.change[0]} has changed"
    return f"it was called with {kind.signature.describe()}"


def _name(what: object) -> str:
    return getattr(what, "__name__", "") or type(what).__name__


def _keep_from_compiler(call: Any) -> None:
    """Code that torch compiles calls this as it is, and compiles nothing of what this calls.
    `torch.compiler.disable` says so too, and imports the compiler, which takes seconds."""
    call._torchdynamo_disable = True
    call._torchdynamo_disable_msg = "a capture replays what it recorded"
    frames: Any = torch._C._dynamo.eval_frame
    skip = frames._FrameAction.SKIP  # of the frame itself, and of those that it calls
    frames.set_code_exec_strategy(call.__code__, frames._FrameExecStrategy(skip, skip))


_keep_from_compiler(Captured.__call__)


def stand_in(module: nn.Module, forward: Callable[..., Any]) -> Callable[[], None]:
    """Have calls of ``module`` come to ``forward``; what undoes it. Copies and pickles of the
    module know nothing of it."""
    space = vars(module)
    own: dict[str, Any] = {
        name: space[name] for name in ("forward", "__getstate__") if name in space
    }

    def get_state() -> Any:
        state = (
            own["__getstate__"]() if "__getstate__" in own else type(module).__getstate__(module)
        )
        if not isinstance(state, dict):
            return state
        kept = {k: v for k, v in state.items() if v is not forward and v is not get_state}
        return kept | own

    def undo() -> None:
        for name, ours in (("forward", forward), ("__getstate__", get_state)):
            if space.get(name) is ours:
                del space[name]
        space.update(own)

    space["forward"], space["__getstate__"] = forward, get_state
    return undo
