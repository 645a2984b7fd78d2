"""The two passes of a recorded call: its tape, cut where the results are there.

What the forward pass makes and the backward pass needs is its second result. Gradients that lie in
another way make another backward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from ftax import _core
from ftax.captures.program import Replay, TapeReplay
from ftax.errors import UnsupportedError
from ftax.steps.tensors import list_dense, same_bytes
from ftax.steps.writes import list_storages
from ftax.tape.flow import list_output_slots, list_slots

Grads = Sequence[torch.Tensor | None]  # one a result that has a graph


Layout = tuple[Any, ...]

_PIECES = 8


def find_layout(grads: Grads, cast: torch.dtype | None) -> Layout:
    """By what a backward pass is another: which gradients there are, and how they lie; and to what
    torch.autocast casts around it."""
    laid = [
        item if item is None else (item.dtype, item.shape, _find_strides(item)) for item in grads
    ]
    return (cast, *laid)


def _find_strides(tensor: torch.Tensor) -> tuple[int, ...]:
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return tuple(stride for size, stride in pairs if size > 1)


class Laid(NamedTuple):
    """How a tensor lies."""

    shape: torch.Size
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Laid:
        """As this one does."""
        return cls(tensor.shape, tensor.stride(), tensor.dtype, tensor.device, tensor.requires_grad)

    def make(self) -> torch.Tensor:
        """One of zeros."""
        made = torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device=self.device)
        return made.zero_().requires_grad_(self.requires_grad)


@dataclass(slots=True, kw_only=True, eq=False)
class Backward:
    """A backward pass for gradients of one layout.

    Attributes:
        record: makes a tape of it for what it is given: what was saved, inputs, and gradients.
        replay: of such a tape.
        saved: what of it, as in `Passes.saved`.
        inputs: which tensors of the call it is given.
        made: of each input and weight that may get a gradient, whether it does.
        shared: which gradients lie in memory of others, or of what the pass is given.
    """

    record: Callable[[Sequence[torch.Tensor]], _core.Tape]
    replay: Replay
    saved: tuple[int, ...]
    inputs: tuple[int, ...]
    made: tuple[bool, ...]
    shared: tuple[int, ...]

    def choose(
        self, saved: Mapping[int, torch.Tensor], tensors: Sequence[torch.Tensor], grads: Grads
    ) -> list[torch.Tensor]:
        """What a replay is given."""
        given = [saved[place] for place in self.saved]
        given += [tensors[place] for place in self.inputs]
        return given + [item for item in grads if item is not None]

    def run(
        self, saved: Mapping[int, torch.Tensor], tensors: Sequence[torch.Tensor], grads: Grads
    ) -> list[torch.Tensor | None]:
        """The gradients of inputs and weights."""
        made = list(self.replay(self.choose(saved, tensors, grads)))
        for place in self.shared:  # autograd keeps what it is given, and adds to it in its place
            made[place] = made[place].clone()
        found = iter(made)
        return [next(found) if is_made else None for is_made in self.made]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What a recorded call gives: ``results`` tensors, those at ``with_graph`` with a graph, and
    the gradients that are ``made``; ``cast``: to what torch.autocast casts around its backward
    pass."""

    results: int
    with_graph: tuple[int, ...]
    made: tuple[bool, ...]
    cast: torch.dtype | None


@dataclass(slots=True, kw_only=True, eq=False)
class Passes:
    """Both passes of a call.

    Attributes:
        results: how many tensors it returns.
        saved: what the backward pass needs, which follows the results: places among all that the
            calls of the forward pass make.
        saved_on_host: which of them are on the host.
        views: which are views of weights; these count what is saved from 0.
        operators: of the forward pass.
        backwards: by the layout of the gradients.
        kept: inputs and weights whose values the backward pass needs as they were.
        saved_bytes: that a call holds until its backward pass, beside inputs and weights.
        state: that the call writes and did not make.
        drawn: how the gradients lie that were drawn first.
    """

    results: int
    with_graph: tuple[int, ...]
    forward: _core.Tape
    saved: tuple[int, ...]
    saved_on_host: tuple[int, ...]
    views: tuple[int, ...]
    operators: list[str]
    backwards: dict[Layout, Backward]
    kept_inputs: tuple[int, ...]
    kept_results: tuple[int, ...]
    kept_weights: tuple[torch.Tensor, ...]
    saved_bytes: int
    state: tuple[torch.Tensor, ...]
    drawn: tuple[Laid, ...]


def cut(
    tape: _core.Tape,
    tensors: Sequence[torch.Tensor],
    grads: Grads,
    shape: Shape,
    name: str,
) -> Passes:
    """The two passes of a recording of both. Runs them."""
    calls, count, results = tape.calls, len(tensors), shape.results
    inputs, of_grads = tape.input_slots[:count], tape.input_slots[count:]
    result_slots = tape.output_slots[:results]
    behind = results + sum(shape.made)
    grad_slots, state_slots = tape.output_slots[results:behind], tape.output_slots[behind:]
    constants = dict(tape.constants)
    end = _find_end(calls, set(result_slots))
    before = {slot: place for place, slot in enumerate(_list_made(calls[:end]))}
    _refuse_writes(calls[end:], {*before, *inputs, *constants}, name)
    used = _list_used(calls[end:], grad_slots)
    saved = [slot for slot in used if slot in before and slot not in inputs]
    forward = tape.part(0, end, list(zip(inputs, tensors, strict=True)), [*result_slots, *saved])
    outputs = forward.call(list(tensors), list(range(results + len(saved))))
    handed, values = outputs[:results], outputs[results:]
    weights = list(constants.values())
    _refuse_aliases(handed, [*tensors, *weights], name)
    _refuse_overlaps([handed[place] for place in shape.with_graph], name)
    used_inputs = tuple(place for place, slot in enumerate(inputs) if slot in used)
    present = [item for item in grads if item is not None]
    given = [
        *zip(saved, values, strict=True),
        *((inputs[place], tensors[place]) for place in used_inputs),
        *zip(of_grads, present, strict=True),
    ]
    slots = [slot for slot, _ in given]

    def record(tensors: Sequence[torch.Tensor]) -> _core.Tape:
        pairs = list(zip(slots, tensors, strict=True))
        return tape.part(end, len(calls), pairs, grad_slots)

    replay = TapeReplay(record([item for _, item in given]))
    replay.places = list(range(len(grad_slots)))
    sums = _sum_memory(values)
    found = replay([item for _, item in given])
    if _sum_memory(values) != sums:  # as oneDNN's layers do, which is no harm
        first = [item.clone() for item in found]  # they may be in that memory
        if not all(map(same_bytes, first, replay([item for _, item in given]))):
            raise UnsupportedError(
                f"cannot capture {name} under autograd: an operator of its backward pass writes "
                "into what the forward pass made, and its schema does not say so: it could not run "
                "twice"
            )
    backward = Backward(
        record=record,
        replay=replay,
        saved=tuple(before[slot] for slot in saved),
        inputs=used_inputs,
        made=shape.made,
        shared=find_shared(found, [*(item for _, item in given), *weights]),
    )
    needed = _list_memory([*values, *(constants[slot] for slot in used if slot in constants)])
    return Passes(
        results=results,
        with_graph=shape.with_graph,
        forward=forward,
        saved=backward.saved,
        saved_on_host=tuple(
            place
            for place, item in zip(backward.saved, values, strict=True)
            if item.device.type == "cpu"
        ),
        views=_find_in(_list_memory(weights), values),
        operators=[call["operator"] for call in calls[:end]],
        backwards={find_layout(grads, shape.cast): backward},
        kept_inputs=tuple(sorted({*used_inputs, *_find_in(needed, tensors)})),
        kept_results=_find_in(needed, handed),
        kept_weights=tuple(weights[place] for place in _find_in(needed, weights)),
        saved_bytes=sum(item.numel() * item.element_size() for item in values),
        state=tuple(constants[slot] for slot in state_slots),
        drawn=tuple(map(Laid.of, present)),
    )


def _list_used(calls: Sequence[Mapping[str, Any]], further: Sequence[int]) -> dict[int, None]:
    """Slots that these calls are given, and further ones."""
    arguments = (argument for call in calls for argument in call["arguments"])
    used = dict.fromkeys(slot for argument in arguments for slot in list_slots(argument))
    return used | dict.fromkeys(further)


def _list_memory(tensors: Iterable[torch.Tensor]) -> set[Any]:
    return {key for item in tensors for key in list_storages(item)}


def _sum_memory(tensors: Iterable[torch.Tensor]) -> list[int]:
    """Numbers that change with what is in their memory, by pieces of it."""
    sums = []
    with torch.no_grad():
        for part in (part for item in tensors for part in list_dense(item)):
            storage = part.untyped_storage()
            dtype = torch.uint8 if storage.nbytes() % 4 else torch.int32
            whole = torch.empty(0, dtype=dtype, device=part.device).set_(storage)
            sums += [piece.sum(dtype=torch.int64) for piece in whole.chunk(_PIECES)]
    return [int(item) for item in sums]


def _find_in(memory: set[Any], tensors: Sequence[torch.Tensor]) -> tuple[int, ...]:
    """Places of those that lie in it."""
    return tuple(place for place, item in enumerate(tensors) if memory & {*list_storages(item)})


def _find_end(calls: Sequence[Mapping[str, Any]], results: set[int]) -> int:
    """Where the backward pass begins: what is handed out is detached right before."""
    return 1 + max(
        index
        for index, call in enumerate(calls)
        if not results.isdisjoint(list_output_slots(call["outputs"]))
    )


def find_shared(
    grads: Sequence[torch.Tensor | None], outside: Sequence[torch.Tensor] = ()
) -> tuple[int, ...]:
    """Places of those that lie in memory of one before, or of what is outside."""
    known = _list_memory(outside)
    found = []
    for place, item in enumerate(grads):
        storages = set() if item is None else {*list_storages(item)}
        if known & storages:
            found.append(place)
        known |= storages
    return tuple(found)


def _list_made(calls: Sequence[Mapping[str, Any]]) -> list[int]:
    return [slot for call in calls for slot in list_output_slots(call["outputs"])]


def _refuse_writes(calls: Sequence[Mapping[str, Any]], before: set[int], name: str) -> None:
    for call in calls:
        if not before.isdisjoint(call["written"]):
            raise UnsupportedError(
                f"cannot capture {name} under autograd: its backward pass writes "
                f"({call['operator']}) into what the forward pass made, so it could not run twice"
            )


def _refuse_aliases(
    results: Sequence[torch.Tensor], outside: Sequence[torch.Tensor], name: str
) -> None:
    for place in _find_in(_list_memory(outside), results):
        raise UnsupportedError(
            f"cannot capture {name} under autograd: its result {place} is a view of an argument or "
            "a weight; return a copy of it (.clone())"
        )


def _refuse_overlaps(results: Sequence[torch.Tensor], name: str) -> None:
    """Where one of two is written, autograd has to know of both."""
    for place, item in enumerate(results):
        if any(_overlap(item, other) for other in results[:place]):
            raise UnsupportedError(
                f"cannot capture {name} under autograd: its results share memory, as one that is "
                "a view of another; return a copy (.clone())"
            )


def _overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    if {*list_storages(one)}.isdisjoint(list_storages(other)):
        return False
    if one.dtype != other.dtype or one.layout != torch.strided:
        return True
    elements = torch.arange(one.untyped_storage().nbytes() // one.element_size())
    is_of_one = torch.zeros_like(elements, dtype=torch.bool)
    is_of_one[elements.as_strided(one.shape, one.stride(), one.storage_offset())] = True
    at = elements.as_strided(other.shape, other.stride(), other.storage_offset())
    return bool(is_of_one[at].any())
