"""Captures a CUDA graph from a tape.

From the tape, not from the model: a library that notices the capture may choose other kernels
(transformers builds attention masks then), and the graph would not be the eager model any more. The
capture itself is torch's, so that memory and random numbers are torch's business.

Collectives stand between graphs, each called as eager calls it. Inside of a graph NCCL would wait
for ever for a rank that has died, since torch watches over no collective that it did not call, and
a process group could not be destroyed before the graph.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import torch

from ftax import _core
from ftax.errors import RunnerError, UnsupportedError, describe
from ftax.steps.input_trees import flatten_tensors
from ftax.steps.loaded import LoadedModel
from ftax.tape.flow import COLLECTIVES, list_collectives, list_output_slots
from ftax.tape.recording import describe_place
from ftax.tape.tape import Taped, preserve_state, seed_checks
from ftax.timing.candidate import Buffers

_COPIES = ("aten::copy_", "aten::_to_copy", "aten::to")  # with all their overloads

# Operators that wait for the device, and what to do instead.
_REMEDIES = {
    "aten::normal": "mean + std * torch.randn_like(mean) does not look at std",
}
_RECURRENT = {f"aten::{name}" for name in ("lstm", "gru", "rnn_tanh", "rnn_relu", "_cudnn_rnn")}
_REMEDY = "x[0] = 1.0 copies from the host; x[0].fill_(1.0) does not"

# torch's allocator of pinned memory keeps asking the graph of a failed capture for its stream.
_abandoned: list[torch.cuda.CUDAGraph] = []


T = TypeVar("T")


class Between(NamedTuple):
    """A collective between two graphs: it is called, or waited for if another call has begun it."""

    call: _core.HeldCall
    waits: bool = False

    def run(self) -> None:
        """Do so."""
        self.call.wait() if self.waits else self.call.run()


Piece = torch.cuda.CUDAGraph | Between


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedGraph:
    """Graphs, instantiated, with everything that has to live as long as they do. ``pieces``: one
    graph, or several with the collectives between them, in order."""

    pieces: tuple[Piece, ...]
    owner: object  # of weights and inputs: the tape or the runner that was captured
    buffers: Buffers
    draws_random: bool
    host_reads: tuple[str, ...] = ()  # what the capture left out

    @property
    def graph(self) -> torch.cuda.CUDAGraph:
        """The only one. Raises UnsupportedError where there are several."""
        (first, *others) = self.pieces
        if others or isinstance(first, Between):
            raise UnsupportedError(
                "it communicates with other ranks, and its collectives stand between CUDA graphs"
            )
        return first

    def drive(self, name: str) -> _core.GraphRunner:
        """What launches all of it, past torch: random numbers do not move on."""
        pieces = [
            piece if isinstance(piece, Between) else piece.raw_cuda_graph_exec()
            for piece in self.pieces
        ]
        return _core.GraphRunner(pieces, name, self)

    def run(
        self, replay: Callable[[], object], inputs: Sequence[torch.Tensor], loaded: LoadedModel
    ) -> tuple[torch.Tensor, ...]:
        """Outputs of a replay on ``inputs``, with random numbers as every check has them."""
        if self.draws_random:
            with preserve_state(loaded):  # a replay more, which trains what trains
                replay_each(self.pieces)  # leaves the seed where one that bypasses torch reads it
            seed_checks()
        return self.buffers.run(replay, inputs)

    def replay(self, replay: Callable[[], object]) -> list[torch.Tensor]:
        """Copies of the outputs of a replay: the next one writes over them."""
        replay()
        with torch.inference_mode():
            return [output.clone() for output in self.buffers.outputs]


class GraphMemory:
    """Memory that several graphs work in, no two at once: one allocates what another gave back, and
    a replay waits for the one before. torch reuses memory of one pool and one stream only."""

    def __init__(self) -> None:
        self.number = -1  # of the stream of the last replay
        self._last: torch.cuda.Stream | None = None  # that stream
        self._stream: torch.cuda.Stream | None = None
        self._pool: Any = None
        self._graphs: list[weakref.ref[torch.cuda.CUDAGraph]] = []

    def choose_stream(self) -> torch.cuda.Stream:
        """On which graphs are captured: of the device that was current the first time."""
        self._stream = self._stream or torch.cuda.Stream()
        return self._stream

    def choose_pool(self) -> Any:
        """The pool of the next graph: a new one where no graph lives that uses the last."""
        self._graphs = [graph for graph in self._graphs if graph() is not None]
        if not self._graphs:
            self._pool = torch.cuda.graph_pool_handle()
        return self._pool

    def add(self, graph: torch.cuda.CUDAGraph) -> None:
        """It was captured in the pool."""
        self._graphs.append(weakref.ref(graph))

    def order(self, number: int) -> None:
        """Have the current stream, of this number, wait for the last replay, which may still read
        inputs and write results."""
        stream = torch.cuda.current_stream()
        if self._last is not None:
            stream.wait_stream(self._last)
        self._last, self.number = stream, number


def capture(
    loaded: LoadedModel,
    taped: Taped,
    *,
    tape: _core.Tape | None = None,
    inputs: Sequence[torch.Tensor] | None = None,
    memory: GraphMemory | None = None,
) -> CapturedGraph:
    """Capture one inference of ``taped`` on the main inputs of ``loaded``, without host reads; or
    of ``tape``, and on these ``inputs``, from which every replay reads. ``memory`` is shared with
    other graphs.

    Raises:
        UnsupportedError: the model waits for the device, moves data between host and device, or
            leaves an output on the host; the message names operator and module.
    """
    tape = tape or taped.tape.without_host_reads()
    given = loaded.flat_inputs() if inputs is None else list(inputs)
    with preserve_state(loaded):
        captured = capture_tape(
            tape, given, loaded.device, memory or GraphMemory(), prepare=loaded.prepare
        )
    refuse_host_outputs(captured.buffers.outputs, "this model")
    return replace(captured, host_reads=_list_host_reads(taped))


def capture_tape(
    tape: _core.Tape,
    inputs: Sequence[torch.Tensor],
    device: str,
    memory: GraphMemory,
    *,
    prepare: Callable[[], object] = lambda: None,
    rehearsal: _core.Tape | None = None,
) -> CapturedGraph:
    """Capture ``tape`` on these inputs, having called ``prepare`` before each of its runs. State
    that it writes is the caller's to put back; outputs may be on the host. ``rehearsal`` runs
    before the capture, in the place of the tape.

    Raises UnsupportedError as `capture` does.
    """
    given = list(inputs)
    tape.bind_inputs(given)
    index = torch.device(device).index
    index = torch.cuda.current_device() if index is None else index
    with torch.cuda.device(index):
        stream = memory.choose_stream()
        torch.cuda.synchronize()
        try:
            with enter_stream(stream), torch.inference_mode():
                first = rehearsal or tape
                first.run()  # what happens only once happens here
                prepare()  # or each run would move a position on, past the end of a cache
                waits = _rehearse(first)
            prepare()
            pieces, outputs = _capture_pieces(tape, waits, stream, memory)
        except (RunnerError, torch.OutOfMemoryError) as error:
            raise UnsupportedError(f"cannot capture this model: {describe(error)}") from error
        random = draws_random(pieces, index)
    if all(isinstance(piece, Between) for piece in pieces):
        raise UnsupportedError("cannot capture this model: it does nothing but communicate")
    return CapturedGraph(
        pieces=tuple(pieces),
        owner=tape,
        buffers=Buffers(
            inputs=tuple(given),
            outputs=tuple(outputs),
            constants=tuple(tensor for _, tensor in tape.constants),
            mutated=bool(tape.mutations),
        ),
        draws_random=random,
    )


def _capture_pieces(
    tape: _core.Tape, waits: set[int], stream: torch.cuda.Stream, memory: GraphMemory
) -> tuple[list[Piece], list[torch.Tensor]]:
    """Graphs of the calls between collectives, these collectives, and the outputs. Before the calls
    in ``waits`` a replay waits for those that overlap. Run meanwhile, collectives are given what is
    in the memory of graphs that have not run."""
    calls = tape.calls
    if not list_collectives(tape):
        graph, outputs = capture_calls(tape.run, stream, memory.choose_pool())
        memory.add(graph)
        return [graph], outputs
    pieces: list[Piece] = []
    overlapping: list[_core.HeldCall] = []
    begin = 0

    def capture_until(end: int) -> None:
        if begin < end:
            pool = memory.choose_pool()
            graph, _ = capture_calls(lambda: tape.run_calls(begin, end), stream, pool)
            memory.add(graph)
            pieces.append(graph)

    for index, call in enumerate(calls):
        if overlapping and index in waits:
            capture_until(index)
            begin = index
            pieces += [Between(held, waits=True) for held in overlapping]
            overlapping = []
        if not call["operator"].startswith(COLLECTIVES):
            continue
        capture_until(index)
        begin = index + 1
        held = tape.hold_call(index)
        pieces.append(Between(held))
        overlapping += [held] if call["overlaps"] else []
        with enter_stream(stream), torch.inference_mode():
            tape.run_call(index)
    capture_until(len(calls))
    pieces += [Between(held, waits=True) for held in overlapping]
    outputs = tape.outputs()
    tape.release_outputs()
    return pieces, outputs


def capture_calls(
    run: Callable[[], T], stream: torch.cuda.Stream, pool: Any = None
) -> tuple[torch.cuda.CUDAGraph, T]:
    """Capture what ``run`` issues on ``stream``; the graph, instantiated, and what it returns.
    Without ``pool`` it has memory that no other graph uses.

    ``run`` must have run on that stream before. What it raises is passed on, and torch is usable
    afterwards.
    """
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    pool = pool or torch.cuda.graph_pool_handle()
    torch.cuda.synchronize()
    torch._C._cuda_clearCublasWorkspaces()  # or the graph would use one that others may free
    torch.cuda.empty_cache()
    # Not under inference mode: beginning may make tensors of the generator, which outlive us.
    with torch.cuda.stream(stream), torch.inference_mode(False), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The CUDA Graph is empty")
        try:
            try:
                graph.capture_begin(pool=pool, capture_error_mode="thread_local")
                with torch.inference_mode():
                    outputs = run()
                graph.capture_end()
            finally:
                torch._C._cuda_clearCublasWorkspaces()  # the graph's own is for nobody else
        except BaseException:
            _abandon(graph, pool)
            raise
    graph.instantiate()
    torch.cuda.synchronize()
    return graph, outputs


def _abandon(graph: torch.cuda.CUDAGraph, pool: Any) -> None:
    """End a capture that failed, of which torch leaves allocator and generator in the middle."""
    _abandoned.append(graph)
    with suppress(RuntimeError):
        graph.capture_end()  # says again what went wrong, having ended it for CUDA
    graph.reset()
    with suppress(RuntimeError):  # a newer torch has done this
        torch._C._cuda_endAllocateToPool(torch.cuda.current_device(), pool)
        torch._C._cuda_releasePool(torch.cuda.current_device(), pool)
    with suppress(RuntimeError):  # a capture that succeeds brings the generator back
        trivial = torch.cuda.CUDAGraph()
        trivial.capture_begin(capture_error_mode="thread_local")
        try:
            torch.zeros(1, device="cuda")
        finally:
            trivial.capture_end()


def _rehearse(tape: _core.Tape) -> set[int]:
    """Run the tape call by call and refuse what a capture cannot hold. Here that costs an
    exception; in a capture it would also leave torch half-way through. The calls that wait for
    collectives before them."""
    calls = tape.calls
    waits = set()
    with forbid_synchronising():
        for index, call in enumerate(calls):
            given = flatten_tensors(tape.arguments(index))
            if _draws_by_itself(call):
                raise UnsupportedError(
                    f"cannot capture this model: the dropout in {describe_place(call)} draws from "
                    "numbers that cuDNN keeps: use nn.Dropout between layers of their own"
                )
            if tape.waits_before(index):
                waits.add(index)
            try:
                tape.run_call(index)
            except RunnerError as error:
                if "synchronizing" not in str(error):
                    raise
                raise UnsupportedError(
                    f"cannot capture this model: {describe_place(call)} is a synchronizing CUDA "
                    "operation: it waits for the device, or copies from the host "
                    f"({_find_remedy(call)})"
                ) from error
            made = flatten_tensors([tape.slot(slot) for slot in list_output_slots(call["outputs"])])
            if moves_data(call["operator"], given, made):
                raise UnsupportedError(
                    f"cannot capture this model: {describe_place(call)} moves data between host "
                    f"and device ({_find_remedy(call)})"
                )
    tape.release_outputs()
    return waits


def _find_remedy(call: Mapping[str, Any]) -> str:
    return _REMEDIES.get(call["operator"].partition(".")[0], _REMEDY)


def _draws_by_itself(call: Mapping[str, Any]) -> bool:
    """Whether a call is layers that recur, which cuDNN runs with dropout between them."""
    name, _, overload = call["operator"].partition(".")
    if name not in _RECURRENT or not torch.backends.cudnn.enabled:
        return False
    names = [argument.name for argument in torch._C._get_schema(name, overload).arguments]
    given = dict(zip(names, (value for _, value in call["arguments"]), strict=True))
    return bool(given["train"] and given["dropout"] and given["num_layers"] > 1)


def moves_data(operator: str, given: Sequence[torch.Tensor], made: Sequence[torch.Tensor]) -> bool:
    """Whether a call moves data between host and device. A single number on the host is no such
    case, except for a copy: operators read it at once, as an argument, and what an operator of the
    device leaves there it has made there (attention its seed, which it does not draw). Nor is a
    tensor without elements, as which a cache of keys begins."""
    given, made = ([tensor for tensor in some if tensor.numel()] for some in (given, made))
    host = [tensor for tensor in given if tensor.device.type == "cpu"]
    device = [tensor for tensor in given if tensor.device.type != "cpu"]
    is_copy = operator.split(".")[0] in _COPIES
    if host and device:
        return is_copy or any(tensor.dim() > 0 for tensor in host)
    if host:
        return any(tensor.device.type != "cpu" for tensor in made)
    left = [tensor for tensor in made if tensor.device.type == "cpu"]
    return bool(device) and any(is_copy or tensor.dim() > 0 for tensor in left)


@contextmanager
def forbid_synchronising() -> Iterator[None]:
    """Inside, operators that wait for the device raise."""
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch announces that the mode is a prototype
        torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode(before)


def refuse_host_outputs(outputs: Sequence[torch.Tensor], what: str) -> None:
    """Raises UnsupportedError for an output of ``what`` that is not on a GPU."""
    for place, output in enumerate(outputs):
        if output.device.type != "cuda":
            raise UnsupportedError(
                f"cannot capture {what}: its output {place} is on {output.device}, where a graph "
                "does not write; return it on the GPU"
            )


def draws_random(pieces: Sequence[Piece], device_index: int) -> bool:
    """Whether a replay of them moves torch's generator on. Runs them once."""
    generator = torch.cuda.default_generators[device_index]
    before = generator.get_offset()
    replay_each(pieces)
    torch.cuda.synchronize()
    return bool(generator.get_offset() != before)


def replay_each(pieces: Sequence[Piece]) -> None:
    """One after the other, by torch, which moves random numbers on."""
    for piece in pieces:
        piece.run() if isinstance(piece, Between) else piece.replay()


def _list_host_reads(taped: Taped) -> tuple[str, ...]:
    calls = taped.tape.calls
    return tuple(describe_place(calls[index]) for index in taped.tape.host_reads)


def make_stream(device: str) -> torch.cuda.Stream | None:
    """A stream of its own, since the legacy default stream waits for all the others."""
    if torch.device(device).type == "cpu" or not hasattr(_core, "StreamRunner"):
        return None
    torch.cuda.synchronize(device)  # what is there already was put there by another stream
    return torch.cuda.Stream(torch.device(device))


def wrap_runner(runner: _core.Runner, stream: torch.cuda.Stream | None) -> _core.Runner:
    """``runner`` with ``stream`` as torch's current one while it runs."""
    if stream is None:
        return runner
    return _core.StreamRunner(runner, stream.stream_id, stream.device_index, stream.device_type)


@contextmanager
def enter_stream(stream: torch.cuda.Stream | None) -> Iterator[None]:
    """Inside, torch works on ``stream``, after what it did before and before what it does next."""
    if stream is None:
        yield
        return
    stream.wait_stream(torch.cuda.current_stream(stream.device))
    try:
        with torch.cuda.stream(stream):
            yield
    finally:
        stream.synchronize()
