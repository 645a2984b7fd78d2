"""What is looked at once all rounds of a worker are over: counters of the GPU, then kernels, then
memory.

The order is forced: a trace leaves CUPTI in the process, which slows all that runs there later, and
may hold the counters that NVML reads; and memory is read with nothing else ready.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Any

import torch

from ftax.errors import describe_fault, is_out_of_memory, release
from ftax.instruments.readings import measure_peak_memory
from ftax.instruments.trace.activities import sum_busy_ns
from ftax.instruments.trace.integrity import judge
from ftax.instruments.trace.records import Trace
from ftax.instruments.trace.tracer import trace_prepared
from ftax.instruments.utilisation import watch_utilisation
from ftax.machines.nvml import open_gpu
from ftax.steps.loaded import LoadedModel
from ftax.sweeps.cells import CellTimer
from ftax.sweeps.job import FOUND, LOOKS, Cells, JobCell
from ftax.timing.candidate import Candidate
from ftax.timing.session import quiet

_COUNTERS_S = 0.5  # of requests, while counters are read
_SLOW = 1.15  # times as long as timed, from which on counters are read again
_MORE_RUNS = 3


def look_at(timer: CellTimer, sizes: Sequence[Cells]) -> None:
    """Take every look that is asked for, and answer for each."""
    with quiet():  # one collection for all of them: each would take longer than its look
        for look in LOOKS:
            for cells in sizes:
                for cell in cells:
                    if look in cell.looks and cell.place not in timer.failed:
                        _look(timer, cells, cell, look)
                if look == "trace":
                    timer.ready.pop(cells, None)


def _look(timer: CellTimer, cells: Cells, cell: JobCell, look: str) -> None:
    start = time.perf_counter()
    fields = _try(timer, cells, cell, look)
    if is_out_of_memory(str(fields.get("fact", ""))):
        # Also what was let go before and, with no collector running, is still there.
        timer.drop(cells)
        fields = _try(timer, cells, cell, look)
    timer.say(
        "looked",
        place=cell.place,
        look=look,
        fact=fields.pop("fact", FOUND),
        warnings=fields.pop("warnings", []),
        seconds=time.perf_counter() - start,
        fields=fields,
    )


def _try(timer: CellTimer, cells: Cells, cell: JobCell, look: str) -> dict[str, Any]:
    """What a look found; instead of it, the fact why it found nothing."""
    try:
        if look == "memory":
            return {"device_bytes": weigh(timer, cells, cell)}
        ready = timer.get_ready(cells)
        prepared = timer.prepare(ready, cell)
        timer.begin(look, [cell.place])
        if look == "trace":
            return read_trace(ready.workspace.loaded, prepared, timer.job.trace_iterations)
        timed_ns = timer.latency_ns.get(cell.place)
        return read_counters(prepared, timer.job.device, _COUNTERS_S, timed_ns)
    except Exception as error:  # the cell has its rounds, and keeps them
        release(error)
        return {"fact": describe_fault(error)}


def weigh(timer: CellTimer, cells: Cells, cell: JobCell, cuda: Any = torch.cuda) -> int:
    """Bytes of the device that a runtime takes, by the device's own count, which is the same for
    all runtimes: held after requests once the model that it was made of is gone, unless it is that
    model's, and what torch's allocator adds in a request. Allocators of runtimes keep their peak.
    ``cuda`` stands in for torch.cuda.
    """
    device = timer.job.device
    timer.drop_all()
    free_bytes, _ = cuda.mem_get_info(device)
    prepared = timer.prepare(timer.get_ready(cells), cell)
    timer.begin("memory", [cell.place])
    call_bytes = measure_peak_memory(prepared.run, device=device, cuda=cuda).call_bytes
    timer.drop_all()  # but what ``prepared`` needs
    left_bytes, _ = cuda.mem_get_info(device)
    del prepared
    held_bytes = max(0, int(free_bytes) - int(left_bytes))
    return held_bytes + call_bytes


def read_trace(loaded: LoadedModel, prepared: Candidate, iterations: int) -> dict[str, Any]:
    """Busy time, kernel time and kernels of one inference, if the trace is reliable."""
    trace = trace_prepared(loaded, prepared, iterations=iterations, kinds=())
    found = summarise(trace)
    try:
        peak = measure_peak_memory(prepared.run, device=loaded.device)
    except Exception as error:  # the trace is worth having without it
        release(error)
        return found
    return {**found, "peak_device_bytes": peak.call_bytes}


def summarise(trace: Trace) -> dict[str, Any]:
    """Medians over the iterations of a trace; instead of them, the fact why it is not reliable."""
    verdict = judge(trace)
    if not verdict.ok:
        return {"fact": verdict.describe()}
    parts = trace.split()
    return {
        "busy_ns": float(statistics.median(sum_busy_ns(part.activities) for part in parts)),
        "kernel_ns": float(
            statistics.median(sum(item.duration_ns for item in part.kernels) for part in parts)
        ),
        "kernels": len(parts[0].kernels),
    }


def read_counters(
    prepared: Candidate, device: str, seconds: float, timed_ns: float | None
) -> dict[str, Any]:
    """Counters of the GPU over a run in which requests took as long as they were timed.

    If they take longer, as beside a neighbour on the host, the GPU is read again; the fastest run
    of a few stays, with a warning if that is still slow. ``timed_ns`` is None if it is not known.
    """
    with open_gpu(device) as gpu:
        found, latency_ns = watch_utilisation(prepared.runner, gpu=gpu, seconds=seconds)
        usual_ns = latency_ns if timed_ns is None else timed_ns
        for _ in range(_MORE_RUNS):
            if latency_ns <= _SLOW * usual_ns:
                break
            again = watch_utilisation(prepared.runner, gpu=gpu, seconds=seconds)
            found, latency_ns = min((found, latency_ns), again, key=lambda run: run[1])
    slowdown = latency_ns / usual_ns
    return {
        "sm_active_ratio": _to_ratio(found.sms_active_pct),
        "sm_occupancy_ratio": _to_ratio(found.warp_occupancy_pct),
        "warnings": []
        if slowdown <= _SLOW
        else [
            f"the GPU's counters were read while requests took {slowdown:.1f} times as long as "
            "they were timed: it was idle for longer"
        ],
    }


def _to_ratio(percent: float | None) -> float | None:
    return None if percent is None else percent / 100
