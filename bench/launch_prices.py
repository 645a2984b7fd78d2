"""What the host pays for one launch, by kind: bursts of the same small thing, issued behind a gate.

The surprising choice: fills are asked of the driver through ctypes, because torch fills memory with
kernels, and a graph of those would hold no fill.
"""

from __future__ import annotations

import ctypes
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ftax import _core
from ftax.errors import FtaxError, RunnerError
from ftax.instruments.gate import Gated, measure_gate
from ftax.runtimes.tape.capture import capture_calls
from ftax.runtimes.workspace import Workspace

BURST = 200
REPETITIONS = 20
_BYTES = 4096  # of the small copies and fills

# The kinds of nodes of a graph beside kernels, and the burst that prices each.
OTHERS = {"memcpy": "copy", "memset": "fill"}


def read_issue_ns(gated: Gated) -> float:
    """Median host time to issue one request. Raises RunnerError if the gate never held."""
    if gated.issue_ns is None:
        raise RunnerError(f"the gate did not hold: {gated.reason}")
    return gated.issue_ns.median_ns


def make_bursts(
    workspace: Workspace, kinds: Sequence[str]
) -> tuple[dict[str, _core.Runner], dict[str, str]]:
    """Runners on the workspace's stream, each of many launches of one kind; why some are missing.

    There are "empty kernel", through the runtime's interface, and, replayed through the driver's,
    "small kernel", "copy" and "fill", the last two if their nodes are among ``kinds``.
    """
    source = torch.zeros(_BYTES, dtype=torch.uint8, device=workspace.loaded.device)
    target = torch.empty_like(source)
    calls: dict[str, tuple[str, Callable[[], object]]] = {
        "small kernel": ("kernel", lambda: target.add_(1)),
        "copy": ("memcpy", lambda: target.copy_(source)),
        "fill": ("memset", lambda: _fill(target)),
    }
    bursts: dict[str, _core.Runner] = {"empty kernel": _core.LaunchBurstRunner(BURST)}
    missing: dict[str, str] = {}
    for name, (node, call) in calls.items():
        if node in OTHERS and node not in kinds:
            continue
        try:
            bursts[name] = _capture_burst(call, target, node)
        except (FtaxError, RuntimeError, OSError) as error:
            missing[name] = str(error)
    return {name: workspace.on_stream(runner) for name, runner in bursts.items()}, missing


def price_bursts(bursts: Mapping[str, _core.Runner]) -> dict[str, float]:
    """Host time of one launch of each burst, ns."""
    return {
        name: read_issue_ns(measure_gate(burst, repetitions=REPETITIONS, launches=BURST)) / BURST
        for name, burst in bursts.items()
    }


def price_kernels(
    total_ns: float, types: Mapping[str, int], price_ns: Mapping[str, float]
) -> float | None:
    """Host time of one kernel of a replay: its copies and fills taken out at their price.

    None where one of those has no price.
    """
    rest_ns = total_ns
    for node, name in OTHERS.items():
        if types.get(node, 0):
            if name not in price_ns:
                return None
            rest_ns -= types[node] * price_ns[name]
    return rest_ns / types["kernel"]


def divide(turns: Sequence[Mapping[str, Any]], upper: str, lower: str) -> float | None:
    """Median over turns of the ratio of two prices; None where a turn lacks one."""
    pairs = [(turn.get(upper), turn.get(lower)) for turn in turns]
    ratios = [a / b for a, b in pairs if a is not None and b is not None]
    return statistics.median(ratios) if len(ratios) == len(turns) else None


def _fill(target: torch.Tensor) -> None:
    fill = ctypes.CDLL("libcuda.so.1").cuMemsetD8Async
    fill.argtypes = (ctypes.c_uint64, ctypes.c_ubyte, ctypes.c_size_t, ctypes.c_void_p)
    stream = torch.cuda.current_stream().cuda_stream
    code = fill(target.data_ptr(), 0, target.numel(), stream)
    if code != 0:
        raise RunnerError(f"cuMemsetD8Async failed with code {code}")


def _capture_burst(
    call: Callable[[], object], target: torch.Tensor, node: str
) -> _core.LaunchReplayRunner:
    def run() -> list[torch.Tensor]:
        for _ in range(BURST):
            call()
        return [target]

    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream), torch.inference_mode():
        call()  # whatever happens only once happens before the capture
    graph, outputs = capture_calls(run, stream)
    # The closure lives as long as the runner: it holds the memory that the graph reads.
    runner = _core.LaunchReplayRunner(graph.raw_cuda_graph(), node, (graph, outputs, run))
    types = {item["type"] for item in runner.nodes}
    if types != {node} or runner.launches != BURST:
        raise RunnerError(f"a burst of {node} launches became {runner.launches} of {sorted(types)}")
    return runner
