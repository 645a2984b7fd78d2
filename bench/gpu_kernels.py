"""ftax's kernel trace against other instruments on the same work: torch.profiler and ncu.

BERT-base in fp16, as a CUDA graph and eager. torch.profiler reads the same CUPTI, so counts must be
equal and the sum of kernel durations within 1 %; each instrument has a process of its own, since
one leaves CUPTI changed for the next. ncu measures with counters, one kernel at a time. The
surprising choice: only kernels above 20 us are held to 5 % there. Where a duration begins and ends
is a matter of definition, and that is much of a short kernel; those are tabulated.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from typing import Any

import torch
from kernel_lists import TRACERS, count_differences, is_fill
from ncu import Profiled, profile_code

from ftax.errors import InvalidArgumentError
from ftax.instruments.trace.names import shorten
from ftax.machines.environment import collect_environment
from ftax.runtimes.catalogue import find_runtime
from ftax.runtimes.workspace import Workspace
from ftax.steps.load import load_model
from ftax.timing.candidate import Host
from record import Figure, finish, make_parser, progress, run_json, show

_MODEL = "bert-base"
# Eager first: torch.profiler has crashed over graphs where CUPTI was used before.
_CASES: dict[str, tuple[str, Host]] = {
    "eager/python": ("eager", "python"),
    "eager/cpp": ("eager", "cpp"),
    "cuda-graph/cpp": ("cuda-graph", "cpp"),
}
_NCU_CASE = "eager/cpp"  # so that kernels are launched one by one, and soon
_LONG_NS = 20_000
_LONG_RATIO = 0.05
_NCU_TIMEOUT_S = 240.0


def work(instrument: str, quick: bool) -> dict[str, Any]:
    """One process: one instrument on all cases; per case the names and, per inference, ns."""
    trace = TRACERS[instrument]
    cases = {}
    for batch in choose_batches(quick):
        loaded = load_model(_MODEL, dtype="fp16", device="cuda", batch=batch, tiny=quick)
        workspace = Workspace(loaded)
        for label, (runtime, host) in _CASES.items():
            found = trace(loaded, find_runtime(runtime).prepare(workspace, host))
            cases[name_case(batch, label)] = {
                "names": [name for name, _ in found[0]],
                "durations_ns": [[ns for _, ns in launches] for launches in found],
            }
    return {"cases": cases, "environment": collect_environment(device="cuda").to_dict()}


def choose_batches(quick: bool) -> tuple[int, ...]:
    """Kernels of a few us, and of tens of us."""
    return (1,) if quick else (1, 32)


def name_case(batch: int, label: str) -> str:
    return f"batch {batch}, {label}"


def run_instrument(instrument: str, quick: bool) -> dict[str, Any]:
    """`work` in a process of its own."""
    flags = ["--worker", "--instrument", instrument, *(["--quick"] if quick else [])]
    output: dict[str, Any] = run_json([sys.executable, __file__, *flags])
    return output


def compare_with_torch(
    ours: Sequence[dict[str, Any]], theirs: Sequence[dict[str, Any]], case: str
) -> dict[str, Any]:
    """Per pair of processes: launches that differ, and the ratio of kernel times."""
    differences, sums = [], []
    for one, other in zip(ours, theirs, strict=True):
        a, b = one["cases"][case], other["cases"][case]
        differences.append(count_differences(a["names"], b["names"]))
        sums.append([statistics.median(map(sum, found["durations_ns"])) for found in (a, b)])
    return {
        "kernels": len(ours[0]["cases"][case]["names"]),
        "differences": differences,
        "sums_ns": sums,
        "ratios": [theirs_ns / ours_ns for ours_ns, theirs_ns in sums],
    }


def run_ncu(ours: Sequence[dict[str, Any]], batch: int, quick: bool) -> dict[str, Any]:
    """One inference under ncu against our medians over processes, launch by launch."""
    runtime, host = _CASES[_NCU_CASE]
    code = (
        f"from ftax.ladders.trace import profile_once; "
        f"profile_once({_MODEL!r}, runtime={runtime!r}, host={host!r}, "
        f"device='cuda', dtype='fp16', batch={batch}, tiny={quick})"
    )
    profiled = profile_code(code, timeout_s=_NCU_TIMEOUT_S)
    if profiled.reason:
        return {"reason": profiled.reason}
    return compare_with_ncu(profiled, [item["cases"][name_case(batch, _NCU_CASE)] for item in ours])


def compare_with_ncu(profiled: Profiled, ours: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Launches that differ and, if none does, ours and ncu's duration of each in ns."""
    pairs = zip(profiled.names, profiled.durations_ns, strict=True)
    kept = [(name, ns) for name, ns in pairs if not is_fill(name)]
    names = ours[0]["names"]
    differences = count_differences(names, [name for name, _ in kept])
    if differences:
        return {"reason": "", "kernels": len(kept), "differences": differences, "launches": []}
    columns = zip(*(row for item in ours for row in item["durations_ns"]), strict=True)
    medians = [statistics.median(column) for column in columns]
    launches = [
        {"kernel": shorten(name), "ftax_ns": ours_ns, "ncu_ns": ncu_ns}
        for (name, ncu_ns), ours_ns in zip(kept, medians, strict=True)
    ]
    return {"reason": "", "kernels": len(kept), "differences": 0, "launches": launches}


def show_ncu(batch: int, found: dict[str, Any]) -> None:
    """A row a kernel, by its share of the time."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for launch in found["launches"]:
        groups.setdefault(launch["kernel"], []).append(launch)
    rows = []
    for kernel, launches in groups.items():
        ours, ncu = (sum(item[key] for item in launches) for key in ("ftax_ns", "ncu_ns"))
        each = [item["ncu_ns"] / item["ftax_ns"] for item in launches]
        ends = f"{min(each):.2f} to {max(each):.2f}"
        rows.append((ours, (kernel, str(len(launches)), f"{ours / 1e3:.1f}", f"{ncu / 1e3:.1f}",
                            f"{statistics.median(each):.3f}", ends)))  # fmt: skip
    columns = ("kernel", "launches", "ftax, us", "ncu, us", "median ratio", "from, to")
    ordered = [row for _, row in sorted(rows, key=lambda item: -item[0])]
    show(f"{_MODEL} fp16, {name_case(batch, _NCU_CASE)}: one inference", columns, ordered)


def make_ncu_figures(batch: int, found: dict[str, Any]) -> list[Figure]:
    """Launches that differ; long kernels against 5 %; short ones as they are."""
    title = f"{name_case(batch, _NCU_CASE)}, ncu"
    figures = [
        Figure(name=f"{title}: launches that differ", values=(float(found["differences"]),),
               unit="launches", at_most=0.0)
    ]  # fmt: skip
    for long in (True, False):
        chosen = [item for item in found["launches"] if (item["ftax_ns"] > _LONG_NS) == long]
        if not chosen:
            continue
        ratios = [item["ncu_ns"] / item["ftax_ns"] for item in chosen]
        which = f"{title}: kernels {'above' if long else 'up to'} 20 us"
        if long:
            close = statistics.fmean(abs(ratio - 1) <= _LONG_RATIO for ratio in ratios)
            figures.append(
                Figure(name=f"{which} within 5 %", values=(close,), unit=f"of {len(chosen)}",
                       at_least=1.0)
            )  # fmt: skip
        total = sum(item["ncu_ns"] for item in chosen) / sum(item["ftax_ns"] for item in chosen)
        figures += [
            Figure(name=f"{which}, sum", values=(total,), unit="of ftax's"),
            Figure(name=f"{which}, median", values=(statistics.median(ratios),), unit="of ftax's"),
        ]
    return figures


def make_torch_figures(case: str, found: dict[str, Any]) -> list[Figure]:
    """Launches that differ, and kernel time within 1 %."""
    return [
        Figure(name=f"{case}: launches that differ", values=tuple(map(float, found["differences"])),
               unit=f"of {found['kernels']}", at_most=0.0),
        Figure(name=f"{case}: kernel time of torch.profiler", values=tuple(found["ratios"]),
               unit="of ftax's", at_least=0.99, at_most=1.01),
    ]  # fmt: skip


def parse_options() -> argparse.Namespace:
    parser = make_parser(__doc__)
    parser.add_argument("--no-ncu", action="store_true", help="compare with torch.profiler alone")
    parser.add_argument("--instrument", choices=tuple(TRACERS), help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Run all instruments, print the tables, save the record."""
    options = parse_options()
    if options.worker:
        print(json.dumps(work(options.instrument, options.quick)))
        return
    if not torch.cuda.is_available():
        progress("gpu_kernels: torch finds no CUDA device, so there are no kernels to compare")
        return
    if options.processes < 1:
        raise InvalidArgumentError(f"--processes is {options.processes}; give 1 or more")
    outputs: dict[str, list[dict[str, Any]]] = {instrument: [] for instrument in TRACERS}
    for index in range(options.processes):
        for instrument in sorted(outputs, reverse=index % 2 == 1):  # neither is always the first
            progress(f"gpu_kernels: {instrument}, process {index + 1} of {options.processes}")
            outputs[instrument].append(run_instrument(instrument, options.quick))
    raw: dict[str, Any] = {"torch.profiler": {}, "ncu": {}}
    figures: list[Figure] = []
    for case in outputs["ftax"][0]["cases"]:
        raw["torch.profiler"][case] = compare_with_torch(outputs["ftax"], outputs["torch"], case)
        figures += make_torch_figures(case, raw["torch.profiler"][case])
    for batch in () if options.no_ncu else choose_batches(options.quick):
        progress(f"gpu_kernels: ncu, batch {batch}")
        found = run_ncu(outputs["ftax"], batch, options.quick)
        raw["ncu"][f"batch {batch}"] = found
        if found["reason"]:
            progress(f"gpu_kernels: no numbers from ncu: {found['reason']}")
            continue
        show_ncu(batch, found)
        figures += make_ncu_figures(batch, found)
    environment = outputs["ftax"][0]["environment"]
    finish(__file__, options, figures, raw=raw, environment=environment)


if __name__ == "__main__":
    main()
