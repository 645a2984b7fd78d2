"""ftax's kernel trace against torch.profiler on the same work.

BERT-base in fp16, eager and as a CUDA graph. Both read CUPTI, so the launches must be the same ones
and the sum of kernel durations within 1 %; each instrument has a process, since one leaves CUPTI
changed for the next. A fill that the driver runs as a kernel is left out: whether it becomes one is
the driver's affair.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from ftax.errors import RunnerError
from ftax.instruments.trace.integrity import judge
from ftax.instruments.trace.kernel_set import find_memory_kind
from ftax.instruments.trace.names import demangle, shorten
from ftax.instruments.trace.tracer import trace_prepared
from ftax.machines.environment import collect_environment
from ftax.runtimes.catalogue import find_runtime
from ftax.runtimes.workspace import Workspace
from ftax.steps.load import load_model
from ftax.steps.loaded import LoadedModel
from ftax.timing.candidate import Candidate, Host
from record import figure, finish, make_parser, progress, run_json, show

_MODEL = "bert-base"
# Eager first: torch.profiler has crashed over graphs where CUPTI was used before.
_CASES: dict[str, tuple[str, Host]] = {
    "eager/python": ("eager", "python"),
    "eager/cpp": ("eager", "cpp"),
    "cuda-graph/cpp": ("cuda-graph", "cpp"),
}
_ITERATIONS, _WARMUP = 20, 5

Launches = list[tuple[str, float]]  # of one inference, in order: name of the kernel, ns


def trace_with_ftax(loaded: LoadedModel, prepared: Candidate) -> list[Launches]:
    """Kernels of each inference."""
    trace = trace_prepared(loaded, prepared, iterations=_ITERATIONS, kinds=())
    verdict = judge(trace)
    if not verdict.ok:
        raise RunnerError(f"the trace of {trace.label} is unreliable: {'; '.join(verdict.reasons)}")
    return [
        [(one.name, float(one.duration_ns)) for one in part.kernels if not find_memory_kind(one)]
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
    found = sorted((e for e in events if e.get("cat") == "kernel"), key=lambda event: event["ts"])
    kernels = [(e["name"], e["dur"] * 1e3) for e in found if not is_fill(e["name"])]
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


def work(instrument: str, quick: bool) -> dict[str, Any]:
    """One process: one instrument on all cases; the names, and the kernel time of an inference."""
    cases = {}
    for batch in (1,) if quick else (1, 32):  # kernels of a few us, and of tens of us
        loaded = load_model(_MODEL, dtype="fp16", device="cuda", batch=batch, tiny=quick)
        workspace = Workspace(loaded)
        for label, (runtime, host) in _CASES.items():
            prepared = find_runtime(runtime).prepare(workspace, host)
            found = TRACERS[instrument](loaded, prepared)
            cases[f"batch {batch}, {label}"] = {
                "names": [name for name, _ in found[0]],
                "sum_ns": statistics.median(sum(ns for _, ns in launches) for launches in found),
            }
    return {"cases": cases, "environment": collect_environment(device="cuda").to_dict()}


def compare(
    ours: Sequence[dict[str, Any]], theirs: Sequence[dict[str, Any]], case: str
) -> dict[str, Any]:
    """Per pair of processes: launches that differ, and the ratio of kernel times."""
    pairs = [(one["cases"][case], other["cases"][case])
             for one, other in zip(ours, theirs, strict=True)]  # fmt: skip
    return {
        "kernels": len(pairs[0][0]["names"]),
        "differences": [float(count_differences(a["names"], b["names"])) for a, b in pairs],
        "sums_ns": [[a["sum_ns"], b["sum_ns"]] for a, b in pairs],
        "ratios": [b["sum_ns"] / a["sum_ns"] for a, b in pairs],
    }


def main() -> None:
    """Run both instruments, print the table, save the record."""
    parser = make_parser(__doc__)
    parser.add_argument("--instrument", choices=tuple(TRACERS), default="ftax")
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(work(options.instrument, options.quick)))
        return
    outputs: dict[str, list[dict[str, Any]]] = {instrument: [] for instrument in TRACERS}
    for index in range(options.processes):
        for instrument in sorted(outputs, reverse=index % 2 == 1):  # neither is always the first
            progress(f"gpu_kernels: {instrument}, process {index + 1} of {options.processes}")
            flags = ["--worker", "--instrument", instrument, *["--quick"] * options.quick]
            outputs[instrument].append(run_json([sys.executable, __file__, *flags]))
    first = outputs["ftax"][0]
    raw = {case: compare(outputs["ftax"], outputs["torch"], case) for case in first["cases"]}
    rows = [
        (case, str(found["kernels"]), f"{max(found['differences']):.0f}",
         *(f"{statistics.median(ns) / 1e3:.1f}" for ns in zip(*found["sums_ns"], strict=True)),
         f"{statistics.median(found['ratios']):.3f}")
        for case, found in raw.items()
    ]  # fmt: skip
    columns = ("case", "kernels", "differ", "ftax, us", "torch.profiler, us", "ratio")
    show(f"{_MODEL} fp16: kernels of an inference", columns, rows)
    figures = []
    for case, found in raw.items():
        figures += [
            figure(
                f"{case}: launches that differ",
                found["differences"],
                f"of {found['kernels']}",
                at_most=0.0,
            ),
            figure(
                f"{case}: kernel time of torch.profiler",
                found["ratios"],
                "of ftax's",
                at_most=1.01,
                at_least=0.99,
            ),
        ]
    finish(__file__, options, figures, raw=raw, environment=first["environment"])


if __name__ == "__main__":
    main()
