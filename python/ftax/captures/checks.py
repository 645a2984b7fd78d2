"""A capture checks itself: now and then the original runs beside a replay, from the same state.

No guard can follow all that Python code may read (`Schedule` says which calls are checked).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ftax import _core
from ftax.captures.around import is_only_thread
from ftax.captures.ledger import Clock
from ftax.captures.program import Program
from ftax.errors import describe_fault
from ftax.steps.collectives import make_collectives
from ftax.steps.left_as_found import try_lock
from ftax.tape.equality import Spread, find_other_bits, measure_spread

_MEMORY_SHARE = 0.1  # that recordings may hold
_DTYPES = {float: torch.float64, int: torch.int64, bool: torch.bool}  # of numbers of Python
_BITS = 63  # of an int64, without its sign
_COPIES = 3  # of what a call may change and of what it returns, that a check holds at most


def find_obstacle(program: Program, tensors: Sequence[torch.Tensor], *, asked: bool) -> str:
    """Why this call cannot be checked; "" if it can. ``asked``: by the user."""
    if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
        return "a CUDA graph is being captured"
    if program.draws and not asked and not is_only_thread():
        return "it draws random numbers, and other threads live"
    if program.has_hooks and not is_only_thread():
        return "gradients of its weights have hooks, and other threads live"
    needed = [*program.written, *tensors]
    bytes_needed = sum(item.numel() * item.element_size() for item in needed)
    bytes_needed += program.result_bytes
    device = next((item.device for item in needed if item.is_cuda), torch.device("cpu"))
    if _COPIES * bytes_needed > _count_free_bytes(device):
        return "there is no memory for copies of its state"
    return ""


def _count_free_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + cached
    with open("/proc/meminfo", encoding="ascii") as facts:
        sizes = dict(line.split(":", 1) for line in facts)
    return int(sizes["MemAvailable"].split()[0]) * 1024


def choose_most_bytes(program: Program) -> int:
    """That recordings of a capture may hold, unless its user says: a tenth of the device's memory,
    on a CPU of what is free."""
    if program.kind == "graph":
        return int(_MEMORY_SHARE * torch.cuda.mem_get_info()[1])
    return int(_MEMORY_SHARE * _count_free_bytes(torch.device("cpu")))


class Before:
    """What a call may change, as it is: written memory, random numbers, gradients, and tensors that
    it leaves in Python."""

    def __init__(self, program: Program, tensors: Sequence[torch.Tensor]) -> None:
        places = program.written_inputs
        self._written = [*program.written, *(tensors[place] for place in places)]
        self._memory = _core.SavedState(self._written)
        self._cpu = torch.get_rng_state() if program.draws else None
        uses_gpus = program.draws and torch.cuda.is_initialized()
        self._gpus = torch.cuda.get_rng_state_all() if uses_gpus else []
        self._generators = [(item, item.get_state()) for item in program.generators]
        gradients = program.gradients
        leaves = (*gradients.made, *gradients.dropped, *gradients.added)
        self._gradients = [(leaf, leaf.grad) for leaf in leaves]
        self._kept = [(place, place.read()) for place in program.kept]

    def put_back(self) -> None:
        """Have all of it as it was. Autograd is not told: what it saved is what it was."""
        with _keep_versions(self._written):
            self._memory.put_back()
        if self._cpu is not None:
            torch.set_rng_state(self._cpu)
        if self._gpus:
            torch.cuda.set_rng_state_all(self._gpus)
        for generator, state in self._generators:
            generator.set_state(state)
        for leaf, grad in self._gradients:
            leaf.grad = grad
        for place, tensor in self._kept:
            place.write(tensor)


@contextmanager
def _keep_versions(tensors: Sequence[torch.Tensor]) -> Iterator[None]:
    """By these autograd finds out that what it saved was written."""
    counted = tuple(item for item in tensors if not item.is_inference())
    autograd: Any = torch.autograd
    with autograd._unsafe_preserve_version_counter(counted):
        yield


class Outcome:
    """What a call returned and left behind, as copies that have names."""

    def __init__(
        self,
        result: Any,
        program: Program,
        tensors: Sequence[torch.Tensor],
        sent: Sequence[tuple[str, Sequence[torch.Tensor]]] = (),
    ) -> None:
        gradients = program.gradients
        grads = [leaf.grad for leaf in (*gradients.made, *gradients.added)]
        found = [(f"output {i}", leaf) for i, leaf in enumerate(pytree.tree_leaves(result))]
        found += [(f"state {i}", item) for i, item in enumerate(program.written)]
        found += [(f"input {i}", item) for i, item in enumerate(tensors)]
        found += [(f"gradient {i}", item) for i, item in enumerate(grads)]
        found += [(place.name, place.read()) for place in program.kept]
        found += [(f"what it gives to {name}", item) for name, items in sent for item in items]
        with torch.no_grad():
            self.items = [(name, _copy(item)) for name, item in found]

    def find_difference(self, replayed: Outcome, unsteady: dict[int, Spread]) -> str:
        """The first thing that ``replayed`` has otherwise, in words; "" for none. Where runs of the
        original differ, nothing is compared."""
        if len(self.items) != len(replayed.items):
            return f"it gives {len(replayed.items)} results in place of {len(self.items)}"
        pairs = zip(self.items, replayed.items, strict=True)
        for place, ((name, wanted), (_, found)) in enumerate(pairs):
            if isinstance(wanted, torch.Tensor) and isinstance(found, torch.Tensor):
                if wanted.shape != found.shape or wanted.dtype != found.dtype:
                    return f"{name} is {found.dtype} {tuple(found.shape)}"
                spread = {0: unsteady[place]} if place in unsteady else {}
                if find_other_bits([wanted], [found], spread):
                    return f"{name} has other values"
            elif not _core.is_same_value(wanted, found):
                return f"{name} is {found!r:.80} where it is {wanted!r:.80}"
        return ""

    def find_spread(self, other: Outcome) -> dict[int, Spread]:
        """Where two runs of the same call from the same state differ, by place."""
        mine, others = self._list_tensors(), other._list_tensors()
        same = [p for p in mine if p in others and mine[p].shape == others[p].shape]
        found = measure_spread([mine[p] for p in same], [[others[p] for p in same]])
        return {same[place]: spread for place, spread in found.items()}

    def _list_tensors(self) -> dict[int, torch.Tensor]:
        items = enumerate(item for _, item in self.items)
        return {place: item for place, item in items if isinstance(item, torch.Tensor)}


def _copy(item: Any) -> Any:
    """A number, which may be read of a result, is compared as that is: it may not be the same
    twice."""
    if isinstance(item, torch.Tensor):
        return item.detach().clone()
    dtype = _DTYPES.get(type(item))
    is_wide = dtype is torch.int64 and item.bit_length() > _BITS
    return item if dtype is None or is_wide else torch.tensor(item, dtype=dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What the original gives, the replay's own result, and how they differ in words; ``failure``:
    what the replay raised, without an original."""

    replayed: Any = None
    result: Any = None
    difference: str = ""
    failure: Exception | None = None
    replay_ns: int = 0
    original_ns: int = 0


def replay(program: Program, tensors: list[torch.Tensor]) -> tuple[Any, Exception | None]:
    """What a replay gives, or what it raises: who handles that raises another error as itself."""
    try:
        return program.run(tensors), None
    except Exception as error:
        return None, error


def check(
    program: Program,
    tensors: list[torch.Tensor],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    function: Callable[..., Any],
    before: Before,
    clock: Clock,
) -> Checked:
    """A replay, and ``function`` from the same state, whose results and state are left. What the
    function raises is raised."""

    def run_replay() -> tuple[Any, Exception | None]:
        program.match(args, kwargs)  # as each call does
        return replay(program, tensors)

    replayed, failure = clock.time(run_replay)
    if failure is not None:
        return Checked(failure=failure)
    replay_ns = clock.last_ns
    found = Outcome(replayed, program, tensors)
    handed = program.gradients.list_handed()
    before.put_back()
    result = clock.time(lambda: function(*args, **kwargs))
    original_ns = clock.last_ns
    if replay_ns >= original_ns and program.can_repeat:
        clock.time(run_replay)  # what ran second found caches warm: so does this one
        replay_ns = min(replay_ns, clock.last_ns)
    expected = Outcome(result, program, tensors)
    schedule = program.schedule
    difference = expected.find_difference(found, schedule.unsteady)
    if difference:
        before.put_back()
        result = function(*args, **kwargs)
        again = Outcome(result, program, tensors)
        difference = _find_steady_difference(program, expected, found, again)
    if not difference:
        program.gradients.put_into(handed)
    return Checked(
        replayed=replayed,
        result=result,
        difference=difference,
        replay_ns=replay_ns,
        original_ns=original_ns,
    )


def check_communicating(
    program: Program,
    tensors: list[torch.Tensor],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    function: Callable[..., Any],
    before: Before,
    clock: Clock,
) -> Checked | None:
    """``function``, and a replay from the same state, to which collectives give what other ranks
    have given to the function: they take part once. What the function raises is raised. None while
    another thread checks or records."""
    with try_lock() as is_alone:
        if not is_alone:
            return None
        return _check_with_kept(program, tensors, lambda: function(*args, **kwargs), before, clock)


def _check_with_kept(
    program: Program,
    tensors: list[torch.Tensor],
    original: Callable[[], Any],
    before: Before,
    clock: Clock,
) -> Checked:
    collectives = make_collectives()
    collectives.open(_core.Answer.logged)
    try:
        result = clock.time(original)
        original_ns, replay_ns = clock.last_ns, 0
        expected = Outcome(result, program, tensors, collectives.kept)
        after = Before(program, tensors)
        before.put_back()
        try:
            collectives.open(_core.Answer.kept)
            replayed, failure = clock.time(lambda: replay(program, tensors))
            replay_ns = clock.last_ns
            handed = program.gradients.list_handed()
            found = Outcome(replayed, program, tensors, collectives.repeated)
            difference = expected.find_difference(found, program.schedule.unsteady)
            if failure is not None:
                difference = f"it raises {describe_fault(failure)}"
            elif difference:
                before.put_back()
                collectives.open(_core.Answer.kept)
                again = original()
                other = Outcome(again, program, tensors, collectives.repeated)
                difference = _find_steady_difference(program, expected, found, other)
        except Exception as error:  # of an original that communicates otherwise each time
            difference = f"its second run raises {describe_fault(error)}"
        finally:
            after.put_back()
        if not difference:
            program.gradients.put_into(handed)
    finally:
        collectives.close()
    return Checked(
        replayed=replayed,
        result=result,
        difference=difference,
        replay_ns=replay_ns,
        original_ns=original_ns,
    )


def _find_steady_difference(
    program: Program, expected: Outcome, found: Outcome, other: Outcome
) -> str:
    """Where ``found`` differs from the original, whose second run gave ``other``."""
    schedule = program.schedule
    schedule.unsteady = _join_spreads(schedule.unsteady, expected.find_spread(other))
    return expected.find_difference(found, schedule.unsteady)


def _join_spreads(first: dict[int, Spread], second: dict[int, Spread]) -> dict[int, Spread]:
    """Where either differs."""
    joined = dict(first)
    for place, spread in second.items():
        known = first.get(place)
        differs = spread.differs if known is None else spread.differs | known.differs
        joined[place] = Spread(differs=differs, most=spread.most)
    return joined


def give_to_borrower(result: Any, expected: Any) -> Any:
    """``result``, which lies in memory that its user borrows, with the values of ``expected``."""
    with torch.no_grad():
        pairs = zip(pytree.tree_leaves(result), pytree.tree_leaves(expected), strict=True)
        for mine, other in pairs:
            if isinstance(mine, torch.Tensor) and mine is not other:
                mine.copy_(other)
    return result
