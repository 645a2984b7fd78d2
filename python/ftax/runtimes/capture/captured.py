"""`ftax.capture`: a callable that is called like the original and replays what it recorded.

The surprising choice: whatever is not certain is recorded again, not guessed. A call that differs
in its arguments, or that finds anything of Python changed that the recorded one could have read, is
another call.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, NoReturn

import torch
from torch import nn
from torch.utils import _pytree as pytree

from ftax import _core
from ftax.errors import (
    InvalidArgumentError,
    RunnerError,
    UnsupportedError,
    describe_value,
    name_type,
    say_count,
)
from ftax.runtimes.capture.around import find_mode, refuse_modes
from ftax.runtimes.capture.explanation import Explanation, explain
from ftax.runtimes.capture.gradients import note_holders
from ftax.runtimes.capture.guards import Wraps
from ftax.runtimes.capture.program import Program, ValueChanged
from ftax.runtimes.capture.record import OnHostRead, record_program
from ftax.steps.left_as_found import be_alone
from ftax.steps.setting import read_grad_mode, use_autograd
from ftax.steps.step import Step
from ftax.steps.tensors import same_bytes
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
_MOST_REFUSED = 64  # kinds of calls that are remembered as such
_MANY = 8  # calls, from which on it is worth a warning
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

    Raises:
        UnsupportedError: ``what`` cannot be replayed soundly; the message names operator, line and
            what to change.
        InvalidArgumentError: for arguments that cannot be.
        RunnerError: ``what`` raised.
    """
    if isinstance(what, Captured):
        raise InvalidArgumentError("it is captured already: give what it was captured of")
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
    )
    options.check()
    if isinstance(what, Step) and inputs is not None:
        raise InvalidArgumentError("a step brings its inputs: leave inputs out")
    if isinstance(what, Step) and what.reset is not None:
        kept = (
            "its cache is Python's, which reset= brings back: capture the call of the model with a "
            "static cache (docs/capture.md)"
            if what.kind == "decode"
            else "Python keeps something that reset= brings back, and a replay would leave it as "
            "it is: keep it in tensors that are written in place"
        )
        raise UnsupportedError(f"cannot capture {what.name}: {kept}")
    if isinstance(what, nn.Module) and inputs is None:
        raise InvalidArgumentError(
            f"inputs are left out: give those of a call of {type(what).__name__}, or () for none"
        )
    captured = Captured(what, options)
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

    def check(self) -> None:
        """Raise InvalidArgumentError for a value that none of them has."""
        for name, choices in _CHOICES.items():
            if (value := getattr(self, name)) not in choices:
                words = ", ".join(map(repr, choices))
                raise InvalidArgumentError(f"{name} is {value!r}; it has to be one of {words}")
        count = self.max_shapes
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise InvalidArgumentError(f"max_shapes is {count!r}; give 1 or more")


class _Match(NamedTuple):
    """A call, and the program that stands for it."""

    program: Program
    tensors: list[torch.Tensor]
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

    def __init__(self, what: Callable[..., Any] | Step, options: _Options) -> None:
        self.original = what
        self.inputs: tuple[tuple[Any, ...], dict[str, Any]] = ((), {})
        self._function = what.function if isinstance(what, Step) else what
        self._grad_mode = what.grad_mode if isinstance(what, Step) else None
        self.grad_mode = self._grad_mode or read_grad_mode()
        self._name = what.name if isinstance(what, Step) else _name(what)
        self._options = options
        self._programs: list[Program] = []  # the most recently used first
        self._lock = threading.RLock()
        self._calls: Counter[str] = Counter()
        self._makes_state = self._made_state = self._is_closed = False
        self._audits_left = self._recorded_in_a_row = 0
        self._refused: deque[_core.Signature] = deque(maxlen=_MOST_REFUSED)
        self._dropped: deque[_core.Signature] = deque(maxlen=_MOST_REFUSED)
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
        for place, program in enumerate(self._programs):
            tensors = program.match(args, kwargs)
            if tensors is not None:
                if place:
                    self._programs.insert(0, self._programs.pop(place))
                return self._run(_Match(program, tensors, args, kwargs))
        return self._miss(args, kwargs)

    def _run(self, match: _Match) -> Any:
        return self._compare(match) if self._audits_left else self._replay(match)

    def _replay(self, match: _Match) -> Any:
        program = match.program
        before = _Before(match) if program.checked else None
        failure = ""
        try:
            result = program.run(match.tensors)
        except ValueChanged:
            if before is not None:
                before.put_back()
            self._note_change()
        except RunnerError as error:
            if program.written or program.generators:
                raise  # with an operator's name: nobody knows how far it came
            failure = str(error)
        else:
            self._calls["replayed"] += 1
            self._recorded_in_a_row = 0
            return result
        result = self._call_original(match.args, match.kwargs)  # what it raises, it raises alone
        if failure:
            self._warn(
                "replay",
                f"a replay of {self._name} failed where {self._name} itself does not, and every "
                f"such call is done by {self._name}: {failure}",
            )
        return result

    def _note_change(self) -> None:
        """Warn once of numbers that are others in most calls."""
        self._changed += 1
        if self._changed >= _MANY and self._changed > self._calls["replayed"]:
            self._warn(
                "checked",
                f"{self._changed} calls of the capture of {self._name} read other numbers than the "
                "recorded ones, so that each was replayed and then done again, which is slower "
                "than without a capture: record it with inputs like most (with padding, if most "
                "have some), or do without on_host_read='check'",
            )

    def _call_original(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._calls["eager"] += 1
        return self._function(*args, **kwargs)

    def _miss(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._is_closed:
            raise RunnerError(f"the capture of {self._name} was closed: call {self._name} itself")
        if self._makes_state:
            self._makes_state, self._made_state = False, True
            return self._call_original(args, kwargs)
        if self._options.on_miss == "eager" and self._programs:
            return self._call_original(args, kwargs)
        if self._options.on_refusal == "eager" and find_mode():  # outside of it there are replays
            return self._call_original(args, kwargs)
        if any(signature.match(args, kwargs) is not None for signature in self._refused):
            return self._call_original(args, kwargs)
        if self._options.on_miss == "raise" and (self._programs or self._calls):
            raise InvalidArgumentError(
                f"no recorded call of {self._name} fits: {self._describe_miss(args, kwargs)}; "
                "on_miss='capture' records it, 'eager' calls the original"
            )
        refuse_modes(self._name)
        with be_alone() as is_alone:
            # Another thread measures or records, and what it runs may wait for this capture.
            return (
                self._record_and_run(args, kwargs)
                if is_alone
                else self._call_original(args, kwargs)
            )

    def _record_and_run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._note_miss(args, kwargs)
        reason = self._describe_miss(args, kwargs)
        failure = ""
        try:
            is_recorded = self.record(args, kwargs, None)
        except RunnerError as error:
            failure = str(error) or type(error).__name__
        if failure:
            result = self._call_original(args, kwargs)  # if it raises, then as itself, and alone
            self._warn("failed", f"{self._name} is called as it is, without a capture: {failure}")
            self._refused.append(_core.Signature(args, kwargs))
            return result
        if not is_recorded:
            return self._miss(args, kwargs)
        program, in_a_row = self._programs[0], self._recorded_in_a_row
        program.reason = reason
        tensors = program.match(args, kwargs)
        if tensors is None:  # or it would be recorded for ever
            return self._call_original(args, kwargs)
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
        elif any(signature.match(args, kwargs) is not None for signature in self._dropped):
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

    def record(self, args: tuple[Any, ...], kwargs: dict[str, Any], check_inputs: Any) -> bool:
        """Record the call with these arguments, which changes nothing else. Whether it can be
        replayed: it may be refused, or have to run once first."""
        _recording.is_on = True
        try:
            with note_holders([program.gradients for program in self._programs]):
                return self._keep(self._record_in_mode(args, kwargs, check_inputs))
        except UnsupportedError as error:
            if self._options.on_refusal == "raise":
                raise
            self._warn("refused", f"{self._name} is called as it is, without a capture: {error}")
            self._refusal = str(error)
            self._refused.append(_core.Signature(args, kwargs))
            return False
        finally:
            _recording.is_on = False

    def _keep(self, program: Program) -> bool:
        """Use it for the next such call, unless a first call has to run as it is."""
        if program.unsettled and self._made_state:
            raise UnsupportedError(f"cannot capture {self._name}: {program.unsettled}")
        self._calls["recorded"] += 1
        if program.unsettled:
            self._makes_state = True
            return False
        self._made_state = False
        self._programs.insert(0, program)
        while len(self._programs) > self._options.max_shapes:
            dropped = self._programs.pop()
            dropped.replay.close()
            self._dropped.append(dropped.signature)
        return True

    def lend_inputs(self) -> None:
        """Let `inputs` be in the memory from which the first recording reads."""
        self.inputs = self._programs[0].lend_inputs(*self.inputs)

    def _record_in_mode(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], check_inputs: Any
    ) -> Program:
        if self._grad_mode is None:
            return self._record(args, kwargs, check_inputs)
        with use_autograd(self._grad_mode == "grad"):
            return self._record(args, kwargs, check_inputs)

    def _record(self, args: tuple[Any, ...], kwargs: dict[str, Any], check_inputs: Any) -> Program:
        program = record_program(
            self._function,
            args,
            kwargs,
            name=self._name,
            kind=self._options.kind,
            on_host_read=self._options.on_host_read,
            borrow=self._options.borrow,
            check_inputs=check_inputs,
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

    def _compare(self, match: _Match) -> Any:
        self._audits_left -= 1
        before = _Before(match)
        replayed = _keep_results(self._replay(match), match)
        before.put_back()
        result = self._call_original(match.args, match.kwargs)
        self._calls["audited"] += 1
        expected = _keep_results(result, match)
        if difference := _find_difference(expected, replayed):
            raise RunnerError(
                f"the capture of {self._name} is not what the original computes: {difference}. "
                "explain() lists what it takes as fixed; close() it and call the original"
            )
        return result

    def explain(self) -> Explanation:
        """What is compared before each call, and what is taken as fixed."""
        note = _MAKES_STATE if self._makes_state else self._refusal
        return explain(self._name, self._programs, self._calls, note)

    @property
    def memory_bytes(self) -> int:
        """Of device memory that the recorded calls hold beside what the original holds."""
        return sum(program.replay.memory_bytes for program in self._programs)

    def close(self) -> None:
        """Let go of all that was recorded. Calls raise RunnerError afterwards."""
        with self._lock:
            while self._programs:
                self._programs.pop().replay.close()
            self._makes_state, self._is_closed = False, True

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
        return f"it was called with {_core.Signature(args, kwargs).describe()}"


class _Before:
    """What a call may change, as it is: written memory, inputs, random numbers, gradients."""

    def __init__(self, match: _Match) -> None:
        program = match.program
        self._memory = _core.SavedState([*program.written, *match.tensors])
        self._cpu = torch.get_rng_state()
        self._gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
        self._generators = [(item, item.get_state()) for item in program.generators]
        leaves = (*program.gradients.made, *program.gradients.dropped, *program.gradients.added)
        self._gradients = [(leaf, leaf.grad) for leaf in leaves]

    def put_back(self) -> None:
        self._memory.put_back()
        torch.set_rng_state(self._cpu)
        if self._gpus:
            torch.cuda.set_rng_state_all(self._gpus)
        for generator, state in self._generators:
            generator.set_state(state)
        for leaf, grad in self._gradients:
            leaf.grad = grad


def _keep_results(result: Any, match: _Match) -> list[tuple[str, Any]]:
    """What a call returned and wrote, copied, with names."""
    found: list[tuple[str, Any]] = []
    for place, leaf in enumerate(pytree.tree_leaves(result)):
        found.append((f"output {place}", leaf))
    found += [(f"state {place}", item) for place, item in enumerate(match.program.written)]
    found += [(f"input {place}", item) for place, item in enumerate(match.tensors)]
    grads = [leaf.grad for leaf in match.program.gradients.made]
    found += [(f"gradient {place}", item) for place, item in enumerate(grads)]
    with torch.no_grad():
        return [
            (name, item.detach().clone() if isinstance(item, torch.Tensor) else item)
            for name, item in found
        ]


def _find_difference(expected: list[tuple[str, Any]], replayed: list[tuple[str, Any]]) -> str:
    """ "" where there is none."""
    if len(expected) != len(replayed):
        return f"{len(replayed)} tensors where there are {len(expected)}"
    for (name, wanted), (_, found) in zip(expected, replayed, strict=True):
        if isinstance(wanted, torch.Tensor) and isinstance(found, torch.Tensor):
            if wanted.shape != found.shape or wanted.dtype != found.dtype:
                return f"{name} is {found.dtype} {tuple(found.shape)}"
            if not same_bytes(wanted, found):
                return f"{name} has other values"
        elif type(wanted) is not type(found) or wanted != found:
            return f"{name} is {describe_value(found)} where it is {describe_value(wanted)}"
    return ""


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
