"""Checks that hold a CUDA stream busy and look at what a library does meanwhile.

The surprising choice: the stream is held by a kernel that burns time, not by ftax's gate. The gate
opens when the host says so, and a library that waits for the device would then never come back.
"""

from __future__ import annotations

import re
import time

import torch

from ftax import _core
from ftax.errors import UnavailableError
from ftax.instruments.trace.records import Trace
from ftax.instruments.trace.run import require_tracer
from ftax.runtimes.equality import compare_outputs
from ftax.runtimes.plugins.case import (
    INPUT_SETS,
    BoundPlugin,
    CheckFailedError,
    CheckSkippedError,
    Subject,
)
from ftax.runtimes.plugins.conform.general import warm_up
from ftax.steps.tensors import same_bytes
from ftax.timing.session import quiet

_HOLD_CYCLES = 1_000_000_000  # half a second at 2 GHz
_LOOK_S = 0.05  # after which work on a wrong stream would have been done
_ITERATIONS = 5
_CROWD_ROWS, _CROWD_PRODUCTS = 4096, 8  # of a product in fp32: some milliseconds each
_WAITS = re.compile(r"cu(da)?(Device|Ctx|Stream|Event)Synchronize")
_ALLOCATES = re.compile(r"cu(da)?(Mem)?(Malloc|Alloc|Free|HostAlloc|MallocHost|FreeHost)")
_COPIES = re.compile(r"cu(da)?Memcpy(?!\w*Async)")


def check_stream(subject: Subject) -> None:
    """Behind a held stream nothing is written; once it is free, the answer is there."""
    stream, bound = _prepare(subject)
    watcher = torch.cuda.Stream(bound.outputs[0].device)
    seen = [output.clone() for output in bound.outputs]
    _copy(seen, bound.outputs, watcher)  # once before: a first copy may wait for the device
    bound.poison()
    bound.prepare()
    held = _hold(stream)
    bound.enqueue()
    time.sleep(_LOOK_S)
    _copy(seen, bound.outputs, watcher)
    if held.query():
        raise CheckSkippedError("the stream was free again before the outputs were looked at")
    for early, poison in zip(seen, bound.make_poison(), strict=True):
        if not same_bytes(early, poison):
            raise CheckFailedError(
                "outputs were written while the given stream was held: enqueue uses another stream"
            )
    bound.wait()
    equality = compare_outputs(subject.case.references[0], bound.outputs)
    if not equality.within_tolerance:
        raise CheckFailedError(f"behind a held stream: {equality.problem}")


def check_done(subject: Subject) -> None:
    """On a crowded GPU, where each kernel waits for a place: once ftax's wait for the given stream
    is over, so is the inference.

    Outputs are read while the crowd is still there, by a copy that needs no place. What works on
    another stream without this one waiting for it has not come to its turn by then.
    """
    _, bound = _prepare(subject)
    device = bound.outputs[0].device
    seen = [torch.empty_like(output, device="cpu").pin_memory() for output in bound.outputs]
    watcher = torch.cuda.Stream(device)
    crowd = _Crowd(device)
    for _ in range(_ITERATIONS):
        bound.poison()
        _copy(seen, bound.outputs, watcher)
        bound.prepare()
        crowd.gather()
        bound.enqueue()
        bound.wait()
        _copy(seen, bound.outputs, watcher)
        bound.settle()
        references = [right.cpu() for right in subject.case.references[0]]
        equality = compare_outputs(references, seen)
        if not equality.within_tolerance:
            raise CheckFailedError(
                "outputs were not there when the given stream was idle: enqueue works on another "
                f"stream, and this one does not wait for it ({equality.problem})"
            )


def check_no_wait(subject: Subject) -> None:
    """Enqueue returns while its stream is held."""
    stream, bound = _prepare(subject)
    bound.prepare()
    held = _hold(stream)
    bound.enqueue()
    waited = held.query()
    bound.settle()
    if waited:
        raise CheckFailedError(
            "enqueue returned only when its stream was idle: it waits for the device"
        )


def check_other_streams(subject: Subject) -> None:
    """Neither another stream nor the default stream, held, keeps an inference from finishing."""
    _, bound = _prepare(subject)
    device = bound.outputs[0].device
    for what, other in (
        ("another stream", torch.cuda.Stream(device)),
        ("the default stream", torch.cuda.default_stream(device)),
    ):
        bound.prepare()
        held = _hold(other)
        bound.enqueue()
        bound.wait()
        waited = held.query()
        bound.settle()
        if waited:
            raise CheckFailedError(f"an inference finished only when {what} was idle")


def check_api_calls(subject: Subject) -> str:
    """By trace: no call inside enqueue that waits, allocates, or copies between host and device."""
    try:
        require_tracer()
    except UnavailableError as error:
        raise CheckSkippedError(str(error)) from error
    stream, bound = _prepare(subject)
    runner = _core.StreamRunner(
        _core.PluginRunner(
            bound.plugin, "conform", subject.case.device, bound.stream, memory_owner=bound
        ),
        stream.stream_id,
        stream.device_index,
        stream.device_type,
    )
    subject.note("enqueue")
    with quiet():
        raw = _core.trace_runner(
            runner, iterations=_ITERATIONS, warmup=3, kinds=["runtime", "driver"]
        )
    trace = Trace.from_raw(
        raw, model=subject.case.model, runtime="conform", host="cpp", device=subject.case.device
    )
    if trace.dropped_records:
        raise CheckSkippedError(f"the tracer lost {trace.dropped_records} records")
    calls = find_bad_calls(trace)
    if calls:
        raise CheckFailedError(f"enqueue calls {', '.join(calls)}")
    kinds = sorted({copy.copy_kind for copy in trace.memcpys} & {"HtoD", "DtoH"})
    if kinds:
        raise CheckFailedError(f"enqueue copies between host and device ({', '.join(kinds)})")
    count = len(trace.kernels) / _ITERATIONS
    return f"{count:g} kernels an inference"


def find_bad_calls(trace: Trace) -> list[str]:
    """Names of the calls, made between begin and issue of an iteration, that enqueue may not
    make."""
    issue = [(window.begin_ns, window.issued_ns) for window in trace.iterations]
    names = {
        call.name
        for call in trace.api_calls
        if any(begin <= call.start_ns < issued for begin, issued in issue)
    }
    patterns = (_WAITS, _ALLOCATES, _COPIES)
    return sorted(name for name in names if any(pattern.match(name) for pattern in patterns))


def check_capture(subject: Subject) -> None:
    """Captured after one enqueue; the replay reads the bound inputs and writes the bound
    outputs."""
    if not subject.open_library().capture_safe:
        raise CheckSkippedError("the library says that it is not (no FTAX_CAPTURE_SAFE)")
    stream, bound = _prepare(subject)
    bound.prepare()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        bound.enqueue()
    for place in (1, 0):
        bound.set_inputs(place)
        bound.poison()
        bound.prepare()
        subject.note("replaying a captured enqueue")
        with torch.cuda.stream(stream):
            graph.replay()
        bound.settle()
        equality = compare_outputs(subject.case.references[place], bound.outputs)
        if not equality.within_tolerance:
            raise CheckFailedError(f"replayed {INPUT_SETS[place]}: {equality.problem}")


def _prepare(subject: Subject) -> tuple[torch.cuda.Stream, BoundPlugin]:
    """A runner on a stream of its own, past its first calls, on an idle device."""
    torch.cuda._sleep(1000)  # loads the kernel that holds streams
    stream = torch.cuda.Stream(torch.device(subject.case.device))
    bound = subject.bind(stream=stream.cuda_stream)
    bound.run(0)
    warm_up(bound)
    bound.settle()
    return stream, bound


class _Crowd:
    """Products that take every multiprocessor, on two streams, so that while one product ends the
    other has blocks that wait: whatever is launched behind them waits too."""

    def __init__(self, device: torch.device) -> None:
        self._streams = [torch.cuda.Stream(device) for _ in range(2)]
        self._factor = torch.ones(_CROWD_ROWS, _CROWD_ROWS, device=device)
        self._products = [torch.empty_like(self._factor) for _ in self._streams]
        self.gather()  # once before: a first product loads its library
        torch.cuda.synchronize(device)

    def gather(self) -> None:
        """Have them queue up; they leave by themselves."""
        for _ in range(_CROWD_PRODUCTS):
            for stream, product in zip(self._streams, self._products, strict=True):
                with torch.cuda.stream(stream):
                    torch.mm(self._factor, self._factor, out=product)


def _hold(stream: torch.cuda.Stream) -> torch.cuda.Event:
    """Keep the stream busy; the event is done when it is free."""
    with torch.cuda.stream(stream):
        torch.cuda._sleep(_HOLD_CYCLES)
        held = torch.cuda.Event()
        held.record(stream)
    return held


def _copy(
    targets: list[torch.Tensor], sources: list[torch.Tensor], stream: torch.cuda.Stream
) -> None:
    with torch.cuda.stream(stream):
        for target, source in zip(targets, sources, strict=True):
            target.copy_(source, non_blocking=True)
    stream.synchronize()
