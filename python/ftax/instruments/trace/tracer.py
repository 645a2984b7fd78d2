"""Traces prepared runtimes through CUPTI, in this process, after they have been timed.

What a trace leaves behind slows every later launch, so CUPTI is taken out of the process again,
unless another profiler is in; `ladders.look` does the same in a process that can be thrown
away.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import torch

from ftax import _core
from ftax.errors import FtaxError, UnavailableError, attempt
from ftax.instruments.trace.records import Trace
from ftax.machines.environment import collect_environment
from ftax.timing.plan import Progress
from ftax.timing.session import quiet

if TYPE_CHECKING:
    from ftax.steps.loaded import LoadedModel
    from ftax.timing.candidate import Candidate

ITERATIONS = 20
WARMUP = 3
KINDS = ("runtime", "driver")  # beside kernels, copies and fills


def trace_prepared(
    loaded: LoadedModel,
    prepared: Candidate,
    *,
    iterations: int = ITERATIONS,
    kinds: Sequence[str] = KINDS,
) -> Trace:
    """Trace ``iterations`` synchronised inferences of one runtime, in this process, in which CUPTI
    stays: see `detach`.

    Args:
        kinds: "runtime" and "driver" add API calls, "overhead" CUPTI's own; kernels, copies and
            fills are always recorded.

    Raises:
        UnavailableError: no CUDA build or device, no CUPTI, or another profiler is using it.
        RunnerError: the runtime failed.
    """
    require_tracer()
    with quiet():
        raw = _core.trace_runner(
            prepared.runner, iterations=iterations, warmup=WARMUP, kinds=list(kinds)
        )
    return Trace.from_raw(
        raw,
        model=loaded.name,
        runtime=prepared.runtime,
        host=prepared.host,
        device=loaded.device,
        environment=collect_environment(device=loaded.device),
    )


def detach() -> bool:
    """Take CUPTI out of this process. False where another profiler is in, which stays, and where
    there is no CUPTI."""
    if not hasattr(_core, "detach_cupti"):
        return False
    for device in range(torch.cuda.device_count()):
        torch.cuda.synchronize(device)  # nothing may be in flight
    try:
        return _core.detach_cupti()
    except FtaxError:
        return False


def require_tracer() -> None:
    """Raise UnavailableError if this build of ftax has no CUPTI part."""
    if not hasattr(_core, "trace_runner"):
        raise UnavailableError(
            "kernels are traced through CUPTI, which this build of ftax lacks: reinstall it where "
            "a CUDA torch, nvcc and cupti.h are"
        )


def trace_each(
    loaded: LoadedModel,
    prepared: Sequence[Candidate],
    *,
    iterations: int = ITERATIONS,
    progress: Progress | None = None,
) -> Iterator[Trace | FtaxError]:
    """Trace each runtime in turn, then detach; one that cannot be traced leaves its error in its
    place."""
    try:
        for place, item in enumerate(prepared):
            if progress:
                progress("tracing kernels", place, len(prepared))
            yield attempt(partial(trace_prepared, loaded, item, iterations=iterations))
    finally:
        detach()
