"""How much of the GPU one runner keeps busy, from the counters that NVML reads (GPM).

The columns are those of Table 3 of "The Framework Tax" (arXiv 2302.06117), and two more. No
profiler is involved: GPM reads counters that run anyway, so the runner is not slowed down, but only
GPUs since Hopper have it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Annotated, Any

from ftax import _core
from ftax.errors import InvalidArgumentError, UnavailableError
from ftax.instruments.drive import drive
from ftax.machines.host import PositiveFloat
from ftax.machines.nvml import NvmlGpu
from ftax.records.fields import Rule
from ftax.records.record import Record

# The driver refreshes the counters behind a sample about every 100 ms.
_LEAST_S = 0.5
_LEAD_IN_S = 0.3

Percent = Annotated[float, Rule("a percentage of at least 0", lambda value: value >= 0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Utilisation(Record):
    """Averages over ``seconds`` of running, waiting included, in percent. None: not given here.

    Attributes:
        sms_active_pct: multiprocessors with a warp on them, of all (Table 3: "SMs active").
        warp_occupancy_pct: warps on the multiprocessors, of as many as fit (Table 3: "Warp
            Occupancy").
        dram_bandwidth_pct: traffic of device memory, of the most it can do.
        tensor_active_pct: time in which the tensor cores' pipes were active.
    """

    sms_active_pct: Percent | None
    warp_occupancy_pct: Percent | None
    dram_bandwidth_pct: Percent | None
    tensor_active_pct: Percent | None
    seconds: PositiveFloat


def watch_utilisation(
    runner: _core.Runner, *, gpu: NvmlGpu, seconds: float = 1.0
) -> tuple[Utilisation, float]:
    """Run ``runner`` for ``seconds`` (at least 0.5) between two samples of the counters.

    With what they say comes the mean time of a request meanwhile, in ns: one that takes twice as
    long as it was timed, beside a neighbour on the host, leaves the GPU idle for longer, and every
    percentage at half.

    Raises:
        UnavailableError: "not available here: ...": a GPU before Hopper, no right to read the
            counters, or a profiler that holds them.
        RunnerError: the runner failed.
    """
    if not _LEAST_S <= seconds < 1e6:
        raise InvalidArgumentError(
            f"seconds is {seconds}; it has to be at least {_LEAST_S}, below which GPM's counters "
            "are not refreshed often enough"
        )
    _require_support(gpu)
    with _make_sample(gpu) as before, _make_sample(gpu) as after:
        taken: list[tuple[int, int]] = []  # after so many rounds, at this time in ns

        def read(done: int, ended: bool) -> None:
            if ended or not taken:
                gpu.require("nvmlGpmSampleGet", after if ended else before)
                taken.append((done, _core.now_ns()))

        run = drive(runner, seconds=seconds, lead_in_s=_LEAD_IN_S, read=read)
        sms, warps, dram, tensor = _compute_metrics(gpu, before, after)
    (first, start_ns), (_, end_ns) = taken
    found = Utilisation(
        sms_active_pct=sms,
        warp_occupancy_pct=warps,
        dram_bandwidth_pct=dram,
        tensor_active_pct=tensor,
        seconds=(end_ns - start_ns) / 1e9,
    )
    return found, sum(run.round_ns[first:]) / sum(run.requests[first:])


def _require_support(gpu: NvmlGpu) -> None:
    if not gpu.require("nvmlGpmQueryDeviceSupport").isSupportedDevice:
        raise UnavailableError(
            f"not available here: {gpu.device!r} has no GPM counters (NVIDIA GPUs since Hopper do)"
        )


@contextmanager
def _make_sample(gpu: NvmlGpu) -> Iterator[Any]:
    nvml = gpu.nvml
    try:
        sample = nvml.nvmlGpmSampleAlloc()
    except nvml.NVMLError as error:
        raise UnavailableError(f"not available here: nvmlGpmSampleAlloc: {error}") from error
    try:
        yield sample
    finally:
        with suppress(nvml.NVMLError):
            nvml.nvmlGpmSampleFree(sample)


def _compute_metrics(gpu: NvmlGpu, before: Any, after: Any) -> list[float | None]:
    nvml = gpu.nvml
    wanted = (
        nvml.NVML_GPM_METRIC_SM_UTIL,
        nvml.NVML_GPM_METRIC_SM_OCCUPANCY,
        nvml.NVML_GPM_METRIC_DRAM_BW_UTIL,
        nvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL,
    )
    request = nvml.c_nvmlGpmMetricsGet_t()
    request.version = nvml.NVML_GPM_METRICS_GET_VERSION
    request.numMetrics = len(wanted)
    request.sample1, request.sample2 = before, after
    for place, metric in enumerate(wanted):
        request.metrics[place].metricId = metric
    try:
        nvml.nvmlGpmMetricsGet(request)
    except nvml.NVMLError as error:
        raise UnavailableError(f"not available here: nvmlGpmMetricsGet: {error}") from error
    # Each metric has a return code of its own, and its value means nothing unless that is 0.
    answers = [request.metrics[place] for place in range(len(wanted))]
    values = [
        answer.value if answer.nvmlReturn == 0 and math.isfinite(answer.value) else None
        for answer in answers
    ]
    if all(value is None for value in values):
        raise UnavailableError(
            f"not available here: GPM gives no metric of {gpu.device!r} (return codes "
            f"{', '.join(str(answer.nvmlReturn) for answer in answers)})"
        )
    return values
