"""Both passes of a call that autograd follows, as CUDA graphs that work in one memory.

What the forward pass saves stays in that memory until its backward pass has run. A call in between
needs other memory: another pair of graphs, or the tape.
"""

from __future__ import annotations

import operator
import weakref
from collections.abc import Sequence
from dataclasses import replace

import torch

from ftax.captures.graph import GraphReplay, check_layouts, find_launch, see_memory
from ftax.captures.passes import Backward, Layout, Passes
from ftax.runtimes.cuda_graph import require_cuda_build
from ftax.runtimes.replays import check_on_both_inputs
from ftax.runtimes.workspace import Workspace
from ftax.steps.tensors import find_memory, make_like
from ftax.tape.capture import (
    CapturedGraph,
    GraphMemory,
    capture_tape,
    refuse_host_outputs,
)
from ftax.tape.tape import preserve_state


class Lease:
    """A call holds the memory for as long as this lives."""

    __slots__ = ("__weakref__",)


class GraphPasses:
    """The graph of a forward pass, and those of its backward passes.

    Attributes:
        inputs: from which they read.
        saved: by the forward pass, by place as in `Passes.saved`.
        backwards: by the layout of the gradients.
        memory_bytes: that the graphs work in, and that of inputs.
    """

    def __init__(self, workspace: Workspace, passes: Passes, inputs: Sequence[torch.Tensor]):
        """Capture both passes on copies of ``inputs``. Raises UnsupportedError for what a graph
        cannot hold."""
        require_cuda_build()
        loaded = workspace.loaded
        check_layouts(inputs, loaded.name)
        self._device = torch.device(loaded.device)
        self._memory = GraphMemory()  # of no other call: its replays would write what is saved
        self._lease: weakref.ref[Lease] | None = None
        self._passes = passes
        self.inputs = [make_like(item) for item in inputs]
        with preserve_state(loaded):
            captured = capture_tape(
                passes.forward.copy(), self.inputs, loaded.device, self._memory,
                prepare=loaded.prepare,
            )  # fmt: skip
        outputs = captured.buffers.outputs
        results = outputs[: passes.results]
        refuse_host_outputs(results, loaded.name)
        self.forward = self._make_replay(captured, results)
        # Of inference mode no more: who goes backward may not be.
        values = [see_memory(i) if i.is_inference() else i for i in outputs[passes.results :]]
        self.saved = dict(zip(passes.saved, values, strict=True))
        self.memory_bytes = 0
        self.backwards: dict[Layout, Backward] = {}
        for layout, backward in passes.backwards.items():
            self.add(layout, backward, [like.make() for like in passes.drawn])
        check_on_both_inputs(workspace, self._run_both, name="the captured graphs")

    def _count_memory(self) -> int:
        pool = self._memory.choose_pool()
        segments = torch.cuda.memory_snapshot()
        of_graphs = [item["total_size"] for item in segments if item["segment_pool_id"] == pool]
        total = sum(item.untyped_storage().nbytes() for item in self.inputs)
        return int(total + sum(of_graphs))

    def add(self, layout: Layout, backward: Backward, grads: Sequence[torch.Tensor]) -> None:
        """Capture one more backward pass, whose gradients lie like these."""
        grads = [make_like(item) for item in grads]
        given = backward.choose(self.saved, self.inputs, grads)
        # Of attention a capture leaves the seed on the device, where other runs would not read it.
        on_host = {place: self.saved[place].cpu() for place in self._passes.saved_on_host}
        rehearsed = backward.choose({**self.saved, **on_host}, self.inputs, grads)
        rehearsal = backward.record(rehearsed)
        rehearsal.bind_inputs(rehearsed)
        captured = capture_tape(
            backward.record(given), given, str(self._device), self._memory, rehearsal=rehearsal
        )
        outputs = captured.buffers.outputs
        refuse_host_outputs(outputs, "this backward pass")
        replay = self._make_replay(captured, outputs)
        self.backwards[layout] = replace(backward, replay=replay)
        self.memory_bytes = self._count_memory()

    def take(self) -> Lease | None:
        """The right to replay; None while a backward pass may still need what is saved."""
        if self._lease is not None and self._lease() is not None:
            return None
        lease = Lease()
        self._lease = weakref.ref(lease)
        return lease

    def close(self) -> None:
        """Wait for what is in flight: its memory must not be freed before."""
        torch.cuda.synchronize(self._device)

    def _make_replay(self, captured: CapturedGraph, results: Sequence[torch.Tensor]) -> GraphReplay:
        inputs = tuple(map(find_memory, captured.buffers.inputs))
        is_expanded = any(map(operator.is_not, inputs, captured.buffers.inputs))
        buffers = replace(captured.buffers, inputs=inputs, outputs=tuple(results))
        captured = replace(captured, buffers=buffers)
        launch = find_launch(captured)
        make = _ExpandedReplay if is_expanded else GraphReplay
        made = make(captured, self._device, launch=launch, borrows=False, memory=self._memory)
        made.places = list(range(len(results)))
        return made

    def _run_both(self, given: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Results and gradients, as the recorded call gives them."""
        tensors, grads = list(given[: len(self.inputs)]), given[len(self.inputs) :]
        results = list(self.forward(tensors))
        (backward,) = self.backwards.values()
        found = backward.run(self.saved, self.inputs, list(grads))
        made = [item for item in found if item is not None]
        return [*results, *made, *self._passes.state]


class _ExpandedReplay(GraphReplay):
    """Of tensors that may be expanded: what of them has memory is copied."""

    def __call__(self, tensors: list[torch.Tensor]) -> Sequence[torch.Tensor]:
        return super().__call__(list(map(find_memory, tensors)))
