"""A call that autograd goes on from: its forward pass is one replay, its backward pass another.

Both are recorded as one call, which is given the gradients of its results too, and cut where the
results are there. What the forward pass makes and the backward pass needs is held by autograd
between the two, as eager's is. Gradients are returned to autograd, which adds them up, so hooks,
clipping, accumulation and DDP work as they do.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

from ftax import _core
from ftax.captures.around import OtherThreads
from ftax.captures.checks import Checked
from ftax.captures.names import list_names
from ftax.captures.program import TENSOR, Program, TapeReplay
from ftax.captures.recorded import Recorded, is_size
from ftax.errors import RunnerError, UnsupportedError
from ftax.steps.loaded import LoadedModel
from ftax.steps.writes import list_storages
from ftax.tape.capture import list_output_slots
from ftax.tape.equality import find_other_bits, measure_spread
from ftax.tape.flow import list_slots

Grads = Sequence[torch.Tensor | None]  # one a result that has a graph
Layout = tuple[Any, ...]
Setting = Callable[[], AbstractContextManager[Any]]


Use = tuple[Any, int]  # a node, and which of its gradients
_MOST_USES = 4  # of a leaf, whose gradients are handed out one by one


class Result(NamedTuple):
    """In the place of a tensor that a call returns: which of them, as one may be there twice."""

    place: int


class FollowedCall(Recorded):
    """The call with its backward pass: the last tensors that it is given are those of ``grads``, of
    its results, that are not None."""

    hands_gradients = True

    def __init__(
        self,
        what: Callable[..., Any],
        *args: Any,
        grads: Grads,
        cast: torch.dtype | None,
        **kwargs: Any,
    ) -> None:
        super().__init__(what, *args, **kwargs)
        self._what, self.original = what, self._run_both
        self._is_given = [grad is not None for grad in grads]
        self.cast = cast  # of torch.autocast around the backward pass
        self._inputs: list[torch.Tensor] = []
        self._grads: Sequence[torch.Tensor] = ()
        self._results: list[torch.Tensor] = []
        self.weights: list[torch.Tensor] = []  # that get gradients
        self.uses: tuple[int, ...] = ()  # of each input and weight, how many
        self.reach: list[list[bool]] = []  # of each result with a graph, to each of these uses
        self.setting: Setting = nullcontext  # enters torch.autocast as it was around the call
        self.result_tree: pytree.TreeSpec | None = None
        self.result_leaves: tuple[Any, ...] = ()
        self.with_graph: tuple[int, ...] = ()  # which results, among those that are tensors

    def __call__(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        """Its results, and the gradients of inputs and weights."""
        count = len(tensors) - sum(self._is_given)
        self._grads = tensors[count:]
        # Leaves: what led to them is not of this call.
        given = [item.detach().requires_grad_(item.requires_grad) for item in tensors[:count]]
        self._inputs = [item for item in given if item.requires_grad]
        return super().__call__(*given)

    def uses_gradients(self, loaded: LoadedModel) -> bool:
        """Its own are handed to autograd."""
        return not {"grad", "backward"}.isdisjoint(list_names(self.executed.codes))

    def _run_both(self, *args: Any, **kwargs: Any) -> Any:
        torch.clear_autocast_cache()  # it has a graph
        first = torch._C._autograd._get_sequence_nr()
        result = self._what(*args, **kwargs)
        watcher = sys.getprofile()  # of the user's code, and of no code of ours
        sys.setprofile(None)
        try:
            roots = self._find_roots(result, first)
            handed = [item.detach() for item in self._results]  # of the forward pass
            device = roots[0].device.type
            self.setting = _note_autocast(device)
            with _without_hooks(self.weights), enter_autocast(device, self.cast):
                every = [self._results[place] for place in self.with_graph]
                leaves = [*self._inputs, *self.weights]
                uses = _list_uses(every, leaves)
                sys.setprofile(watcher)
                found = _differentiate(roots, self._grads, leaves, uses, self.uses)
                sys.setprofile(None)
            return handed, found
        finally:
            sys.setprofile(watcher)

    def _find_roots(self, result: Any, first: int) -> list[torch.Tensor]:
        """The results that gradients come to. ``first``: of the nodes that the call has made."""
        leaves, self.result_tree = pytree.tree_flatten(result, is_leaf=is_size)
        self._results = _list_tensors(result)
        places = {id(item): place for place, item in enumerate(self._results)}
        self.result_leaves = tuple(
            Result(places[id(leaf)]) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves
        )
        pairs = enumerate(self._results)
        self.with_graph = tuple(place for place, item in pairs if item.requires_grad)
        if len(self.with_graph) != len(self._is_given):
            raise UnsupportedError(
                f"cannot capture {self.name}: {len(self.with_graph)} of its results have a graph, "
                f"and {len(self._is_given)} had one before"
            )
        every = [self._results[place] for place in self.with_graph]
        if not self.reach:
            self._note_reach(every, first)
        return [item for item, given in zip(every, self._is_given, strict=True) if given]

    def _note_reach(self, results: Sequence[torch.Tensor], first: int) -> None:
        """To which uses of inputs and weights the graph of each leads."""
        found = [{node: getattr(node, "variable", None) for node in _follow(r)} for r in results]
        every = {node: leaf for nodes in found for node, leaf in nodes.items()}
        if any(leaf is None and node._sequence_nr() < first for node, leaf in every.items()):
            raise UnsupportedError(
                f"cannot capture {self.name} under autograd: it uses a tensor that has a graph "
                "from before the call; give it as an argument, or make it inside"
            )
        known = set(map(id, self._inputs))
        ends = {n: leaf for n, leaf in every.items() if leaf is not None and id(leaf) not in known}
        self.weights = [*ends.values()]
        uses = _list_uses(results, [*self._inputs, *self.weights])
        self.uses = tuple(map(len, uses))
        self.reach = [[node in nodes for used in uses for node, _ in used] for nodes in found]
        hooked = {node for node, leaf in ends.items() if leaf._backward_hooks}
        if hooked and not self._is_alone:
            raise OtherThreads(
                f"cannot capture {self.name}: its weights have hooks, and other threads of this "
                "process may go backward meanwhile"
            )
        if any(not hooked <= nodes.keys() for nodes in found):
            raise UnsupportedError(
                f"cannot capture {self.name} under autograd: a weight that some of its results do "
                "not need has a hook, which autograd would call without a gradient; remove it"
            )


def draw_grads(results: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Gradients of these results, as a loss that is no sum gives them."""
    generator = torch.Generator().manual_seed(0)
    made = []
    with torch.no_grad():
        for item in results:
            values = torch.randn(item.shape, generator=generator, dtype=torch.float32)
            made.append(torch.empty_like(item.detach()).copy_(values))
    return tuple(made)


def _list_uses(results: Sequence[torch.Tensor], leaves: Sequence[torch.Tensor]) -> list[list[Use]]:
    """Of each leaf, in the order in which a backward pass comes by: gradients from elsewhere are
    added up with that of each use, one by one. Where these are many, there is memory for their sum
    alone."""
    nodes = dict.fromkeys(node for item in results for node in _follow(item))
    ends = {node: id(node.variable) for node in nodes if hasattr(node, "variable")}
    found: dict[int, list[Use]] = {id(item): [] for item in leaves}
    for node in sorted(nodes, key=lambda node: node._sequence_nr(), reverse=True):
        for index, (further, _) in enumerate(node.next_functions):
            if (leaf := ends.get(further)) in found:
                found[leaf].append((node, index))
    for end, leaf in ends.items():
        if len(found.get(leaf, ())) > _MOST_USES:
            found[leaf] = [(end, 0)]
    return list(found.values())


def _differentiate(
    roots: Sequence[torch.Tensor],
    grads: Grads,
    leaves: Sequence[torch.Tensor],
    uses: Sequence[Sequence[Use]],
    counts: Sequence[int],
    *,
    keeps: bool = False,
) -> list[torch.Tensor | None]:
    """The gradients of each use of leaves, which were so many when the call was recorded."""
    nodes: dict[Any, dict[Any, Any]] = {}  # which gradients each gave
    nodes |= {node: {} for used in uses if len(used) > 1 for node, _ in used}
    hooks = [node.register_hook(seen.__setitem__) for node, seen in nodes.items()]
    try:
        found = torch.autograd.grad(roots, leaves, grads, retain_graph=keeps, allow_unused=True)
    finally:
        for hook in hooks:
            hook.remove()
    made: list[torch.Tensor | None] = []
    for used, total, count in zip(uses, found, counts, strict=True):
        if len(used) == count > 1:
            given = [(next(iter(nodes[node]), None), index) for node, index in used]
            made += [item and item[index] for item, index in given]
        elif count:
            made += [total, *[None] * (count - 1)]
    return made


def find_cast(device: str) -> torch.dtype | None:
    """To what torch.autocast casts now; None: it is off."""
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None


def enter_autocast(device: str, cast: torch.dtype | None) -> AbstractContextManager[Any]:
    """As it was when `find_cast` gave this."""
    return torch.autocast(device, dtype=cast, enabled=cast is not None)


def _note_autocast(device: str) -> Setting:
    """Enters torch.autocast as it is now."""
    return partial(
        torch.autocast,
        device,
        dtype=torch.get_autocast_dtype(device),
        enabled=torch.is_autocast_enabled(device),
        cache_enabled=torch.is_autocast_cache_enabled(),
    )


def _follow(root: torch.Tensor) -> list[Any]:
    """The nodes of its graph."""
    seen: dict[Any, None] = {}
    queue: list[Any] = [] if root.grad_fn is None else [root.grad_fn]
    while queue:
        node = queue.pop()
        if node not in seen:
            seen[node] = None
            queue += [further for further, _ in node.next_functions if further is not None]
    return list(seen)


@contextmanager
def _without_hooks(tensors: Sequence[torch.Tensor]) -> Iterator[None]:
    """Hooks of weights are called by autograd when it has their gradients, and not before."""
    hooked = [(item, item._backward_hooks) for item in tensors if item._backward_hooks]
    for item, _ in hooked:
        item._backward_hooks = None
    try:
        yield
    finally:
        for item, hooks in hooked:
            item._backward_hooks = hooks


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
        replay: given what was saved, inputs, and gradients.
        saved: what of it, as in `Passes.saved`.
        inputs: which tensors of the call it is given.
        made: of each input and weight that may get a gradient, whether it does.
        shared: which gradients lie in memory of others, or of what the pass is given.
    """

    replay: TapeReplay
    saved: tuple[int, ...]
    inputs: tuple[int, ...]
    made: tuple[bool, ...]
    shared: tuple[int, ...]

    def run(
        self, saved: Mapping[int, torch.Tensor], tensors: Sequence[torch.Tensor], grads: Grads
    ) -> list[torch.Tensor | None]:
        """The gradients of inputs and weights."""
        given = [saved[place] for place in self.saved]
        given += [tensors[place] for place in self.inputs]
        given += [item for item in grads if item is not None]
        made = list(self.replay(given))
        for place in self.shared:  # autograd keeps what it is given, and adds to it in its place
            made[place] = made[place].clone()
        found = iter(made)
        return [next(found) if is_made else None for is_made in self.made]


@dataclass(slots=True, kw_only=True, eq=False)
class Passes:
    """Both passes of a call.

    Attributes:
        results: how many tensors it returns.
        saved: what the backward pass needs, which follows the results: places among all that the
            calls of the forward pass make.
        views: which of them are views of weights.
        operators: of the forward pass.
        backwards: by the layout of the gradients.
        kept: inputs and weights whose values the backward pass needs as they were.
        saved_bytes: that a call holds until its backward pass, beside inputs and weights.
        drawn: how the gradients lie that were drawn first.
    """

    results: int
    with_graph: tuple[int, ...]
    forward: _core.Tape
    saved: tuple[int, ...]
    views: tuple[int, ...]
    operators: list[str]
    backwards: dict[Layout, Backward]
    kept_inputs: tuple[int, ...]
    kept_results: tuple[int, ...]
    kept_weights: tuple[torch.Tensor, ...]
    saved_bytes: int
    drawn: tuple[Laid, ...]


def cut(
    tape: _core.Tape,
    tensors: Sequence[torch.Tensor],
    grads: Grads,
    recorded: FollowedCall,
    name: str,
) -> Passes:
    """The two passes of a recording of both. Runs each of them once."""
    calls = tape.calls
    count = len(tensors)
    inputs, of_grads = tape.input_slots[:count], tape.input_slots[count:]
    results = 1 + max(leaf.place for leaf in recorded.result_leaves if isinstance(leaf, Result))
    made = tuple(leaf is TENSOR for leaf in recorded.leaves[results:])
    result_slots = tape.output_slots[:results]
    first = _find_end(calls, set(result_slots))
    grad_slots = tape.output_slots[results : results + sum(made)]
    constants = dict(tape.constants)
    before = {slot: place for place, slot in enumerate(_list_made(calls[:first]))}
    used = dict.fromkeys(
        slot
        for call in calls[first:]
        for argument in call["arguments"]
        for slot in list_slots(argument)
    )
    used |= dict.fromkeys(grad_slots)
    saved = tuple(slot for slot in used if slot in before and slot not in inputs)
    used_inputs = tuple(place for place, slot in enumerate(inputs) if slot in used)
    _refuse_writes(calls[first:], {*before, *inputs, *constants}, name)
    given = list(zip(inputs, tensors, strict=True))
    forward = tape.part(0, first, given, [*result_slots, *saved])
    outputs = forward.call(list(tensors), list(range(results + len(saved))))
    values = outputs[results:]
    _refuse_aliases(outputs[:results], [*tensors, *constants.values()], name)
    _refuse_overlaps([outputs[place] for place in recorded.with_graph], name)
    present = [item for item in grads if item is not None]
    given = [*zip(saved, values, strict=True)]
    given += [(inputs[place], tensors[place]) for place in used_inputs]
    given += zip(of_grads, present, strict=True)
    backward = tape.part(first, len(calls), given, grad_slots)
    replay = TapeReplay(backward)
    replay.places = list(range(len(grad_slots)))
    outside = [item for _, item in given] + list(constants.values())
    shared = _find_shared(replay([item for _, item in given]), outside)
    needed = {key for item in values for key in list_storages(item)}
    weights = [constants[slot] for slot in used if slot in constants]
    needed |= {key for item in weights for key in list_storages(item)}

    def list_kept(items: Sequence[torch.Tensor]) -> tuple[int, ...]:
        return tuple(place for place, item in enumerate(items) if needed & {*list_storages(item)})

    every = list(constants.values())
    of_weights = {key for item in every for key in list_storages(item)}
    views = tuple(place for place, item in enumerate(values) if of_weights & {*list_storages(item)})
    return Passes(
        results=results,
        with_graph=recorded.with_graph,
        forward=forward,
        saved=tuple(before[slot] for slot in saved),
        views=views,
        operators=[call["operator"] for call in calls[:first]],
        backwards={
            find_layout(grads, recorded.cast): Backward(
                replay=replay,
                saved=tuple(before[slot] for slot in saved),
                inputs=used_inputs,
                made=made,
                shared=shared,
            )
        },
        kept_inputs=tuple(sorted({*used_inputs, *list_kept(tensors)})),
        kept_results=list_kept(outputs[:results]),
        kept_weights=tuple(every[place] for place in list_kept(every)),
        saved_bytes=sum(item.numel() * item.element_size() for item in values),
        drawn=tuple(map(Laid.of, present)),
    )


def _find_end(calls: Sequence[Mapping[str, Any]], results: set[int]) -> int:
    """Where the backward pass begins: what is handed out is detached right before."""
    return 1 + max(
        index
        for index, call in enumerate(calls)
        if not results.isdisjoint(list_output_slots(call["outputs"]))
    )


def _find_shared(
    grads: Sequence[torch.Tensor | None], outside: Sequence[torch.Tensor] = ()
) -> tuple[int, ...]:
    """Places of those that lie in memory of one before, or of what is outside."""
    known = {key for item in outside for key in list_storages(item)}
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
    known = {key for item in outside for key in list_storages(item)}
    for place, item in enumerate(results):
        if known & {*list_storages(item)}:
            raise UnsupportedError(
                f"cannot capture {name} under autograd: its result {place} is a view of an "
                "argument or a weight; return a copy of it (.clone())"
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


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class FollowedProgram(Program):
    """A recorded call that autograd goes on from.

    Attributes:
        passes: of it.
        name: of what is captured, in messages.
        weights: that may get gradients, after the inputs.
        uses: of each input and weight that may get a gradient, how many.
        reach: of each result with a graph, whether its gradient leads to each of these uses.
        setting: enters torch.autocast as it was around the call.
        find_backward: records a backward pass for gradients of another layout; gives None where it
            cannot, and has said so.
        difference: how gradients of a replay were found to differ from the original's, in words.
    """

    passes: Passes
    name: str
    weights: tuple[torch.Tensor, ...]
    uses: tuple[int, ...]
    reach: Sequence[Sequence[bool]]
    setting: Setting
    find_backward: (
        Callable[[FollowedProgram, list[torch.Tensor], Grads], Backward | None] | None
    ) = None
    difference: str = ""
    _followed: tuple[int, ...] = field(init=False)  # which tensors of a call get gradients
    _leaves: tuple[torch.Tensor, ...] = field(init=False)  # weights, as often as they are used
    _like: tuple[Laid, ...] = field(init=False)  # of those that it was recorded with
    _unsure: tuple[int, ...] = field(init=False)  # leaves to which some results do not lead

    def __post_init__(self) -> None:
        given = self.given
        super(FollowedProgram, self).__post_init__()
        places = [place for place, item in enumerate(given) if item.requires_grad]
        of_inputs = zip(places, self.uses, strict=False)
        self._followed = tuple(place for place, count in of_inputs for _ in range(count))
        of_weights = zip(self.weights, self.uses[len(places) :], strict=True)
        self._leaves = tuple(weight for weight, count in of_weights for _ in range(count))
        self._like = tuple(map(Laid.of, given))
        self._unsure = tuple(self._list_unsure())

    def _list_unsure(self) -> Iterator[int]:
        """Of each leaf that some results do not lead to, the first place."""
        first = 0
        for count in self.uses:
            if not all(any(leads[first : first + count]) for leads in self.reach) and count:
                yield first
            first += count

    def make_input(self, place: int) -> torch.Tensor:
        """One of zeros, laid out as that of a call."""
        return self._like[place].make()

    def is_like(self, other: FollowedProgram) -> bool:
        """Whether the forward pass is the same, so that what it saves can be used."""
        mine, others = self.passes, other.passes
        same_weights = [*map(id, self.weights)] == [*map(id, other.weights)]
        has_all = {*others.saved} <= {*mine.saved}
        return mine.operators == others.operators and has_all and same_weights

    @property
    def has_hooks(self) -> bool:
        """Weights have."""
        return any(item._backward_hooks for item in self.weights)

    def takes(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Autograd saves none of inference mode. It calls hooks of all to which a node leads, and
        eager's nodes do not lead there if a loss is of some results only."""
        if any(item.is_inference() for item in tensors):
            return False
        if self._unsure:
            leaves = self.list_leaves(tensors)
            if any(leaves[place]._backward_hooks for place in self._unsure):
                return False
        return super(FollowedProgram, self).takes(tensors)

    def run(self, tensors: list[torch.Tensor]) -> Any:
        """What the call returns, with a graph of one node."""
        results = _Replayed.apply(self, tensors, *self.list_leaves(tensors))  # type: ignore[no-untyped-call]
        return self.hand_out(results)

    def list_leaves(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Inputs and weights to which gradients go, as often as they are used."""
        return [*(tensors[place] for place in self._followed), *self._leaves]

    def hand_out(self, results: Sequence[torch.Tensor]) -> Any:
        """The structure that the original returns."""
        leaves = [results[leaf.place] if isinstance(leaf, Result) else leaf for leaf in self.leaves]
        return pytree.tree_unflatten(leaves, self.tree)

    def run_backward(
        self, saved: Mapping[int, torch.Tensor], tensors: list[torch.Tensor], grads: Grads
    ) -> list[torch.Tensor | None]:
        """Gradients of `list_leaves`."""
        if all(item is None for item in grads):
            return [None] * len(self.reach[0])
        device, known = self.passes.drawn[0].device.type, self.passes.backwards
        cast = find_cast(device)
        layout = find_layout(grads, cast)
        if layout not in known and self.find_backward:
            backward = self.find_backward(self, tensors, grads)
            if backward is not None:
                known[layout] = backward
        with nullcontext() if cast is None else enter_autocast(device, None):
            if layout in known:
                return known[layout].run(saved, tensors, grads)
            return self._run_as_drawn(saved, tensors, grads)

    def _run_as_drawn(
        self, saved: Mapping[int, torch.Tensor], tensors: list[torch.Tensor], grads: Grads
    ) -> list[torch.Tensor | None]:
        """By the backward pass recorded first: the same values, summed another way maybe."""
        pairs = list(zip(grads, self.passes.drawn, strict=True))
        laid = [like.make() if grad is None else like.make().copy_(grad) for grad, like in pairs]
        backward = self.passes.backwards[find_layout(laid, None)]
        found = backward.run(saved, tensors, laid)
        given = zip(self.reach, grads, strict=True)
        led = [
            any(ends)
            for ends in zip(*(ends for ends, grad in given if grad is not None), strict=True)
        ]
        return [item if is_led else None for item, is_led in zip(found, led, strict=True)]

    def note_times(self, replay_ns: int, original_ns: int) -> None:
        """Of a forward pass alone: its backward pass will tell of both."""

    def separate(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        """Leaves: gradients of a call are none of what led to it."""
        return [item.detach().requires_grad_(item.requires_grad) for item in tensors]

    def follow(
        self,
        tensors: list[torch.Tensor],
        given: list[torch.Tensor],
        checked: Checked,
        unchecked: int,
    ) -> Any:
        """The original's result, whose backward pass compares its gradients with those of the
        replay. ``given``: what both were given in the place of the tensors; ``unchecked``: replays
        since the last check."""
        leaves = self.list_leaves(tensors)
        inner = [*(item for item in given if item.requires_grad), *self.weights]
        found = _Compared.apply(self, checked, unchecked, inner, *leaves)  # type: ignore[no-untyped-call]
        return self.hand_out(found)


def make_followed(
    passes: Passes, recorded: FollowedCall, facts: Mapping[str, Any]
) -> FollowedProgram:
    """The program of both passes."""
    if recorded.result_tree is None:
        raise RunnerError("the call was never made")
    replay = TapeReplay(passes.forward)
    replay.places = list(range(passes.results + len(passes.saved)))
    return FollowedProgram(
        replay=replay, tree=recorded.result_tree, leaves=recorded.result_leaves, passes=passes,
        name=recorded.name,
        weights=tuple(recorded.weights), uses=recorded.uses,
        reach=recorded.reach, setting=recorded.setting, **facts,
    )  # fmt: skip


class _Barred(torch.autograd.Function):
    """Gradients of a replay, with a graph that raises: also where it is asked for what ``links``
    lead to."""

    @staticmethod
    def forward(
        ctx: Any, name: str, found: list[torch.Tensor], *links: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        ctx.name = name
        return tuple(item.detach() for item in found)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor | None) -> Any:
        raise UnsupportedError(
            f"the capture of {ctx.name} cannot be differentiated twice (create_graph=True): a "
            "replay has no graph of its backward pass; call its original"
        )


def _once(backward: Callable[..., Any]) -> Callable[..., Any]:
    """A backward pass that autograd cannot go on from."""

    def run(ctx: Any, *grads: torch.Tensor | None) -> Any:
        name = ctx.program.name
        present = [item for item in grads if item is not None]
        if any(map(torch._C._functorch.is_legacy_batchedtensor, present)):
            raise UnsupportedError(
                f"the backward pass of the capture of {name} is given a batch of gradients (by "
                "is_grads_batched, or vectorize), which a replay cannot take: call its original"
            )
        with torch.no_grad():
            found = backward(ctx, *grads)
        if torch.is_grad_enabled():
            made = [item for item in found if item is not None]
            barred = iter(_Barred.apply(name, made, *present, *ctx.links))  # type: ignore[no-untyped-call]
            found = tuple(item if item is None else next(barred) for item in found)
        if not torch._C._autograd._get_current_graph_task_keep_graph():
            ctx.links = ()
        return found

    return run


class _Replayed(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, program: FollowedProgram, tensors: list[torch.Tensor], *leaves: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        passes = program.passes
        outputs = program.replay(tensors)
        results, saved = list(outputs[: passes.results]), list(outputs[passes.results :])
        for place in passes.views:  # or torch minds that the weight is written later
            saved[place] = saved[place].detach()
        ctx.program, ctx.links, ctx.count = program, leaves, len(tensors)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(
            *(item for place, item in enumerate(results) if place not in passes.with_graph)
        )
        # Autograd refuses a backward pass where one of these was written meanwhile.
        ctx.save_for_backward(
            *saved,
            *(tensors[place] for place in passes.kept_inputs),
            *(results[place] for place in passes.kept_results),
            *passes.kept_weights,
        )
        return tuple(results)

    @staticmethod
    @_once
    def backward(ctx: Any, *grads: torch.Tensor | None) -> Any:
        program: FollowedProgram = ctx.program
        passes = program.passes
        kept = ctx.saved_tensors
        saved = dict(zip(passes.saved, kept, strict=False))
        tensors: list[Any] = [None] * ctx.count
        for place, item in zip(passes.kept_inputs, kept[len(saved) :], strict=False):
            tensors[place] = item
        given = [grads[place] for place in passes.with_graph]
        return None, None, *program.run_backward(saved, tensors, given)


class _Compared(torch.autograd.Function):
    """The original's results, and beside them the replay's."""

    @staticmethod
    def forward(
        ctx: Any,
        program: FollowedProgram,
        checked: Checked,
        unchecked: int,
        inner: list[torch.Tensor],
        *leaves: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        ctx.program, ctx.links, ctx.leaves = program, leaves, inner
        ctx.unchecked = unchecked
        ctx.save_for_backward(torch.empty(0))  # for torch to notice a second backward pass
        ctx.replayed, ctx.results = _list_tensors(checked.replayed), _list_tensors(checked.result)
        ctx.forward_ns = checked.replay_ns, checked.original_ns
        ctx.set_materialize_grads(False)
        found = tuple(item.detach() for item in ctx.results)
        pairs = zip(found, ctx.results, strict=True)
        ctx.mark_non_differentiable(*(mine for mine, item in pairs if not item.requires_grad))
        return found

    @staticmethod
    @_once
    def backward(ctx: Any, *grads: torch.Tensor | None) -> Any:
        program: FollowedProgram = ctx.program
        places = [place for place in program.passes.with_graph if grads[place] is not None]
        _ = ctx.saved_tensors
        if not places:
            return None, None, None, None, *(None for _ in ctx.links)

        def run(results: list[torch.Tensor]) -> list[torch.Tensor | None]:
            roots = [results[place] for place in places]
            given = [grads[place] for place in places]
            every = [results[place] for place in program.passes.with_graph]
            uses = _list_uses(every, ctx.leaves)
            with _without_hooks(program.weights):
                return _differentiate(roots, given, ctx.leaves, uses, program.uses, keeps=True)

        start = time.perf_counter_ns()
        found = run(ctx.results)
        middle = time.perf_counter_ns()
        # Both calls have written what the replay had saved, and torch minds: compare nothing.
        with suppress(RuntimeError) if program.written else nullcontext():
            replayed = run(ctx.replayed)
            replay_ns, original_ns = ctx.forward_ns
            program.schedule.time(
                replay_ns + time.perf_counter_ns() - middle, original_ns + middle - start
            )
            if not program.difference:
                program.difference = _compare(found, replayed, lambda: run(ctx.results))
                program.schedule.unchecked += ctx.unchecked if program.difference else 0
        if not torch._C._autograd._get_current_graph_task_keep_graph():
            ctx.results = ctx.replayed = ()
        for place in _find_shared(found):
            found[place] = found[place].clone()  # type: ignore[union-attr]
        return None, None, None, None, *found


def _list_tensors(result: Any) -> list[torch.Tensor]:
    """Each once."""
    leaves = pytree.tree_leaves(result, is_leaf=is_size)
    return list({id(leaf): leaf for leaf in leaves if isinstance(leaf, torch.Tensor)}.values())


def _compare(wanted: Grads, found: Grads, run_again: Callable[[], Grads]) -> str:
    """How gradients differ, in words; "" where they do not, or where the original's own do."""
    for place, (mine, other) in enumerate(zip(wanted, found, strict=True)):
        if mine is None or other is None:
            if mine is not other:
                return f"gradient {place} is {'there' if mine is None else 'missing'}"
        elif find_other_bits([mine], [other], {}):
            again = run_again()[place]
            spread = {} if again is None else measure_spread([mine], [[again]])
            if find_other_bits([mine], [other], spread):
                return f"gradient {place} has other values"
    return ""
