"""Receipts of a compiled call, each line held against another measure of its layer.

Guards: the same model, compiled without any, in the rounds of the rung that skips them; and the
guard manager, asked by itself on the locals of a call. AOTAutograd's and Inductor's wrappers:
called around code that does nothing. The generated Python: each of its calls made once more with
the same arguments, and timed. Guards alone are no measure of their line. What they push out of the
caches the code behind them has to fetch again, and that is in it.
"""

from __future__ import annotations

import argparse
import copy
import functools
import re
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any, NamedTuple

import torch

import ftax
from ftax.ladders.receipt import Receipt
from ftax.runtimes.catalogue import find_runtime
from ftax.runtimes.compilers.taken_apart import Parts, make_piece, take_apart
from ftax.runtimes.compilers.torch_compile import Compilation
from ftax.runtimes.workspace import Workspace
from ftax.steps.given import use_threads
from ftax.steps.profiling_hook import watch_calls
from ftax.timing.differences import compute_intervals
from ftax.timing.session import measure, require
from record import (
    Figure,
    add_part_options,
    figure,
    keep_receipt,
    make_parser,
    progress,
    read_receipts,
    run_parts,
    show,
)

_PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "compile-lines.svg"
_MODELS = ("bert-base", "resnet-50", "gpt2")
_BATCHES = (1, 8)
_CALLS = 600
_WIDEST = 0.05  # of a call, is the interval of a line that is held against another measure
_WAYS = ("each its own", "one for all", "past the limit")
_LENGTHS, _LONGEST, _TURNS = (1, 2, 4, 8), 8, 3
_KINDS = {  # of what generated Python calls, by its name there
    "Triton kernels": r"triton_\w+\.run",
    "kernels in C++": r"cpp_\w+",
    "matrix products": r".*\w*mm(\.\w+)?",
    "attention": r".*_scaled_dot_product\w*\.\w+",
    "convolutions": r".*convolution(\.\w+)?",
    "memory": r"empty_strided\w*|reinterpret_tensor",
    "tests": r"assert_\w+",
}
_PLAIN = (torch.Tensor, torch.dtype, str, int, float, tuple, list, dict, type(None))
_ALONE = {
    "guards": "guards",
    "AOTAutograd's wrappers": "AOTAutograd",
    "Inductor's wrapper": "Inductor",
}


def time_each(*calls: Callable[[], object], before: Callable[[], object]) -> list[float]:
    """Median ns of each call, by turns, in the grad mode of the rungs. ``before`` each runs what
    has the caches as they are in a whole call."""
    times: list[list[int]] = [[] for _ in calls]
    with torch.inference_mode():
        for _ in range(_CALLS):
            for call, own in zip(calls, times, strict=True):
                before()
                start = time.perf_counter_ns()
                call()
                own.append(time.perf_counter_ns() - start)
    return [float(statistics.median(own)) for own in times]


def find_frame(call: Callable[[], object]) -> tuple[Any, dict[str, Any]]:
    """The guard manager that holds for a call, and the locals that it is asked on: of the first
    function on its way that TorchDynamo has compiled."""
    found: list[tuple[Any, dict[str, Any]]] = []
    seen: set[CodeType] = set()
    list_entries = torch._dynamo.eval_frame._debug_get_cache_entry_list

    def look(frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or found or frame.f_code in seen:
            return
        seen.add(frame.f_code)
        names = {name: copy.copy(item) if type(item) is dict else item  # it may be filled later
                 for name, item in frame.f_locals.items()}  # fmt: skip
        for entry in list_entries(frame.f_code):
            if entry.guard_manager.check(names):
                found.append((entry.guard_manager, names))
                return

    with torch.inference_mode(), torch.compiler.set_stance("force_eager"):
        watch_calls(look, call)
    if not found:
        raise RuntimeError("no guards were found that hold for this call")
    return found[0]


def time_wrappers(parts: Parts) -> dict[str, float]:
    """AOTAutograd's and Inductor's, around code that gives the results of a call again."""
    with torch.inference_mode():
        results = parts.call_generated()

    def do_nothing(inputs: list[Any]) -> Any:
        inputs.clear()  # as generated code does
        return results

    generated = parts.call_generated
    with parts.replacing_generated(do_nothing):
        inner, outer = time_each(parts.call_code, parts.call_graph, before=generated)
    return {"Inductor": inner, "AOTAutograd": outer - inner}


def time_rest_of_guards(workspace: Workspace, plan: ftax.Plan) -> tuple[float, Any]:
    """By how many ns more a call takes than its graph where guards are skipped, than where the same
    model was compiled without any; in the same rounds, with the interval of that."""
    without = {
        "guard_filter_fn": lambda guards: [False] * len(guards),
        "verbose_progress": False,  # as ever; with equal options torch takes what it has compiled
    }
    other = Compilation(workspace, "compiled-without-guards", options=without)
    prepared = [
        find_runtime("compile-without-guards").prepare(workspace, "python"),
        find_runtime("compile-graph").prepare(workspace, "python"),
        other.prepare("python"),
    ]
    parts = Parts(other)
    prepared.append(make_piece(workspace, "its-graph", "python", parts, parts.call_graph))
    measured = require(measure(workspace.loaded, prepared, plan))
    weights = (1.0, -1.0, -1.0, 1.0)
    more_ns = sum(weight * item.latency_ns for weight, item in zip(weights, measured, strict=True))
    return more_ns, compute_intervals(measured, [weights])[0]


def time_alone(workspace: Workspace) -> dict[str, float]:
    """ns of each layer that can be called alone."""
    parts = take_apart(workspace)
    manager, names = find_frame(parts.compilation.call)
    (guards,) = time_each(lambda: manager.check(names), before=parts.call_generated)
    return {"guards": guards, **time_wrappers(parts)}


class Noted(NamedTuple):
    """A call of generated Python."""

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Listener:
    """Stands in for a global of generated Python: notes what is called through it."""

    def __init__(self, name: str, item: Any, noted: list[Noted]) -> None:
        self._name, self._item, self._noted = name, item, noted

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._item, name)
        leads_on = callable(found) or isinstance(found, ModuleType)
        return Listener(f"{self._name}.{name}", found, self._noted) if leads_on else found

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Make the call, and note it."""
        self._noted.append(Noted(self._name, self._item, args, kwargs))
        return self._item(*args, **kwargs)


def note_calls(parts: Parts) -> list[Noted]:
    """What the generated Python calls in one call of it, in that order."""
    generated: Any = parts.generated
    # On a GPU its work stands in functions of its own, for the pieces that a CUDA graph could hold.
    pieces = [generated, *getattr(getattr(generated, "__self__", None), "partitions", ())]
    functions = [getattr(piece, "__func__", piece) for piece in pieces]
    names = functions[0].__globals__
    used = {name for function in functions for name in function.__code__.co_names if name in names}
    kept = {name: names[name] for name in used if not isinstance(names[name], _PLAIN)}
    noted: list[Noted] = []
    names.update({name: Listener(name, item, noted) for name, item in kept.items()})
    try:
        parts.call_generated()
    finally:
        names.update(kept)
    return noted


def time_calls(parts: Parts, device: str) -> tuple[float, dict[str, float]]:
    """ns that the host takes for the generated Python, and for what it calls, by kind: each call
    timed alone, one after the other, with the arguments that it had. By turns."""
    whole: list[int] = []
    with torch.inference_mode():
        noted = note_calls(parts)
        times: list[list[int]] = [[] for _ in noted]
        nothing = []
        for count in range(_CALLS):
            if device != "cpu" and count % 4 == 0:
                torch.cuda.synchronize()
            start = time.perf_counter_ns()
            parts.call_generated()
            whole.append(time.perf_counter_ns() - start)
            for call, own in zip(noted, times, strict=True):
                start = time.perf_counter_ns()
                call.function(*call.args, **call.kwargs)
                own.append(time.perf_counter_ns() - start)
            start = time.perf_counter_ns()
            nothing.append(time.perf_counter_ns() - start)
    clock = statistics.median(nothing)
    found = dict.fromkeys([*_KINDS, "the rest"], 0.0)
    for call, own in zip(noted, times, strict=True):
        found[name_kind(call.name)] += statistics.median(own) - clock
    return statistics.median(whole), found


def name_kind(name: str) -> str:
    """Of a call, by its name in generated Python."""
    kinds = (kind for kind, pattern in _KINDS.items() if re.fullmatch(pattern, name))
    return next(kinds, "the rest")


def take_costs(model: str, batch: int, options: argparse.Namespace) -> dict[str, Any]:
    """A receipt, and its layers alone."""
    on_gpu = options.device != "cpu"
    loaded = ftax.load_model(
        model, batch=batch, tiny=options.tiny, device=options.device,
        dtype="fp16" if on_gpu else "fp32",
    )  # fmt: skip
    plan = ftax.Plan(duration_s=options.duration, patience_s=options.duration / 2)
    with use_threads(None if on_gpu else 1):
        # First: what has been traced leaves a process that is slower.
        issue_ns, calls_ns = time_calls(take_apart(Workspace(loaded)), options.device)
        receipt = ftax.tax(
            loaded, ladder="compile", plan=plan, runtimes="none", operators=False, trace="here",
            progress=False,
        )  # fmt: skip
        keep_receipt(__file__, options, receipt)
        workspace = Workspace(loaded)
        alone = time_alone(workspace)
        left = time_rest_of_guards(workspace, plan)
    return {
        **judge(receipt), "alone_ns": alone, "left_ns": left, "issue_ns": issue_ns,
        "calls_ns": calls_ns,
    }  # fmt: skip


def take_shapes(options: argparse.Namespace) -> dict[str, Any]:
    """us of a call of BERT-base that meets so many lengths in turn: each compiled for itself, one
    compilation for all, and more than torch's limit of recompilations lets be compiled."""
    found: dict[str, dict[str, list[float]]] = {way: {} for way in _WAYS}
    on_gpu = options.device != "cpu"
    loaded = ftax.load_model(
        "bert-base", tiny=options.tiny, device=options.device, dtype="fp16" if on_gpu else "fp32",
        sequence=_LONGEST + max(_LENGTHS),
    )  # fmt: skip
    given = loaded.flat_inputs()
    for _ in range(_TURNS):
        for count in _LENGTHS:
            requests = [[item[:, : _LONGEST + extra] for item in given] for extra in range(count)]
            for way in _WAYS:
                times = time_lengths(loaded.function, requests, way, options.device)
                found[way].setdefault(str(count), []).append(times)
                progress(f"{count} lengths, {way}: {times:,.0f} us")
    return {
        "shapes_us": {
            way: {count: statistics.median(times) for count, times in by_count.items()}
            for way, by_count in found.items()
        }
    }


def time_lengths(
    function: Callable[..., Any], requests: Sequence[Sequence[torch.Tensor]], way: str, device: str
) -> float:
    """Mean us of a call, the requests one after the other, over and over."""
    torch._dynamo.reset()
    most = len(requests) // 2 if way == "past the limit" else len(requests)
    compiled = torch.compile(function, dynamic=way == "one for all")

    def call_all(turns: int) -> float:
        start = time.perf_counter()
        for _ in range(turns):
            for request in requests:
                compiled(*request)
        if device != "cpu":
            torch.cuda.synchronize()
        return (time.perf_counter() - start) / turns / len(requests) * 1e6

    with torch.inference_mode(), torch._dynamo.config.patch(recompile_limit=max(1, most)):
        call_all(2)
        return statistics.median(call_all(4) for _ in range(12))


def judge(receipt: Receipt) -> dict[str, Any]:
    """Lines with their intervals, and what must hold of them."""
    total = sum(line.time_ns for line in receipt.lines)
    return {
        "lines": {line.name: (line.time_ns, line.interval_ns) for line in receipt.lines},
        "problems": [line.problem for line in receipt.lines if line.problem],
        "latency_ns": receipt.latency_ns,
        "sum_error": abs(total / receipt.latency_ns - 1.0),
        "rungs": {str(rung.place): rung.latency_ns for rung in receipt.rungs},
        "beside": {str(row.measurement.place): row.latency_ns for row in receipt.runtimes},
        "phases_s": dict(receipt.rungs[0].preparation.get("compile_phases_s", {})),  # type: ignore[call-overload]
        "unavailable": {item.runtime: item.reason for item in receipt.unavailable},
    }


def agrees(cell: dict[str, Any], line: str) -> bool:
    """Whether another measure of a layer lies within 10 % of its line, or within its interval. Of
    guards it is what a call without them saves: the line, and what that rung has left of them."""
    time_ns, interval = cell["lines"][line]
    other_ns = time_ns + cell["left_ns"][0] if line == "guards" else cell["alone_ns"][_ALONE[line]]
    within = interval is not None and interval[0] <= other_ns <= interval[1]
    return within or abs(other_ns - time_ns) <= 0.1 * abs(time_ns)


def is_known(cell: dict[str, Any], line: str) -> bool:
    """Whether a line is known closely enough to be held against anything."""
    interval = cell["lines"].get(line, (0.0, None))[1]
    return interval is not None and interval[1] - interval[0] <= _WIDEST * cell["latency_ns"]


def list_figures(cells: dict[str, dict[str, Any]]) -> list[Figure]:
    """Over all cells that ran, whose lines are shown too; and a call's time by how many lengths it
    meets in turn."""
    cells = dict(cells)
    shapes = cells.pop("shapes", {"shapes_us": {}})
    rows = []
    for name, cell in cells.items():
        alone_ns = cell["alone_ns"]
        for line, (time_ns, _) in cell["lines"].items():
            alone = f"{alone_ns[_ALONE[line]] / 1e3:,.1f}" if _ALONE.get(line) in alone_ns else "-"
            rows.append((name, line, f"{time_ns / 1e3:,.1f}", alone))
    for way, by_count in shapes["shapes_us"].items():
        rows += [(f"{count} lengths", way, f"{us:,.1f}", "-") for count, us in by_count.items()]
    show("compiled calls, us", ("cell", "line", "in the receipt", "alone"), rows, left=2)
    found = [figure("cells", len(cells), "cells")]
    if not cells:
        return found
    worst = max(cell["sum_error"] for cell in cells.values())
    found.append(figure("lines that do not sum to the latency", worst, at_most=1e-9))
    known = [(cell, line) for cell in cells.values() for line in _ALONE if is_known(cell, line)]
    if known:
        found.append(
            figure(
                "lines that agree with another measure",
                sum(agrees(*item) for item in known),
                "lines",
                at_least=len(known),
            )
        )
    ratios = [sum(cell["calls_ns"].values()) / cell["issue_ns"] for cell in cells.values()]
    found.append(
        figure("calls alone, over generated Python", ratios, "x", at_most=1.1, at_least=0.9)
    )
    return found


def draw(receipts: Sequence[Receipt], path: Path) -> None:
    """The picture of docs/compile.md: the lines of each receipt, with their intervals."""
    from matplotlib import pyplot, rc_context

    with rc_context({"font.size": 8, "svg.fonttype": "none", "svg.hashsalt": "ftax"}):
        figure, places = pyplot.subplots(
            len(receipts), figsize=(6.5, 0.5 + 1.7 * len(receipts)), layout="constrained",
            squeeze=False,
        )  # fmt: skip
        for axes, receipt in zip(places.flat, receipts, strict=True):
            lines = receipt.lines[::-1]
            times = [line.time_ns / 1e3 for line in lines]
            ends = [line.interval_ns or (line.time_ns, line.time_ns) for line in lines]
            far = [
                [abs(end[side] / 1e3 - time) for end, time in zip(ends, times, strict=True)]
                for side in (0, 1)
            ]
            names = [line.name for line in lines]
            colors = ["#0072B2" if line.resolved else "#BBBBBB" for line in lines]
            axes.barh(names, times, xerr=far, color=colors, error_kw={"linewidth": 0.8})
            axes.set_title(name_receipt(receipt), fontsize=8, loc="left")
            axes.set_xlabel("us of a call; grey: not resolved")
            axes.spines[["top", "right"]].set_visible(False)
        figure.savefig(path, metadata={"Date": None, "Creator": "ftax"})
        pyplot.close(figure)


def show_beside(receipts: Sequence[Receipt]) -> None:
    """Print what AOTInductor saves of each call, and where, from receipts that have it beside the
    ladder: the table of docs/compile.md."""
    rows = []
    for receipt in receipts:
        cell = receipt.rungs[0].cell
        lines = {line.name: line.time_ns for line in receipt.lines}
        took = {item.cell.runtime: item.latency_ns for item in (*receipt.rungs, *receipt.others)}
        whole, aoti = took["compile"], took["aoti"]
        parts = (
            whole - took["inductor-call"],
            lines["generated Python"],
            took["inductor-cpp-call"] - aoti,
        )
        rows.append(
            (
                f"{cell.model} batch {cell.batch}",
                f"{whole / 1e3:,.0f}",
                *(f"{part / 1e3:,.0f} ({part / (whole - aoti):.0%})" for part in parts),
                f"{aoti / 1e3:,.0f}",
                f"{took['compile-reduce-overhead'] / 1e3:,.0f}",
            )
        )
    columns = ("cell", "compile", "the way to the code", "generated Python", "the rest", "aoti",
               "reduce-overhead")  # fmt: skip
    show("us of a call, and shares of what AOTInductor saves", columns, rows)


def name_receipt(receipt: Receipt) -> str:
    """ "bert-base on an H100, fp16, batch 1: 3,346 us"."""
    cell = receipt.rungs[0].cell
    gpu = receipt.rungs[0].environment.gpu
    where = "a CPU" if gpu is None else gpu.name.removeprefix("NVIDIA ")
    tiny = ", tiny" if cell.options.get("tiny") else ""
    latency = f"{receipt.latency_ns / 1e3:,.0f} us"
    return f"{cell.model}{tiny} on {where}, {cell.dtype}, batch {cell.batch}: {latency}"


def main() -> None:
    """Take the cells that are asked for, each kept as soon as it is there."""
    parser = make_parser(__doc__)
    add_part_options(parser, duration_s=12.0)
    parser.add_argument(
        "--draw", action="store_true", help="measure nothing; draw the page's picture and table"
    )
    options = parser.parse_args()
    if options.draw:
        draw(read_receipts("compile"), _PICTURE)
        show_beside(read_receipts("compile_beside"))
        return
    wanted = {
        f"{model} batch {batch}": functools.partial(take_costs, model, batch, options)
        for model in _MODELS
        for batch in _BATCHES
    }
    run_parts(__file__, {**wanted, "shapes": lambda: take_shapes(options)}, options, list_figures)


if __name__ == "__main__":
    main()
