"""A call that autograd goes on from: its forward pass is one replay, its backward pass another.

Between the two autograd holds what the backward pass needs, as eager's would. Gradients go to
autograd, which adds them up, so hooks, clipping, accumulation and DDP work as they do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ftax.captures.checks import Checked
from ftax.captures.followed_call import (
    FollowedCall,
    Result,
    Setting,
    differentiate,
    enter_autocast,
    find_cast,
    list_tensors,
    list_uses,
    without_hooks,
)
from ftax.captures.graph import GraphPasses, Lease
from ftax.captures.passes import (
    Backward,
    Grads,
    Laid,
    Layout,
    Passes,
    find_layout,
    find_shared,
)
from ftax.captures.program import Program, TapeReplay
from ftax.captures.returned_reads import Call
from ftax.errors import FtaxError, RunnerError, UnsupportedError
from ftax.tape.equality import find_other_bits, measure_spread


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
        call: by which numbers that it returns are read later.
        difference: how gradients of a replay were found to differ from the original's, in words.
        graphs: CUDA graphs of both passes, each pair for one call that waits for its backward pass;
            of further calls, and where there are none, the tape is replayed.
        from_tape: calls for which no pair was free.
    """

    passes: Passes
    name: str
    weights: tuple[torch.Tensor, ...]
    uses: tuple[int, ...]
    reach: Sequence[Sequence[bool]]
    setting: Setting
    call: Call | None
    find_backward: (
        Callable[[FollowedProgram, list[torch.Tensor], Grads], Backward | None] | None
    ) = None
    difference: str = ""
    graphs: list[GraphPasses] = field(default_factory=list)
    from_tape: int = 0
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

    @property
    def memory_bytes(self) -> int:
        """That it holds, about."""
        return self.replay.memory_bytes + sum(item.memory_bytes for item in self.graphs)

    def close(self) -> None:
        """Before it is let go of."""
        for item in self.graphs:
            item.close()

    def take_graphs(self) -> tuple[GraphPasses, Lease] | tuple[None, None]:
        """A pair that no call holds."""
        for item in self.graphs:
            if lease := item.take():
                return item, lease
        self.from_tape += bool(self.graphs)
        return None, None

    @property
    def contents(self) -> str:
        """What is replayed, and held in between."""
        forward = len(self.passes.operators)
        return (
            f"{self.kind} of {forward} operator calls, and {self.operators - forward} of the "
            f"backward pass (without one: torch.inference_mode()), for which a call holds "
            f"{self.passes.saved_bytes:,} bytes"
        )

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
    def can_repeat(self) -> bool:
        """A graph's memory is held until the backward pass."""
        return super(FollowedProgram, self).can_repeat and not self.graphs

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

    def hand_out(self, results: Sequence[torch.Tensor], original: Any = None) -> Any:
        """The structure that the original returns; with the numbers of ``original``, if it ran."""
        numbers = self.leaves if original is None else self.tree.flatten_up_to(original)
        leaves = []
        for leaf, number in zip(self.leaves, numbers, strict=True):
            if not isinstance(leaf, Result):
                leaves.append(leaf)
            elif leaf.convert is None:
                leaves.append(results[leaf.place])
            elif original is None:
                leaves.append(leaf.convert(results[leaf.place]))
            else:
                leaves.append(number)
        return pytree.tree_unflatten(leaves, self.tree)

    def run_backward(
        self,
        saved: Mapping[int, torch.Tensor],
        tensors: list[torch.Tensor],
        grads: Grads,
        graphs: GraphPasses | None,
    ) -> list[torch.Tensor | None]:
        """Gradients of `list_leaves`. ``graphs``: which hold what was saved."""
        if all(item is None for item in grads):
            return [None] * len(self.reach[0])
        device = self.passes.drawn[0].device.type
        cast = find_cast(device)
        layout = find_layout(grads, cast)
        if layout not in self.passes.backwards and self.find_backward:
            backward = self.find_backward(self, tensors, grads)
            if backward is not None:
                self._add_backward(layout, backward, grads)
        with nullcontext() if cast is None else enter_autocast(device, None):
            if backward := self._choose_backward(layout, graphs):
                return backward.run(saved, tensors, grads)
            return self._run_as_drawn(saved, tensors, grads, graphs)

    def _add_backward(self, layout: Layout, backward: Backward, grads: Grads) -> None:
        self.passes.backwards[layout] = backward
        present = [item for item in grads if item is not None]
        for item in self.graphs:
            with suppress(FtaxError):  # the first backward pass does it then
                item.add(layout, backward, present)

    def _choose_backward(self, layout: Layout, graphs: GraphPasses | None) -> Backward | None:
        """Of a graph another graph: a tape would look for a seed of attention on the host."""
        return (graphs or self.passes).backwards.get(layout)

    def _run_as_drawn(
        self,
        saved: Mapping[int, torch.Tensor],
        tensors: list[torch.Tensor],
        grads: Grads,
        graphs: GraphPasses | None,
    ) -> list[torch.Tensor | None]:
        """By the backward pass recorded first: the same values, summed another way maybe."""
        pairs = list(zip(grads, self.passes.drawn, strict=True))
        laid = [like.make() if grad is None else like.make().copy_(grad) for grad, like in pairs]
        backward = self._choose_backward(find_layout(laid, None), graphs)
        if backward is None:
            raise RunnerError(f"the capture of {self.name} has lost its backward pass")
        found = backward.run(saved, tensors, laid)
        given = zip(self.reach, grads, strict=True)
        led = [
            any(ends)
            for ends in zip(*(ends for ends, grad in given if grad is not None), strict=True)
        ]
        return [item if is_led else None for item, is_led in zip(found, led, strict=True)]

    def note_times(self, replay_ns: int, original_ns: int) -> None:
        """Of a forward pass alone: its backward pass will tell of both."""

    def read_clock(self) -> int:
        """When all that was begun has ended, in ns."""
        if self.kind == "graph":
            torch.cuda.synchronize()
        return time.perf_counter_ns()

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
        return self.hand_out(found, checked.result)


def make_followed(
    passes: Passes,
    recorded: FollowedCall,
    facts: Mapping[str, Any],
    graphs: list[GraphPasses],
) -> FollowedProgram:
    """The program of both passes."""
    if recorded.result_tree is None:
        raise RunnerError("the call was never made")
    replay = TapeReplay(passes.forward)
    replay.places = list(range(passes.results + len(passes.saved)))
    return FollowedProgram(
        replay=replay, tree=recorded.result_tree, leaves=recorded.result_leaves, passes=passes,
        name=recorded.name, graphs=graphs,
        weights=tuple(recorded.weights), uses=recorded.uses,
        reach=recorded.reach, setting=recorded.setting, call=recorded.call, **facts,
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
        ctx.graphs, ctx.lease = program.take_graphs()
        if ctx.graphs:
            results = list(ctx.graphs.forward(tensors))
            saved = [torch.empty(0)]  # for torch to notice a second backward pass
        else:
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
        passes, graphs = program.passes, ctx.graphs
        kept = ctx.saved_tensors
        given = [grads[place] for place in passes.with_graph]
        if graphs:
            found = program.run_backward(graphs.saved, graphs.inputs, given, graphs)
            if not torch._C._autograd._get_current_graph_task_keep_graph():
                ctx.lease = None
            return None, None, *found
        saved = dict(zip(passes.saved, kept, strict=False))
        tensors: list[Any] = [None] * ctx.count
        for place, item in zip(passes.kept_inputs, kept[len(saved) :], strict=False):
            tensors[place] = item
        return None, None, *program.run_backward(saved, tensors, given, None)


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
        ctx.replayed, ctx.results = list_tensors(checked.replayed), list_tensors(checked.result)
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
            uses = list_uses(every, ctx.leaves)
            with without_hooks(program.weights):
                return differentiate(roots, given, ctx.leaves, uses, program.uses)

        start = program.read_clock()
        found = run(ctx.results)
        middle = program.read_clock()
        # Both calls have written what the replay had saved, and torch minds: compare nothing.
        with suppress(RuntimeError) if program.written else nullcontext():
            replayed = run(ctx.replayed)
            replay_ns, original_ns = ctx.forward_ns
            program.schedule.time(
                replay_ns + program.read_clock() - middle, original_ns + middle - start
            )
            if not program.difference:
                program.difference = _compare(found, replayed, lambda: run(ctx.results))
                program.schedule.unchecked += ctx.unchecked if program.difference else 0
        if not torch._C._autograd._get_current_graph_task_keep_graph():
            ctx.results = ctx.replayed = ()
        for place in find_shared(found):
            found[place] = found[place].clone()  # type: ignore[union-attr]
        return None, None, None, None, *found


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
