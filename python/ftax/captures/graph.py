"""The replay of a captured call on a GPU: one CUDA graph of the tape's kernels, several with
collectives between them, or one for each pass of a call that autograd follows.

Results are copies unless a call asks to borrow: a graph writes each result where it wrote the one
before. All graphs of one capture work in the same memory, so replays wait for each other; but what
a forward pass saves stays in memory of its own until its backward pass has run, and a call in
between needs another pair of graphs, or the tape.

A model that makes a mask on the host, or indexes by a list, copies it to the GPU each time. A graph
cannot hold a copy from memory that dies with the call, and need not: the tape shows that nothing in
it depends on inputs, state or random numbers. What such a copy gives is kept from one run, so that
the graph computes less than the original does.
"""

from __future__ import annotations

import functools
import operator
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from ftax import _core
from ftax.captures.passes import Backward, Layout, Passes
from ftax.errors import UnsupportedError
from ftax.runtimes.candidates import check_on_both_inputs
from ftax.runtimes.cuda_graph import require_cuda_build
from ftax.runtimes.workspace import Workspace
from ftax.steps.input_trees import flatten_tensors
from ftax.steps.loaded import LoadedModel
from ftax.steps.tensors import find_memory, make_like
from ftax.steps.writes import find_storage
from ftax.tape.capture import (
    CapturedGraph,
    GraphMemory,
    capture,
    capture_tape,
    moves_data,
    refuse_host_outputs,
    replay_each,
)
from ftax.tape.flow import Flow, list_output_slots, list_slots
from ftax.tape.tape import preserve_state

# They copy what they are given from the host to the device by themselves.
_COPYING = ("aten::index", "aten::index_put", "aten::index_put_", "aten::copy_")

_MASKS = (torch.bool, torch.uint8)

Place = tuple[int, int, torch.Tensor]  # a call, a slot, and what is in it in every run


def make_graph_replay(
    workspace: Workspace, tape: _core.Tape, memory: GraphMemory, *, borrows: bool
) -> GraphReplay:
    """Capture ``tape`` on inputs of its own, in ``memory``, and hold it against eager on both
    inputs.

    Raises UnsupportedError for what a graph cannot hold, and UnavailableError without CUDA.
    """
    require_cuda_build()
    loaded = workspace.loaded
    device = torch.device(loaded.device)
    before = torch.cuda.memory_reserved(device)
    check_layouts(loaded.flat_inputs(), loaded.name)
    inputs = [make_like(item) for item in loaded.flat_inputs()]
    tape = bake_transfers(loaded, tape)
    captured = capture(loaded, workspace.taped, tape=tape, inputs=inputs, memory=memory)
    launch = find_launch(captured)
    replay = GraphReplay(captured, device, launch=launch, borrows=borrows, memory=memory)
    replay.memory_bytes = max(0, torch.cuda.memory_reserved(device) - before)
    replay.places = list(range(len(workspace.reference)))
    check_on_both_inputs(workspace, lambda given: replay(list(given)), name="the captured graph")
    return replay


def find_launch(captured: CapturedGraph) -> Callable[[], object]:
    """torch's own replay where random numbers have to move on, for which it runs two kernels more;
    else the launch alone."""
    if captured.draws_random:
        return functools.partial(replay_each, captured.pieces)
    return captured.drive("capture").enqueue


def check_layouts(inputs: Sequence[torch.Tensor], name: str) -> None:
    """Raises UnsupportedError for inputs that a graph cannot have memory of its own for."""
    for place, item in enumerate(inputs):
        if any(
            size > 1 and not stride for size, stride in zip(item.size(), item.stride(), strict=True)
        ):
            raise UnsupportedError(
                f"cannot capture {name} as a graph: input {place} is expanded, several of its "
                "elements being one in memory: give it contiguous, or kind='tape'"
            )
    if len({find_storage(item) for item in inputs}) < len(inputs):
        raise UnsupportedError(
            f"cannot capture {name} as a graph: two of its inputs share memory, and a graph reads "
            "from memory of its own: give tensors of their own, or kind='tape'"
        )


class GraphReplay:
    """Copies inputs to where the graph reads them, launches it on the caller's stream, and hands
    out what it wrote."""

    def __init__(
        self,
        captured: CapturedGraph,
        device: torch.device,
        *,
        launch: Callable[[], object],
        borrows: bool,
        memory: GraphMemory | None = None,
    ) -> None:
        self.memory_bytes = 0
        self.places: list[int] = []
        self._captured, self._device = captured, device
        buffers = captured.buffers
        self._inputs = list(buffers.inputs)
        self._own = _core.OwnInputs(self._inputs)
        self._launch = launch
        self._outputs = _group(buffers.outputs, self._inputs, buffers.constants)
        if borrows:
            self._outputs.borrow()
        self._writes_inputs = buffers.mutated
        self._memory = memory or GraphMemory()
        self._seen: set[int] = set()  # numbers of streams that it was replayed on

    def __call__(self, tensors: list[torch.Tensor]) -> Sequence[torch.Tensor]:
        """Results on the caller's stream; those that the graph made are copies, or its memory."""
        if torch._C._cuda_getDevice() != self._device.index:
            with torch.cuda.device(self._device):
                return self._replay(tensors)
        return self._replay(tensors)

    def _replay(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        # Its number first: to make an object of it takes longer than most of what is done here.
        number = torch._C._cuda_getCurrentRawStream(self._device.index)
        if number != self._memory.number:
            self._memory.order(number)
        if number not in self._seen:
            self._read_on(torch.cuda.current_stream())
            self._seen.add(number)
        copied = self._own.take(tensors)
        self._launch()
        if self._writes_inputs:
            self._own.give_back(tensors, copied)
        with torch.no_grad():
            return self._outputs.hand_out(tensors, self.places)

    def _read_on(self, stream: torch.cuda.Stream) -> None:
        """Have the allocator know: if this capture is dropped in flight, what the graph reads must
        not be given to somebody else before."""
        for item in (*self._inputs, *self._captured.buffers.constants):
            if item.is_cuda:
                item.record_stream(stream)

    def list_inputs(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        """Its own, into which it copies others."""
        return self._inputs

    def borrow(self, places: Sequence[int]) -> None:
        """From now on hand out the graph's own memory at these."""
        self._outputs.borrow(places)

    def close(self) -> None:
        """Wait for what is in flight: its memory must not be freed before."""
        torch.cuda.synchronize(self._device)


class _Outputs:
    """What the graph writes, by memory: a result that shares memory with an input, a weight or
    another result does so in every call."""

    def __init__(self) -> None:
        self.kept: dict[int, torch.Tensor] = {}  # weights and state, which are the caller's own
        self.of_inputs: dict[int, tuple[int, torch.Tensor | None]] = {}  # None: the input itself
        self.alone: dict[int, torch.Tensor] = {}  # that are all that is in their memory
        self.together: list[tuple[torch.Tensor, dict[int, torch.Tensor]]] = []  # memory, results

    def borrow(self, places: Sequence[int] | None = None) -> None:
        """Have these never be copied, or all."""
        for place in [*self.alone] if places is None else places:
            if place in self.alone:
                self.kept[place] = self.alone.pop(place)
        kept_apart = []
        for memory, results in self.together:
            if places is None or results.keys() <= {*places}:
                self.kept |= results
            else:
                kept_apart.append((memory, results))
        self.together = kept_apart

    def hand_out(self, inputs: Sequence[torch.Tensor], places: Sequence[int]) -> list[torch.Tensor]:
        """The results of the replay before at these places."""
        found = dict(self.kept)
        for place, (source, view) in self.of_inputs.items():
            given = inputs[source]
            if view is None:
                found[place] = given
                continue
            offset = given.storage_offset() + view.storage_offset()
            found[place] = given.as_strided(view.size(), view.stride(), offset)
        found.update(zip(self.alone, _core.copy_each([*self.alone.values()]), strict=True))
        for memory, results in self.together:
            copy = memory.clone()
            for place, item in results.items():
                found[place] = copy.as_strided(item.size(), item.stride(), item.storage_offset())
        return [found[place] for place in places]


def _group(
    outputs: Sequence[torch.Tensor],
    inputs: Sequence[torch.Tensor],
    constants: Sequence[torch.Tensor],
) -> _Outputs:
    grouped = _Outputs()
    sources = {find_storage(item): place for place, item in enumerate(inputs)}
    kept = {find_storage(item) for item in constants}
    made: dict[object, tuple[torch.Tensor, dict[int, torch.Tensor]]] = {}
    for place, output in enumerate(outputs):
        storage = find_storage(output)
        if storage in sources:
            source = sources[storage]
            is_input = output is inputs[source]
            grouped.of_inputs[place] = source, None if is_input else output
        elif storage in kept:
            grouped.kept[place] = output
        else:
            key = (storage, output.dtype)
            made.setdefault(key, (_see_whole(output), {}))[1][place] = see_memory(output)
    for memory, results in made.values():
        ((place, first), *others) = results.items()
        if others or memory.numel() != first.numel():
            grouped.together.append((memory, results))
        else:
            grouped.alone[place] = first
    return grouped


def see_memory(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of the same memory that was not made under inference mode, which could not be
    written or followed by autograd outside it."""
    with torch.inference_mode(False):
        view = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        return view.set_(
            tensor.untyped_storage(), tensor.storage_offset(), tensor.size(), tensor.stride()
        )


def _see_whole(tensor: torch.Tensor) -> torch.Tensor:
    storage = tensor.untyped_storage()
    count = storage.nbytes() // tensor.element_size()
    with torch.inference_mode(False):
        view = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        return view.set_(storage, 0, (count,), (1,))


def bake_transfers(loaded: LoadedModel, tape: _core.Tape) -> _core.Tape:
    """``tape``, on the inputs that are bound to it, without these copies; itself if it has none."""
    flow = Flow(tape)
    places: list[Place] = []
    with preserve_state(loaded), torch.inference_mode():
        loaded.prepare()
        for index, call in enumerate(tape.calls):
            given = _list_given(tape, call)
            tape.run_call(index)
            made = {slot: tape.slot(slot) for slot in list_output_slots(call["outputs"])}
            made = {slot: item for slot, item in made.items() if item is not None}
            if moves_data(
                call["operator"], list(given.values()), flatten_tensors([*made.values()])
            ):
                places += _bake(index, call, given, made, flow, tape.output_slots)
            elif call["operator"].partition(".")[0] in _COPYING:
                places += _bake_arguments(index, given, flow)
        tape.release_outputs()
    return tape.bake(places) if places else tape


def _list_given(tape: _core.Tape, call: Mapping[str, Any]) -> dict[int, torch.Tensor]:
    slots = [slot for argument in call["arguments"] for slot in list_slots(argument)]
    found = {slot: tape.slot(slot) for slot in slots}
    return {slot: item for slot, item in found.items() if isinstance(item, torch.Tensor)}


def _bake(
    index: int,
    call: Mapping[str, Any],
    given: Mapping[int, torch.Tensor],
    made: Mapping[int, torch.Tensor],
    flow: Flow,
    outputs: list[int],
) -> Iterator[Place]:
    """What the call makes, if that is the same each time, nobody writes into it and it is not
    handed out; else the arguments from which it copies."""
    is_same = index not in flow.calls and not flow.list_written(index)
    if is_same and not any(
        flow.is_written(slot, after=index) or flow.shares(slot, outputs) for slot in made
    ):
        yield from ((index, slot, item.clone()) for slot, item in made.items())
    elif call["operator"].partition(".")[0] in _COPYING:
        yield from _bake_arguments(index, given, flow)


def _bake_arguments(index: int, given: Mapping[int, torch.Tensor], flow: Flow) -> Iterator[Place]:
    """Those on the host that are the same each time and are read, on the device of the others."""
    device = next((item.device for item in given.values() if item.device.type != "cpu"), None)
    # Behind a mask a number is read where it is, on the host.
    has_mask = any(item.dtype in _MASKS and item.dim() for item in given.values())
    for slot, item in given.items():
        is_read = item.device.type == "cpu" and slot not in flow.list_written(index)
        is_number = has_mask and not item.dim()
        if device is not None and is_read and not is_number and not flow.depends(slot):
            yield index, slot, item.to(device)


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
