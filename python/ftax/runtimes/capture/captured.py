"""`ftax.capture`: a callable that is called like the original and replays what it recorded.

The surprising choice: whatever is not certain is recorded again, not guessed. A call that differs
in its arguments, or that finds anything of Python changed that the recorded one could have read, is
another call.
"""

from __future__ import annotations

import sys
import threading
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, NoReturn

import torch
from torch import nn

from ftax import _core
from ftax.errors import InvalidArgumentError, RunnerError, UnsupportedError, name_type, say_count
from ftax.runtimes.capture.around import OtherThreads, find_mode, is_only_thread, refuse_modes
from ftax.runtimes.capture.checks import (
    Before,
    Outcome,
    find_obstacle,
    give_to_borrower,
    join_spreads,
)
from ftax.runtimes.capture.explanation import CaptureStats, Explanation, explain
from ftax.runtimes.capture.gradients import note_holders
from ftax.runtimes.capture.guards import Wraps
from ftax.runtimes.capture.program import Program, ValueChanged
from ftax.runtimes.capture.record import OnHostRead, record_program
from ftax.steps.given import is_measuring
from ftax.steps.input_trees import is_data
from ftax.steps.left_as_found import be_alone
from ftax.steps.setting import read_grad_mode, use_autograd
from ftax.steps.step import Step
from ftax.steps.user_inputs import split_inputs

CaptureKind = Literal["auto", "tape", "graph"]
OnRefusal = Literal["raise", "eager"]
OnMiss = Literal["capture", "eager", "raise"]
_CHOICES = {
    "kind": ("auto", "tape", "graph"),
    "on_host_read": ("refuse", "check"),
    "on_refusal": ("raise", "eager"),
    "on_miss": ("capture", "eager", "raise"),
}
_MOST_SIGNATURES = 64  # kinds of calls that are remembered
_WARN_AFTER_CALLS = 8
_MAKES_STATE = (
    "the first call runs as it is: it makes state (an optimizer's, a cache, a flag) that replays "
    "need; the second records"
)


def capture(
    what: Callable[..., Any] | Step,
    inputs: Any = None,
    *,
    check_inputs: Any = None,
    kind: CaptureKind = "auto",
    on_host_read: OnHostRead = "refuse",
    on_refusal: OnRefusal = "raise",
    on_miss: OnMiss = "capture",
    max_shapes: int = 8,
    borrow: bool = False,
    audit: bool = True,
    ignore: Sequence[str] = (),
    reset: Callable[[], object] | None = None,
) -> Captured:
    """Record a call of ``what`` and hand over a callable that replays it; see docs/capture.md.

    The replay makes the same operator calls on the same memory, without Python: from C++ on a CPU,
    as one CUDA graph on a GPU. Outputs are bit for bit those of the original.

    Args:
        what: a module, a function, or a step (`ftax.step`, `ftax.train`, `ftax.decode`). It runs in
            the caller's grad mode: a module without a backward pass needs `torch.no_grad()` or
            `torch.inference_mode()`, here and where it is called.
        inputs: of the call to record, in the forms of `ftax.load_model`; a step brings its own.
        check_inputs: the same with other values, by which the recording is checked; drawn if left
            out.
        kind: "tape", "graph" (a CUDA graph), or "auto": a graph on a GPU, a tape on a CPU.
        on_host_read: what becomes of a call that reads a number which depends on inputs or state:
            "refuse", or "check": each replay computes the number too, and where it is not the
            recorded one the call is done again as the original does it, from the same state.
        on_refusal: "raise", or "eager": call the original, with one warning.
        on_miss: what becomes of a call for which nothing was recorded, by its arguments or by what
            Python holds: "capture" records it, "eager" calls the original, "raise" raises.
        max_shapes: how many recorded calls are kept; the one that was least recently used goes.
        borrow: on a GPU, hand out the graph's own memory in place of copies: what is returned holds
            until the next call, which writes over it. `inputs` of the capture are then those that
            the graph reads: write new values into them, and call with them. On a CPU there are no
            copies anyway.
        audit: now and then run the original beside a replay, from the same state, and compare: at
            the 2nd, 4th, 8th ... call of a recording, then in 1 % of the time. Where they differ,
            a warning says so and the original is called from then on.
        ignore: names of attributes and variables that the call changes and that replays may leave
            as they are, such as a counter or a list of losses.
        reset: as of `ftax.step`: called without arguments before each call, it brings back what
            Python keeps.

    Raises:
        UnsupportedError: ``what`` cannot be replayed soundly; the message names operator, line and
            what to change.
        InvalidArgumentError: for arguments that cannot be.
        RunnerError: ``what`` raised.
    """
    if isinstance(what, Captured):
        raise InvalidArgumentError("already captured; pass the original callable (fast.original)")
    if not callable(what):
        raise InvalidArgumentError(
            f"'what' is {name_type(what)}, which cannot be called: give a module, a function or a "
            "step"
        )
    options = _Options(
        kind=kind,
        on_host_read=on_host_read,
        on_refusal=on_refusal,
        on_miss=on_miss,
        max_shapes=max_shapes,
        borrow=borrow,
        audit=audit,
        ignore=_read_names(ignore),
    )
    options.check()
    if isinstance(what, Step) and inputs is not None:
        raise InvalidArgumentError("a step brings its inputs: leave inputs out")
    if isinstance(what, Step) and what.kind == "decode" and what.reset is not None:
        raise UnsupportedError(
            f"cannot capture {what.name}: its cache is Python's, which reset= brings back: capture "
            "the call of the model with a static cache (docs/capture.md)"
        )
    if reset is None and isinstance(what, Step):
        reset = what.reset
    if reset is not None and not callable(reset):
        raise InvalidArgumentError(
            f"reset is {name_type(reset)}: give a function without arguments"
        )
    if isinstance(what, nn.Module) and inputs is None:
        raise InvalidArgumentError(
            f"inputs are left out: give those of a call of {type(what).__name__}, or () for none"
        )
    captured = Captured(what, options, reset)
    given = what.inputs if isinstance(what, Step) else inputs
    args, kwargs = split_inputs(() if given is None else given)
    captured.inputs = args, dict(kwargs)
    if captured.record(*captured.inputs, check_inputs) and borrow:
        captured.lend_inputs()
    return captured


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    """Those of `capture`."""

    kind: CaptureKind
    on_host_read: OnHostRead
    on_refusal: OnRefusal
    on_miss: OnMiss
    max_shapes: int
    borrow: bool
    audit: bool
    ignore: tuple[str, ...]

    def check(self) -> None:
        """Raise InvalidArgumentError for a value that none of them has."""
        for name, choices in _CHOICES.items():
            if (value := getattr(self, name)) not in choices:
                words = ", ".join(map(repr, choices))
                raise InvalidArgumentError(f"{name} is {value!r}; it has to be one of {words}")
        count = self.max_shapes
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise InvalidArgumentError(f"max_shapes is {count!r}; give 1 or more")


def _read_names(names: Sequence[str]) -> tuple[str, ...]:
    """Raises InvalidArgumentError for what are no names."""
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise InvalidArgumentError(
            f"ignore is {names!r}: give names of attributes or variables, such as ('calls',)"
        )
    return tuple(names)


class _Match(NamedTuple):
    """A call, and the program that stands for it."""

    program: Program
    tensors: list[torch.Tensor]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class _Given(NamedTuple):
    """The arguments of a call."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class _Recording(threading.local):
    """Whether this thread is recording, whatever it is that it records."""

    is_on = False


_recording = _Recording()


class Captured(Wraps):
    """What `ftax.capture` gives. Called like the original; for one thread at a time, others wait.

    Attributes:
        original: what was captured.
        inputs: those that it was captured with first, (args, kwargs); borrowed, the graph's own.
        grad_mode: under which it was captured.
    """

    def __init__(
        self,
        what: Callable[..., Any] | Step,
        options: _Options,
        reset: Callable[[], object] | None,
    ) -> None:
        self.original = what
        self.inputs: tuple[tuple[Any, ...], dict[str, Any]] = ((), {})
        self._function = what.function if isinstance(what, Step) else what
        self._grad_mode = what.grad_mode if isinstance(what, Step) else None
        self.grad_mode = self._grad_mode or read_grad_mode()
        self._name = what.name if isinstance(what, Step) else _name(what)
        self._options, self._reset = options, reset
        self._programs: list[Program] = []  # the most recently used first
        self._lock = threading.RLock()
        self._calls: Counter[str] = Counter()
        self._originals: Counter[str] = Counter()  # calls of the original, by why
        self._check_ns = self._checked = self._unchecked = 0
        self._is_closed = False
        self._audits_left = self._recorded_in_a_row = 0
        self._refused = _Signatures()
        self._dropped = _Signatures()
        self._first = _Signatures()  # of calls that make state, which run as they are
        self._settled = _Signatures()  # of those that have
        self._renewed = _Signatures()  # recorded anew, as they read another number at first
        self._changed = 0  # values that were compared and differed
        self._told: set[str] = set()
        self._refusal = ""  # the last one

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the original returns for these arguments, bit for bit."""
        if _recording.is_on:  # what is recorded calls a capture, maybe its own
            return self._function(*args, **kwargs)
        with self._lock:
            if self._grad_mode is None:
                return self._call(args, kwargs)
            with use_autograd(self._grad_mode == "grad"):
                return self._call(args, kwargs)

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._reset is not None:
            self._reset()
        for place, program in enumerate(self._programs):
            tensors = program.match(args, kwargs)
            if tensors is not None:
                if place:
                    self._programs.insert(0, self._programs.pop(place))
                return self._run(_Match(program, tensors, args, kwargs))
        return self._miss(args, kwargs)

    def _run(self, match: _Match) -> Any:
        if self._audits_left:
            self._audits_left -= 1
            return self._check(match, raises=True)
        if self._options.audit and match.program.schedule.is_due() and not is_measuring():
            return self._check(match, raises=False)
        return self._replay(match)

    def _replay(self, match: _Match) -> Any:
        """A replay; the original where it cannot be one after all."""
        program = match.program
        before = Before(program, match.tensors) if program.checked else None
        result, failure = _run(match)
        if failure is not None:
            return self._recover(match, failure, before)
        program.replays += 1
        self._calls["replayed"] += 1
        self._recorded_in_a_row = 0
        return result

    def _recover(self, match: _Match, error: Exception, before: Before | None) -> Any:
        """What the original does after a replay that raised ``error``, from the same state; raises
        the error where that is not known any more, as of an operator that failed half-way."""
        if before is not None:
            before.put_back()
        elif not match.program.is_pure:
            raise error
        if isinstance(error, ValueChanged):
            self._note_change(match.program)
            return self._call_original(match, "a number that it read has changed")
        result = self._call_original(match, "the replay failed")  # what it raises, it raises alone
        self._warn(
            "replay",
            f"a replay of {self._name} failed where {self._name} itself does not, and every such "
            f"call is done by {self._name}: {error}",
        )
        return result

    def _check(self, match: _Match, *, raises: bool) -> Any:
        """A replay, and the original from the same state, whose results and state are left. Where
        they differ, the original is called from now on; or, with ``raises``, an error tells."""
        program, tensors = match.program, match.tensors
        if find_obstacle(program, tensors, asked=raises):
            self._unchecked += 1
            return self._replay(match)
        start = time.perf_counter_ns()
        before = Before(program, tensors)
        _wait_for(program)
        begun = time.perf_counter_ns()
        replayed, failure = _run(match)
        if failure is not None:
            return self._recover(match, failure, before)
        _wait_for(program)
        replay_ns = time.perf_counter_ns() - begun
        found = Outcome(replayed, program, tensors)
        handed = program.gradients.list_handed()
        before.put_back()
        result = self._function(*match.args, **match.kwargs)  # what it raises is handed out
        expected = Outcome(result, program, tensors)
        schedule = program.schedule
        difference = expected.find_difference(found, schedule.unsteady)
        if difference:
            before.put_back()
            result = self._function(*match.args, **match.kwargs)
            again = Outcome(result, program, tensors)
            schedule.unsteady = join_spreads(schedule.unsteady, expected.find_spread(again))
            difference = expected.find_difference(found, schedule.unsteady)
        if difference:
            return self._give_up(match, result, difference, raises=raises)
        program.gradients.put_into(handed)
        program.replays += 1
        extra_ns = time.perf_counter_ns() - start - replay_ns
        self._calls["replayed"] += 1
        self._recorded_in_a_row = 0
        self._checked += 1
        self._check_ns += extra_ns
        schedule.plan_next(replay_ns, extra_ns)
        return give_to_borrower(replayed, result) if self._options.borrow else result

    def _give_up(self, match: _Match, result: Any, difference: str, *, raises: bool) -> Any:
        """After a replay that was not what the original gives."""
        program = match.program
        self._originals["a replay was wrong"] += 1
        self._calls["eager"] += 1
        if raises:
            raise RunnerError(
                f"the capture of {self._name} is not what the original computes: {difference}. "
                "explain() lists what it takes as fixed; close() it and call the original"
            )
        self._programs.remove(program)
        self._refused.add(program.signature)
        program.replay.close()
        suspects = (*program.executed.changing, *program.state.frozen)
        why = f" It may depend on {suspects[0]}, which is not compared." if suspects else ""
        count = program.schedule.unchecked - 1
        earlier = (
            f" {say_count(count, 'replay')} since the last good check may be wrong too."
            if count
            else ""
        )
        self._warn(
            f"difference of {program.signature.describe()}",
            f"a check of the capture of {self._name} found that a replay is not what "
            f"{self._name} computes: {difference}.{why} {self._name} itself is called from now on "
            f"for such arguments.{earlier} (fast.explain() lists what is compared)",
        )
        return result

    def _note_change(self, program: Program) -> None:
        """Record the next call anew, once, where the first one alone had this number; warn once of
        numbers that are others in most calls."""
        if program.replays <= 1 and not self._renewed.has_like(program.signature):
            self._renewed.add(program.signature)
            self._programs.remove(program)
            program.replay.close()
            return
        self._changed += 1
        if self._changed >= _WARN_AFTER_CALLS and self._changed > self._calls["replayed"]:
            self._warn(
                "checked",
                f"{self._changed} calls of the capture of {self._name} read other numbers than the "
                "recorded ones, so that each was replayed and then done again, which is slower "
                "than without a capture: record it with inputs like most (with padding, if most "
                "have some), or do without on_host_read='check'",
            )

    def _call_original(self, call: _Match | _Given, why: str) -> Any:
        self._calls["eager"] += 1
        self._originals[why] += 1
        return self._function(*call.args, **call.kwargs)

    def _miss(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given = _Given(args, kwargs)
        if self._is_closed:
            raise RunnerError(f"the capture of {self._name} was closed: call {self._name} itself")
        if self._first.take(given):
            self._settled.add(_make_signature(given))
            return self._call_original(given, "a first call, which makes state")
        if self._options.on_miss == "eager" and self._programs:
            return self._call_original(given, "nothing recorded fits")
        is_watched = is_measuring() or self._options.on_refusal == "eager"
        if is_watched and find_mode():  # outside of it there are replays
            return self._call_original(given, "a mode of torch is on")
        if self._refused.has(given):
            return self._call_original(given, "it cannot be captured")
        if self._options.on_miss == "raise" and (self._programs or self._calls):
            raise InvalidArgumentError(
                f"no recorded call of {self._name} fits: {self._describe_miss(args, kwargs)}; "
                "on_miss='capture' records it, 'eager' calls the original"
            )
        refuse_modes(self._name)
        with be_alone() as is_alone:
            # Another thread measures or records, and what it runs may wait for this capture.
            if not is_alone:
                return self._call_original(given, "another thread measures or records")
            return self._record_and_run(args, kwargs)

    def _record_and_run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given = _Given(args, kwargs)
        self._note_miss(args, kwargs)
        reason = self._describe_miss(args, kwargs)
        failure = ""
        try:
            # What was asked for, and ran as it is first, is still asked for.
            is_asked = self._settled.has(given)
            is_recorded = self.record(args, kwargs, None, is_asked=is_asked)
        except OtherThreads as error:
            self._warn("threads", f"{error}: it is called as it is; record it by fast.warm([...])")
            return self._call_original(given, "other threads live")
        except RunnerError as error:
            failure = str(error) or type(error).__name__
        if failure:
            result = self._call_original(given, "it cannot be captured")  # which may raise as well
            self._warn("failed", f"{self._name} is called as it is, without a capture: {failure}")
            self._refused.add(_make_signature(given))
            return result
        if not is_recorded:
            return self._miss(args, kwargs)
        program, in_a_row = self._programs[0], self._recorded_in_a_row
        program.reason = reason
        tensors = program.match(args, kwargs)
        if tensors is None:  # or it would be recorded for ever
            return self._call_original(given, "its recording does not fit it")
        result = self._run(_Match(program, tensors, args, kwargs))
        self._recorded_in_a_row = in_a_row  # the first replay of a recording says nothing
        return result

    def _note_miss(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Warn once of calls that are recorded again and again, each for a second or so."""
        self._recorded_in_a_row += 1
        if self._recorded_in_a_row == self._options.max_shapes + 1:
            self._warn(
                "in a row",
                f"the last {self._recorded_in_a_row} calls of the capture of {self._name} were "
                "each recorded anew, which takes far longer than the call; now "
                f"{self._describe_miss(args, kwargs)}. Keep that the same from call to call "
                "(a number that changes can be a tensor: a position, lr=torch.tensor(...)), or "
                "give on_miss='eager'",
            )
        elif self._dropped.has(_Given(args, kwargs)):
            self._warn(
                "dropped",
                f"the capture of {self._name} is recorded again for arguments that it had dropped, "
                f"as it keeps {self._options.max_shapes} recordings: give a larger max_shapes, pad "
                "to fewer lengths, or give on_miss='eager'",
            )

    def _warn(self, kind: str, text: str) -> None:
        """Once of a kind, at the line that called."""
        if kind in self._told:
            return
        self._told.add(kind)
        depth, frame = 1, sys._getframe()
        while frame.f_back is not None and frame.f_code.co_filename == __file__:
            depth, frame = depth + 1, frame.f_back
        warnings.warn(text, stacklevel=depth)

    def warm(self, calls: Iterable[Any]) -> None:
        """Record calls now that no recording fits, such as one of each length that will come; each
        in the forms of `inputs`. Other threads had better rest: what Python keeps is put back
        afterwards, and so are random states of a GPU.

        Raises as `capture` does.
        """
        with self._lock:
            for call in calls:
                args, kwargs = split_inputs(call)
                if self._reset is not None:
                    self._reset()
                if not any(item.match(args, dict(kwargs)) is not None for item in self._programs):
                    self.record(args, dict(kwargs), None)

    def record(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        check_inputs: Any,
        *,
        is_asked: bool = True,
    ) -> bool:
        """Record the call with these arguments, which changes nothing else. Whether it can be
        replayed: it may be refused, or have to run once first. ``is_asked``: by the user, who
        answers for what other threads do to a GPU meanwhile."""
        _recording.is_on = True
        is_alone = is_only_thread() or (is_asked and torch.cuda.is_initialized())
        given = _Given(args, kwargs)
        try:
            with note_holders([program.gradients for program in self._programs]):
                return self._keep(self._record_in_mode(given, check_inputs, is_alone), given)
        except OtherThreads:
            raise
        except UnsupportedError as error:
            if self._options.on_refusal == "raise":
                raise
            self._warn("refused", f"{self._name} is called as it is, without a capture: {error}")
            self._refusal = str(error)
            self._refused.add(_make_signature(given))
            return False
        finally:
            _recording.is_on = False

    def _keep(self, program: Program, given: _Given) -> bool:
        """Use it for the next such call, unless a first call has to run as it is."""
        is_settled = self._settled.take(given)
        if program.unsettled and is_settled:
            raise UnsupportedError(f"cannot capture {self._name}: {program.unsettled}")
        self._calls["recorded"] += 1
        if program.unsettled:
            self._first.add(program.signature)
            return False
        self._programs.insert(0, program)
        while len(self._programs) > self._options.max_shapes:
            dropped = self._programs.pop()
            dropped.replay.close()
            self._dropped.add(dropped.signature)
        return True

    def lend_inputs(self) -> None:
        """Let `inputs` be in the memory from which the first recording reads."""
        self.inputs = self._programs[0].lend_inputs(*self.inputs)

    def _record_in_mode(self, given: _Given, check_inputs: Any, is_alone: bool) -> Program:
        if self._grad_mode is None:
            return self._record(given, check_inputs, is_alone)
        with use_autograd(self._grad_mode == "grad"):
            return self._record(given, check_inputs, is_alone)

    def _record(self, given: _Given, check_inputs: Any, is_alone: bool) -> Program:
        program = record_program(
            self._function,
            given.args,
            given.kwargs,
            name=self._name,
            kind=self._options.kind,
            on_host_read=self._options.on_host_read,
            borrow=self._options.borrow,
            check_inputs=check_inputs,
            ignore=self._options.ignore,
            reset=self._reset,
            is_alone=is_alone,
        )
        if not program.unsettled and (changed := program.state.find_change()):
            raise UnsupportedError(
                f"cannot capture {self._name}: {changed} is not the same when it is read twice"
            )
        return program

    def audit(self, calls: int) -> None:
        """Have the original run beside the next ``calls`` replays, from the same state and random
        numbers. A replay that gives anything else raises RunnerError; what is returned is the
        original's. Raises InvalidArgumentError unless ``calls`` is 0 or more."""
        if not isinstance(calls, int) or isinstance(calls, bool) or calls < 0:
            raise InvalidArgumentError(f"calls is {calls!r}; give how many to compare, 0 or more")
        self._audits_left = calls

    def explain(self) -> Explanation:
        """What is compared before each call, and what is taken as fixed."""
        note = _MAKES_STATE if self._first else self._refusal
        return explain(self._name, self._programs, self._calls, note)

    def stats(self) -> CaptureStats:
        """How calls were answered so far, and what that took."""
        return CaptureStats(
            replayed=self._calls["replayed"],
            original=dict(self._originals),
            recorded=self._calls["recorded"],
            checked=self._checked,
            unchecked=self._unchecked,
            check_seconds=self._check_ns / 1e9,
            memory_bytes=self.memory_bytes,
        )

    @property
    def recordings(self) -> int:
        """How many calls were recorded so far."""
        return self._calls["recorded"]

    @property
    def memory_bytes(self) -> int:
        """Of device memory that the recorded calls hold beside what the original holds."""
        return sum(program.replay.memory_bytes for program in self._programs)

    def close(self) -> None:
        """Let go of all that was recorded. Calls raise RunnerError afterwards."""
        with self._lock:
            while self._programs:
                self._programs.pop().replay.close()
            self._is_closed = True

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"the capture of {self._name} holds addresses of this process, so it cannot be pickled "
            "or copied: pickle captured.original and capture it again where it is loaded"
        )

    def __repr__(self) -> str:
        return f"<capture of {self._name}, {say_count(len(self._programs), 'recorded call')}>"

    def _describe_miss(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        for program in self._programs:
            if program.signature.match(args, kwargs) is not None:
                return f"{program.state.find_change() or 'something'} has changed"
        return f"it was called with {_make_signature(_Given(args, kwargs)).describe()}"


class _Signatures:
    """Kinds of calls, the last of many."""

    def __init__(self) -> None:
        self._items: deque[_core.Signature] = deque(maxlen=_MOST_SIGNATURES)

    def __bool__(self) -> bool:
        return bool(self._items)

    def add(self, signature: _core.Signature) -> None:
        self._items.append(signature)

    def has(self, given: _Given) -> bool:
        """Whether a call is of one of them."""
        return any(item.match(given.args, given.kwargs) is not None for item in self._items)

    def has_like(self, signature: _core.Signature) -> bool:
        """Whether one of them is in the same words."""
        return signature.describe() in {item.describe() for item in self._items}

    def take(self, given: _Given) -> bool:
        """Whether it is; no longer afterwards."""
        fitting = [item for item in self._items if item.match(*given) is not None]
        for item in fitting:
            self._items.remove(item)
        return bool(fitting)


def _make_signature(given: _Given) -> _core.Signature:
    return _core.Signature(given.args, given.kwargs, is_data)


def _run(match: _Match) -> tuple[Any, Exception | None]:
    """What a replay gives, or what it raises: who handles that raises another error as itself."""
    try:
        return match.program.run(match.tensors), None
    except Exception as error:
        return None, error


def _wait_for(program: Program) -> None:
    if program.kind == "graph":
        torch.cuda.synchronize()


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
