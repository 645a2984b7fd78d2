"""The kernels of one inference in the order of their launches, as ftax and torch.profiler see them.

The surprising choice: a fill that the driver runs as a kernel is left out everywhere. Whether it
becomes a kernel is the driver's affair, and may differ under another instrument.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from ftax.errors import RunnerError
from ftax.instruments.trace.integrity import judge
from ftax.instruments.trace.kernel_set import find_memory_kind
from ftax.instruments.trace.names import demangle, shorten
from ftax.instruments.trace.run import trace_prepared
from ftax.steps.loaded import LoadedModel
from ftax.timing.candidate import Candidate

_ITERATIONS = 20
_WARMUP = 5

Launches = list[tuple[str, float]]  # of one inference, in order: name of the kernel, ns


def trace_with_ftax(loaded: LoadedModel, prepared: Candidate) -> list[Launches]:
    """Kernels of each inference; fills that the driver runs as kernels are none."""
    trace = trace_prepared(loaded, prepared, iterations=_ITERATIONS, kinds=())
    verdict = judge(trace)
    if not verdict.ok:
        raise RunnerError(f"the trace of {trace.label} is unreliable: {'; '.join(verdict.reasons)}")
    return [
        [
            (kernel.name, float(kernel.duration_ns))
            for kernel in part.kernels
            if not find_memory_kind(kernel)
        ]
        for part in trace.split()
    ]


def trace_with_torch(loaded: LoadedModel, prepared: Candidate) -> list[Launches]:
    """The same from the file that torch.profiler exports, where kernels are told from copies."""
    for _ in range(_WARMUP):
        prepared.runner.run_once()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(_ITERATIONS):
            prepared.runner.run_once()
        torch.cuda.synchronize(loaded.device)
    with tempfile.TemporaryDirectory(prefix="ftax-profile-") as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    found = [event for event in events if event.get("cat") == "kernel"]
    kernels = [
        (event["name"], event["dur"] * 1e3)
        for event in sorted(found, key=lambda event: event["ts"])
        if not is_fill(event["name"])
    ]
    size, rest = divmod(len(kernels), _ITERATIONS)
    if size == 0 or rest:
        raise RunnerError(
            f"torch.profiler has {len(kernels)} kernels of {_ITERATIONS} inferences, which cannot "
            "have been the same ones each time"
        )
    return [kernels[start : start + size] for start in range(0, len(kernels), size)]


def is_fill(name: str) -> bool:
    """Whether the driver's own kernel for a memset has this name; as ftax counts them."""
    text = demangle(name)
    return "memset" in text.lower() and "::" not in text


TRACERS = {"ftax": trace_with_ftax, "torch": trace_with_torch}


def count_differences(names: Sequence[str], others: Sequence[str]) -> int:
    """Launches, place by place, that are of another kernel or missing on one side."""
    pairs = zip(map(shorten, names), map(shorten, others), strict=False)
    return sum(a != b for a, b in pairs) + abs(len(names) - len(others))
