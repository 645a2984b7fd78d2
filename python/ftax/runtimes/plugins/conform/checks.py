"""What `ftax conform` checks of a library, in a worker process.

Each check takes a TriedLibrary and raises CheckFailedError where the library fails. Those of a GPU
hold a stream busy by a kernel that burns time, not by ftax's gate: the gate opens when the host
says so, and a library that waits for the device would never come back.
"""

from __future__ import annotations

import time

import torch

from ftax import _core
from ftax.errors import FtaxError, describe
from ftax.runtimes.plugins.case import (
    INPUT_SETS,
    BoundPlugin,
    CheckFailedError,
    CheckSkippedError,
    TriedLibrary,
)
from ftax.runtimes.plugins.shared_library import check_device
from ftax.steps.tensors import same_bytes
from ftax.tape.equality import compare_outputs

_NONSENSE = "no-library-knows-this-config=1"
_HOLD_CYCLES = 1_000_000_000  # half a second at 2 GHz
_LOOK_S = 0.05  # after which work on a wrong stream would have been done
_ITERATIONS = 5
_CROWD_ROWS, _CROWD_PRODUCTS = 4096, 8  # of a product in fp32: some milliseconds each


def check_interface(tried: TriedLibrary) -> str:
    """It loads, has this version of the interface, and says that it runs on the device."""
    check_device(tried)
    return f"{tried.open_library().name}, version {_core.RUNNER_ABI_VERSION}"


def check_unknown_config(tried: TriedLibrary) -> str:
    """`create` refuses nonsense, with a reason. A C++ exception that it lets out is none."""
    try:
        tried.create(_NONSENSE)
    except FtaxError as error:
        text = describe(error)
        if _core.NO_REASON in text or _core.THREW in text:
            raise CheckFailedError(text) from error
        return text
    raise CheckFailedError(f'create("{_NONSENSE}") was accepted; it has to return FTAX_ERROR')


def check_outputs(tried: TriedLibrary) -> str:
    """Both input sets, written into memory that is bound already, over poisoned outputs."""
    bound = tried.bind()
    worst = 0.0
    for place in (0, 1, 0):
        worst = max(worst, _compare(tried, place, bound.run(place)))
    return "bitwise" if worst == 0 else f"within {worst:.1e}"


def check_prepare(tried: TriedLibrary) -> str:
    """`prepare` leaves the outputs alone, also twice in a row, and keeps nothing of the inputs."""
    if not tried.open_library().has_prepare:
        raise CheckSkippedError("the library has none: each inference starts from the same state")
    bound = tried.bind()
    worst = 0.0
    for place in (1, 0):
        bound.set_inputs(1 - place)
        bound.poison()
        bound.prepare()
        bound.prepare()
        if not all(map(same_bytes, bound.outputs, bound.make_poison())):
            raise CheckFailedError("prepare wrote outputs; the inference belongs into enqueue")
        bound.set_inputs(place)
        bound.enqueue()
        bound.wait()
        worst = max(worst, _compare(tried, place, bound.outputs))
    return "bitwise" if worst == 0 else f"within {worst:.1e}"


def check_stream(tried: TriedLibrary) -> None:
    """Behind a held stream nothing is written; once it is free, the answer is there."""
    stream, bound = _prepare(tried)
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
    equality = compare_outputs(tried.case.references[0], bound.outputs)
    if not equality.within_tolerance:
        raise CheckFailedError(f"behind a held stream: {equality.problem}")


def check_done(tried: TriedLibrary) -> None:
    """On a crowded GPU, where each kernel waits for a place: once ftax's wait for the given stream
    is over, so is the inference.

    Outputs are read while the crowd is still there, by a copy that needs no place. What works on
    another stream without this one waiting for it has not come to its turn by then.
    """
    _, bound = _prepare(tried)
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
        references = [right.cpu() for right in tried.case.references[0]]
        equality = compare_outputs(references, seen)
        if not equality.within_tolerance:
            raise CheckFailedError(
                "outputs were not there when the given stream was idle: enqueue works on another "
                f"stream, and this one does not wait for it ({equality.problem})"
            )


def check_no_wait(tried: TriedLibrary) -> None:
    """Enqueue returns while its stream is held."""
    stream, bound = _prepare(tried)
    bound.prepare()
    held = _hold(stream)
    bound.enqueue()
    waited = held.query()
    bound.settle()
    if waited:
        raise CheckFailedError(
            "enqueue returned only when its stream was idle: it waits for the device"
        )


def _prepare(tried: TriedLibrary) -> tuple[torch.cuda.Stream, BoundPlugin]:
    """A runner on a stream of its own, past its first calls, on an idle device."""
    torch.cuda._sleep(1000)  # loads the kernel that holds streams
    stream = torch.cuda.Stream(torch.device(tried.case.device))
    bound = tried.bind(stream=stream.cuda_stream)
    for _ in range(4):  # in the first a library may still prepare
        bound.run(0)
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


def _compare(tried: TriedLibrary, place: int, outputs: list[torch.Tensor]) -> float:
    equality = compare_outputs(tried.case.references[place], outputs)
    if not equality.within_tolerance:
        raise CheckFailedError(f"{INPUT_SETS[place]}: {equality.problem}")
    return equality.difference
