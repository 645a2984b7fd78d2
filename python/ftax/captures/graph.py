"""The replay of a captured call on a GPU: one CUDA graph of the tape's kernels.

Results are copies unless a call asks to borrow: a graph writes each result where it wrote the one
before. All graphs of one capture work in the same memory, so replays wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from ftax import _core
from ftax.captures.transfers import bake_transfers
from ftax.errors import UnsupportedError
from ftax.runtimes.cuda_graph import require_cuda_build
from ftax.runtimes.replays import check_on_both_inputs
from ftax.runtimes.workspace import Workspace
from ftax.steps.tensors import make_like
from ftax.steps.writes import find_storage
from ftax.tape.capture import CapturedGraph, GraphMemory, capture


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
        return captured.graph.replay
    pointer = captured.graph.raw_cuda_graph_exec()
    return _core.GraphRunner(pointer, "capture", captured).enqueue


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
