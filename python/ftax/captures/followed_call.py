"""A call that is run with its backward pass, as a recording of both needs it.

It is given the gradients of its results too, and gives those of its inputs and weights: of an input
or weight one for each use, since autograd adds them up one by one with what comes from elsewhere.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

from ftax.captures.around import OtherThreads
from ftax.captures.names import list_names
from ftax.captures.passes import Grads, Shape
from ftax.captures.program import TENSOR
from ftax.captures.recorded import Recorded, is_size
from ftax.captures.returned_reads import Call, Number
from ftax.errors import UnsupportedError
from ftax.steps.loaded import LoadedModel

Setting = Callable[[], AbstractContextManager[Any]]


Use = tuple[Any, int]  # a node, and which of its gradients


_MOST_USES = 4  # of a leaf, whose gradients are handed out one by one


class Result(NamedTuple):
    """In the place of a tensor that a call returns: which of them, as one may be there twice; of a
    number, how it is read of one."""

    place: int
    convert: Callable[[torch.Tensor], Any] | None = None


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
        call: Call | None,
        **kwargs: Any,
    ) -> None:
        super().__init__(what, *args, **kwargs)
        self._what, self.original = what, self._run_both
        self.call = call  # by which numbers that it returns are read later
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

    @property
    def shape(self) -> Shape:
        """What it gave."""
        results = len(self._results)
        return Shape(
            results=results,
            with_graph=self.with_graph,
            made=tuple(leaf is TENSOR for leaf in self.leaves[results:]),
            cast=self.cast,
        )

    def uses_gradients(self, loaded: LoadedModel) -> bool:
        """Its own are handed to autograd."""
        return not {"grad", "backward"}.isdisjoint(list_names(self.executed.codes))

    def find_returned_reads(self, run: Callable[[], None], device: str) -> None:
        """They were found before it was known that autograd goes on."""

    def _run_both(self, *args: Any, **kwargs: Any) -> Any:
        torch.clear_autocast_cache()  # it has a graph
        first = torch._C._autograd._get_sequence_nr()
        if self.call is None or self.is_watched:  # for code of the user's alone
            result = self._what(*args, **kwargs)
        else:
            result = self.call(self._what, args, kwargs)
        watcher = sys.getprofile()  # of the user's code, and of no code of ours
        sys.setprofile(None)
        try:
            roots = self._find_roots(result, first)
            every = [self._results[place] for place in self.with_graph]
            handed = [item.detach() for item in self._results]  # of the forward pass
            self._results = handed  # which keep no graph
            device = roots[0].device.type
            self.setting = _note_autocast(device)
            with without_hooks(self.weights), enter_autocast(device, self.cast):
                leaves = [*self._inputs, *self.weights]
                uses = list_uses(every, leaves)
                sys.setprofile(watcher)
                found = differentiate(roots, self._grads, leaves, uses, self.uses)
                sys.setprofile(None)
            return handed, found
        finally:
            sys.setprofile(watcher)

    def _find_roots(self, result: Any, first: int) -> list[torch.Tensor]:
        """The results that gradients come to. ``first``: of the nodes that the call has made."""
        leaves, self.result_tree = pytree.tree_flatten(result, is_leaf=is_size)
        self._results = list_tensors(result)
        places = {id(item): place for place, item in enumerate(self._results)}
        self.result_leaves = tuple(_describe_leaf(leaf, places) for leaf in leaves)
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
        uses = list_uses(results, [*self._inputs, *self.weights])
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


def list_uses(results: Sequence[torch.Tensor], leaves: Sequence[torch.Tensor]) -> list[list[Use]]:
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


def differentiate(
    roots: Sequence[torch.Tensor],
    grads: Grads,
    leaves: Sequence[torch.Tensor],
    uses: Sequence[Sequence[Use]],
    counts: Sequence[int],
) -> list[torch.Tensor | None]:
    """The gradients of each use of leaves, which were so many when the call was recorded.

    The graph is kept: without it, backward passes of cuDNN's recurrent layers write into what the
    forward pass has saved, and a replay may need it twice.
    """
    nodes: dict[Any, dict[Any, Any]] = {}  # which gradients each gave
    nodes |= {node: {} for used in uses if len(used) > 1 for node, _ in used}
    hooks = [node.register_hook(seen.__setitem__) for node, seen in nodes.items()]
    try:
        found = torch.autograd.grad(roots, leaves, grads, retain_graph=True, allow_unused=True)
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
def without_hooks(tensors: Sequence[torch.Tensor]) -> Iterator[None]:
    """Hooks of weights are called by autograd when it has their gradients, and not before."""
    hooked = [(item, item._backward_hooks) for item in tensors if item._backward_hooks]
    for item, _ in hooked:
        item._backward_hooks = None
    try:
        yield
    finally:
        for item, hooks in hooked:
            item._backward_hooks = hooks


def _describe_leaf(leaf: Any, places: Mapping[int, int]) -> Any:
    if isinstance(leaf, Number):
        return Result(places[id(leaf.tensor)], leaf.convert)
    return Result(places[id(leaf)]) if isinstance(leaf, torch.Tensor) else leaf


def list_tensors(result: Any) -> list[torch.Tensor]:
    """Each once; those of which numbers are read come last."""
    leaves = pytree.tree_leaves(result, is_leaf=is_size)
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    tensors += [leaf.tensor for leaf in leaves if isinstance(leaf, Number)]
    return list({id(item): item for item in tensors}.values())
