"""One recorded call: for which calls it stands, its replay, and when that is checked.

An argument that is a tensor which the call reaches by itself, such as a weight, is no argument like
others: a recording of such a call stands for that weight alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import torch
from torch.utils import _pytree as pytree

from ftax import _core
from ftax.captures.executed import Executed
from ftax.captures.gradients import Gradients
from ftax.captures.guards import GuardedState, KeptTensor
from ftax.errors import FtaxError, RunnerError
from ftax.steps.collectives import list_groups
from ftax.steps.writes import find_storage
from ftax.tape.equality import Spread

Kind = Literal["tape", "graph"]
TENSOR = object()  # in the place of one

_SHARE = 0.01  # of the time of replays that checks may take in the long run
_FIRST = 2
_TIMED_ENOUGH = 4


@dataclass(slots=True)
class Schedule:
    """The 2nd, 4th, 8th ... call of a recording, and then as many as take 1 % of the time.

    Attributes:
        unsteady: elements of results that the original does not give twice, by place.
        unchecked: replays since the last check that found no difference.
    """

    unsteady: dict[int, Spread] = field(default_factory=dict)
    unchecked: int = 0
    _calls: int = 0
    _next: int = _FIRST
    _timed: int = 0
    _replay_ns: int = 0  # the shortest
    _original_ns: int = 0

    def is_due(self) -> bool:
        """Count a call; whether it is to be checked."""
        self._calls += 1
        self.unchecked += 1
        return self._calls >= self._next

    def check_first(self) -> None:
        """Have the first call checked too."""
        self._next = 1

    def plan_next(self, replay_ns: int, extra_ns: int) -> None:
        """The check of this call took ``extra_ns`` beside its replay."""
        spacing = math.ceil(extra_ns / (_SHARE * max(replay_ns, 1)))
        self._next = self._calls + max(1, min(self._calls, spacing))
        self.unchecked = 0

    def time(self, replay_ns: int, original_ns: int) -> None:
        """A check has timed both: the whole of a call that is replayed, and the original."""
        first = not self._timed
        self._replay_ns = replay_ns if first else min(self._replay_ns, replay_ns)
        self._original_ns = original_ns if first else min(self._original_ns, original_ns)
        self._timed += 1

    @property
    def replay_ns(self) -> int:
        """What a replay takes, in the fastest of the calls that were checked; 0 before."""
        return self._replay_ns

    @property
    def saving_ns(self) -> int:
        """What a replay saves, in the fastest of the calls that were checked."""
        return self._original_ns - self._replay_ns

    @property
    def is_no_faster(self) -> bool:
        """Whether the fastest of several replays took as long as the fastest original."""
        return self._timed >= _TIMED_ENOUGH and self._replay_ns >= self._original_ns


@dataclass(frozen=True, slots=True)
class ReadLater:
    """In the place of a number, or of a list of numbers, that is read of a tensor."""

    convert: Callable[[torch.Tensor], Any]


def is_made(leaf: object) -> bool:
    """Whether a leaf of a result comes from a tensor that a replay gives."""
    return leaf is TENSOR or type(leaf) is ReadLater


_BYTES_A_CALL = 4096  # of a tape and its guards, about


class Replay(Protocol):
    """Runs what was recorded on other tensors."""

    memory_bytes: int
    places: list[int]  # of the outputs that are handed out

    def __call__(self, tensors: list[torch.Tensor]) -> Sequence[torch.Tensor]:
        """The outputs at ``places``, of the caller's grad mode."""
        ...

    def list_inputs(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        """From which it reads when it is given these."""
        ...

    def borrow(self, places: Sequence[int]) -> None:
        """At these places hand out memory that the next replay writes over."""

    def close(self) -> None:
        """Before it is let go of: return when nothing of it is in flight."""


class ValueChanged(Exception):
    """What a call read on the host is not what was baked in."""


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class Program:
    """One recorded call.

    Attributes:
        signature: of the arguments.
        replay: of the operators.
        kind: what replays them.
        state: of Python, under which it holds.
        executed: the code that ran.
        written: memory that the call writes and did not make, of arguments too.
        written_inputs: which tensors of the arguments it writes, by place.
        draws: whether it draws from torch's own generators.
        generators: those from which it draws and which are not torch's own.
        gradients: what it does to `.grad`.
        kept: tensors that it leaves in Python.
        groups: process groups that there were, of a call that communicates.
        operators: how many calls a replay makes.
        baked: host reads that are left out.
        checked: values that are read, and compared after each replay.
        warnings: of the recording.
        reason: why it was recorded, where others were before.
        unsettled: what a first call makes or changes, so that this is the recording of a later
            one; "" where all calls are alike.
        tree, leaves: of the result; among the leaves TENSOR stands for one, and `ReadLater` for a
            number of one.
        given: tensors that it was recorded with, which are not held.
        result_bytes: that a call returns.
        schedule: of the checks of its replays.
        replays: that gave what they should.
    """

    signature: _core.Signature
    replay: Replay
    kind: Kind
    state: GuardedState
    executed: Executed
    written: tuple[torch.Tensor, ...]
    written_inputs: tuple[int, ...] = ()
    draws: bool = False
    generators: tuple[torch.Generator, ...]
    gradients: Gradients
    kept: tuple[KeptTensor, ...] = ()
    groups: tuple[Any, ...] = ()
    operators: int
    baked: tuple[str, ...] = ()
    checked: tuple[float | int | bool | complex, ...] = ()
    warnings: tuple[str, ...] = ()
    unsettled: str = ""
    reason: str = ""
    tree: pytree.TreeSpec
    leaves: tuple[Any, ...]
    given: Sequence[torch.Tensor]
    result_bytes: int = 0
    schedule: Schedule = field(default_factory=Schedule)
    replays: int = 0
    _reached: frozenset[int] = field(init=False)  # ids of tensors that the call reaches by itself
    _same: tuple[int, ...] = field(init=False)  # which of them the given ones are
    _shared: frozenset[int | None] = field(init=False)  # memory that no argument may have
    _needs_inference: bool = field(init=False)  # torch refuses such writes outside of it

    def __post_init__(self) -> None:
        self._reached = frozenset(map(id, self.state.tensors))
        self._same = self._find_same(self.given)
        # A graph reads arguments from memory of its own, which nobody else writes.
        on_gpu = self.written if self.kind == "graph" else ()
        given = set(map(find_storage, self.given))
        self._shared = frozenset(map(find_storage, on_gpu)) - given
        # What the arguments hold is those of each call.
        self.written = tuple(item for item in self.written if find_storage(item) not in given)
        self._needs_inference = any(item.is_inference() for item in self.written)
        self.given = ()

    @property
    def is_pure(self) -> bool:
        """Whether a call that fails leaves nothing behind."""
        return not (self.written or self.written_inputs or self.generators or self.draws)

    @property
    def is_concurrent(self) -> bool:
        """Whether threads may replay it at once: a graph has memory of its own."""
        return self.kind == "tape" and not self.has_state

    @property
    def has_state(self) -> bool:
        """Whether a call changes anything but its results."""
        return bool(self.gradients.has_any or self.kept or not self.is_pure)

    @property
    def can_repeat(self) -> bool:
        """Whether a check may replay it once more, to time it again."""
        return not self.has_state

    @property
    def has_hooks(self) -> bool:
        """Whether weights have hooks that a check would have to take away meanwhile."""
        return False

    @property
    def memory_bytes(self) -> int:
        """That it holds, on a CPU about."""
        return self.replay.memory_bytes

    def close(self) -> None:
        """Before it is let go of."""
        self.replay.close()

    @property
    def contents(self) -> str:
        """What is replayed."""
        return f"{self.kind} of {self.operators} operator calls"

    def match(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor] | None:
        """The tensors of a call that this program stands for; None for another call."""
        tensors = self.signature.match(args, kwargs)
        if tensors is None or self.state.guards.find_change() >= 0:
            return None
        return tensors if self.takes(tensors) else None

    def takes(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Whether they can stand for those that this was recorded with. Recorded with a weight,
        reads of the weight are reads of the argument; the other way round each keeps to its own."""
        if self.groups and not {*self.groups} <= {*list_groups()}:
            return False
        if any(self._same) and self._find_same(tensors) != self._same:
            return False
        if (self.written_inputs or self._needs_inference) and not torch.is_inference_mode_enabled():
            written = (tensors[place] for place in self.written_inputs)
            if self._needs_inference or any(item.is_inference() for item in written):
                return False
        return not self._shared or self._shared.isdisjoint(map(find_storage, tensors))

    def _find_same(self, tensors: Sequence[torch.Tensor]) -> tuple[int, ...]:
        return tuple([id(item) if id(item) in self._reached else 0 for item in tensors])

    def lend_inputs(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """These arguments in the memory from which a replay reads; what the call reaches by itself
        stays what it is."""
        tensors = self.signature.match(args, kwargs)
        if tensors is None:
            return args, kwargs
        pairs = zip(tensors, self.replay.list_inputs(tensors), strict=True)
        lent = [given if id(given) in self._reached else own for given, own in pairs]
        return self.signature.fill(lent)

    def run(self, tensors: list[torch.Tensor]) -> Any:
        """What the call returns. Raises ValueChanged if a value that was read is another now."""
        outputs = self.replay(tensors)
        if self.checked:
            first = len(outputs) - len(self.checked)
            for value, now in zip(self.checked, outputs[first:], strict=True):
                if not _core.is_same_value(now.item(), value):  # -0.0 is not 0.0
                    raise ValueChanged
        return self._hand_out(outputs)

    def note_times(self, replay_ns: int, original_ns: int) -> None:
        """A check has timed a call."""
        self.schedule.time(replay_ns, original_ns)

    def _hand_out(self, outputs: Sequence[torch.Tensor]) -> Any:
        """The result, with gradients where eager would leave them."""
        end = sum(map(is_made, self.leaves))
        behind = end + len(self.gradients.made)
        if self.gradients.made or self.gradients.dropped:
            self.gradients.hand_out(outputs[end:behind])
        for place, tensor in zip(self.kept, outputs[behind:], strict=False):
            place.write(tensor)
        if self.leaves == (TENSOR,) and self.tree.is_leaf():
            return outputs[0]
        rest = iter(outputs)
        leaves = [_hand_out_leaf(leaf, rest) for leaf in self.leaves]
        return pytree.tree_unflatten(leaves, self.tree)


def _hand_out_leaf(leaf: Any, outputs: Iterator[torch.Tensor]) -> Any:
    if leaf is TENSOR:
        return next(outputs)
    return leaf.convert(next(outputs)) if type(leaf) is ReadLater else leaf


class TapeReplay:
    """Runs the tape on the tensors themselves; a thread beside others, a copy of it."""

    def __init__(self, tape: _core.Tape) -> None:
        self._tape = tape
        self._free = [tape]
        self.places: list[int] = []
        self.memory_bytes = _BYTES_A_CALL * len(tape)  # all else is the caller's

    def __call__(self, tensors: list[torch.Tensor]) -> Sequence[torch.Tensor]:
        """Raises what an operator raises."""
        try:
            tape = self._free.pop()
        except IndexError:
            tape = self._tape.copy()
        try:
            return tape.call(tensors, self.places)
        except FtaxError as error:  # of the tape itself
            raise RunnerError(f"a captured call failed: {error}") from error
        finally:
            self._free.append(tape)

    def list_inputs(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        """From themselves."""
        return tensors

    def borrow(self, places: Sequence[int]) -> None:
        """Nothing to do: each replay makes its results."""

    def close(self) -> None:
        """Nothing to wait for."""
