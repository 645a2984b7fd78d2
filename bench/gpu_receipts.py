"""Receipts of three models on a GPU, in half precision at three batch sizes, and what they prove.

Every cell has a process. Its total is held against `ftax.py_bench` and a plain loop: they are timed
before the receipt, in short turns with rounds of the ladder, since a traced process is no place to
time. On a host with neighbours the same loop can take a tenth longer half a minute later; a ratio
within a turn does not.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch

import ftax
from ftax import Receipt, _core
from ftax.errors import RunnerError
from ftax.ladders.choice import prepare_all
from ftax.ladders.ladder import EAGER
from ftax.runtimes.workspace import Workspace
from ftax.steps.load import load_model
from ftax.steps.loaded import LoadedModel
from ftax.timing.plan import Plan
from ftax.timing.session import measure, quiet, require
from record import Figure, figure, finish, keep_receipt, make_parser, progress, run_json, show

_MODELS, _BATCHES = ("bert-base", "resnet-50", "gpt2"), (1, 8, 32)
_CELL_LIMIT_S = 240.0
_PATIENCE_S = 5.0  # with a neighbour on the core
_MARGIN = 5.0  # %, of agreement, and between kernel durations of the rungs
_HALF_WIDTH_LIMIT = 2.0  # % of eager
ROUNDS, BENCH, LOOP = "rounds", "py_bench", "plain loop"
_LADDER_ROUNDS, _BLOCKS = 2, 6  # of one turn: the others have one runner each
_BLOCK_NS = 20e6  # as long as a runner's part of a round
_WARMUP = 3  # requests: it ran a moment ago


def take_turns(loaded: LoadedModel, turns: int) -> dict[str, list[float]]:
    """Latency of Python eager in ns, one number a turn from each of the three: the median of its
    rounds or blocks."""
    prepared, _ = prepare_all(Workspace(loaded), EAGER.list_places(loaded.device), None)
    ladder, alone = (Plan(warmup=_WARMUP, rounds=count) for count in (_LADDER_ROUNDS, _BLOCKS))
    timers: dict[str, Callable[[], float]] = {
        ROUNDS: lambda: statistics.median(require(measure(loaded, prepared, ladder))[0].values_ns),
        BENCH: lambda: statistics.median(ftax.py_bench(loaded, plan=alone).values_ns),
        LOOP: lambda: time_by_hand(loaded, _BLOCKS),
    }
    order = random.Random(0)
    found: dict[str, list[float]] = {name: [] for name in timers}
    with quiet():
        for _ in range(turns):
            for name in order.sample(sorted(timers), len(timers)):
                found[name].append(timers[name]())
    return found


def time_by_hand(loaded: LoadedModel, blocks: int) -> float:
    """Median of each block's median, ns: a plain Python loop, on a stream that is not the default
    one and under inference mode, as ftax times it."""
    call, on_gpu = loaded.bind(), loaded.device != "cpu"

    def time_one() -> int:
        start_ns = time.perf_counter_ns()
        call()
        if on_gpu:
            torch.cuda.synchronize()
        return time.perf_counter_ns() - start_ns

    if on_gpu:
        torch.cuda.synchronize()
    stream = torch.cuda.stream(torch.cuda.Stream()) if on_gpu else nullcontext()
    with stream, torch.inference_mode():
        warm = [time_one() for _ in range(_WARMUP)]
        size = max(5, int(_BLOCK_NS / statistics.median(warm)))
        return statistics.median(
            statistics.median([time_one() for _ in range(size)][1:]) for _ in range(blocks)
        )


def judge_turns(times: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """How far what others timed is off the rounds in percent, with the 95 % interval of the median
    ratio of a turn; and whether it agrees: "yes", where 0 lies in a narrow interval or all of it is
    within the margin; "no", where all of it is beyond; else "cannot tell"."""
    judged = {}
    for name in (BENCH, LOOP):
        ratios = [one / other for one, other in zip(times[name], times[ROUNDS], strict=True)]
        found = _core.compute_median_interval(ratios, 0.95)
        low, high = 100 * (found.interval.low - 1), 100 * (found.interval.high - 1)
        is_within = low >= -_MARGIN and high <= _MARGIN
        agrees = "cannot tell"
        if found.attained and (is_within or (low <= 0 <= high and high - low <= 2 * _MARGIN)):
            agrees = "yes"
        elif found.attained and (low > _MARGIN or high < -_MARGIN):
            agrees = "no"
        difference = 100 * (found.median - 1)
        judged[name] = {
            "difference_percent": difference, "interval_percent": [low, high], "agrees": agrees,
        }  # fmt: skip
    return judged


def describe(receipt: Receipt) -> dict[str, Any]:
    """What a receipt says, and what is checked of it."""
    first, top_ns = receipt.rungs[0], receipt.latency_ns
    low, high = first.interval_ns or (-math.inf, math.inf)
    found = {item.place: item for item in receipt.evidence}
    traced = [found.get(rung.place) for rung in receipt.rungs]
    # Eager is what the others are compared with, so it has no ratio of its own.
    ratios = [1.0, *(item.duration_ratio or math.inf if item else math.inf for item in traced[1:])]
    return {
        "eager_us": top_ns / 1e3,
        "half_width_percent": 50 * (high - low) / top_ns,
        "rounds": len(first.values_ns),
        "lines_us": {line.name: line.time_ns / 1e3 for line in receipt.lines},
        "sum_error_ratio": abs(math.fsum(line.time_ns for line in receipt.lines) / top_ns - 1),
        "same_kernels": [item is not None and item.same_kernels is True for item in traced],
        "duration_spread_percent": 100 * (max(ratios) / min(ratios) - 1),
        "unavailable": [
            f"{item.runtime}/{item.host}: {item.reason}" for item in receipt.unavailable
        ],
        "warnings": [*receipt.warnings, *first.warnings],
    }


CHECKS: dict[str, Callable[[Mapping[str, Any]], bool]] = {
    f"half-width of eager at most {_HALF_WIDTH_LIMIT:g} %": lambda cell: (
        cell["half_width_percent"] <= _HALF_WIDTH_LIMIT
    ),
    "lines sum to eager": lambda cell: cell["sum_error_ratio"] <= 1e-9,
    "same kernels on every rung": lambda cell: all(cell["same_kernels"]),
    f"kernel durations of rungs within {_MARGIN:g} %": lambda cell: (
        cell["duration_spread_percent"] <= _MARGIN
    ),
    "receipt, py_bench and a plain loop agree": lambda cell: all(
        item["agrees"] == "yes" for item in cell["agreement"].values()
    ),
    "no loop disagrees": lambda cell: all(
        item["agrees"] != "no" for item in cell["agreement"].values()
    ),
}


def make_figures(cells: Sequence[Mapping[str, Any]], asked: int) -> list[Figure]:
    """How many cells pass each check, of all that were asked for, and the worst values."""
    counts = {"cells": len(cells)}
    counts |= {name: sum(map(holds, cells)) for name, holds in CHECKS.items()}
    worst = {
        "widest half-width of eager": [cell["half_width_percent"] for cell in cells],
        "widest spread of kernel durations": [cell["duration_spread_percent"] for cell in cells],
        "largest difference of py_bench or plain loop": [
            abs(item["difference_percent"]) for cell in cells for item in cell["agreement"].values()
        ],
    }
    return [
        *(figure(name, count, "cells", at_least=asked)
          for name, count in counts.items()),
        *(figure(name, max(values), "%")
          for name, values in worst.items() if max(values) < math.inf),
        figure("wall time of a cell", (c["wall_s"] for c in cells), "s"),
    ]  # fmt: skip


def work(options: argparse.Namespace) -> dict[str, Any]:
    """One cell, in this process; its receipt is kept."""
    model, batch = options.models[0], options.batches[0]
    loaded = load_model(model, device="cuda", dtype="fp16", batch=batch, tiny=options.quick)
    times = take_turns(loaded, 6 if options.quick else options.turns)
    plan = Plan(duration_s=1.0 if options.quick else options.duration, patience_s=_PATIENCE_S)
    receipt = ftax.tax(loaded, runtimes="none", trace="here", plan=plan)
    keep_receipt(__file__, options, receipt)
    return {
        "model": model, "batch": batch, **describe(receipt), "turns_ns": times,
        "agreement": judge_turns(times), "environment": receipt.rungs[0].environment.to_dict(),
    }  # fmt: skip


def run_cells(options: argparse.Namespace) -> list[dict[str, Any]]:
    """A process a cell; one that fails is told."""
    done = []
    for model, batch in ((model, batch) for model in options.models for batch in options.batches):
        start = time.perf_counter()
        command = [
            sys.executable, __file__, "--worker", "--models", model, "--batches", str(batch),
            "--duration", str(options.duration), "--turns", str(options.turns),
            *(["--quick"] if options.quick else []),
            *(["--results", str(options.results)] if options.results else []),
        ]  # fmt: skip
        try:
            cell = run_json(command, timeout_s=_CELL_LIMIT_S)
        except (RunnerError, ValueError) as error:
            progress(f"gpu_receipts: {model}, batch {batch} failed: {error}")
            continue
        done.append({"wall_s": time.perf_counter() - start, **cell})
        missed = [name for name, holds in CHECKS.items() if not holds(cell)]
        progress(f"gpu_receipts: {model}, batch {batch}: {cell['eager_us']:.0f} us, "
                 f"{done[-1]['wall_s']:.0f} s; not held: {', '.join(missed) or '-'}")  # fmt: skip
    return done


def main() -> None:
    """Run the cells, print the table, save the record."""
    parser = make_parser(__doc__)
    parser.add_argument("--models", nargs="+", default=_MODELS, help=" ".join(_MODELS))
    parser.add_argument("--batches", nargs="+", type=int, default=_BATCHES, help="1 8 32")
    parser.add_argument("--duration", type=float, default=20.0, help="seconds of rounds a cell")
    parser.add_argument("--turns", type=int, default=40, help="with what it is held against")
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(work(options)))
        return
    cells = run_cells(options)
    if not cells:
        sys.exit("gpu_receipts: no cell was measured")
    rows = [
        (f"{cell['model']}, {cell['batch']}", f"{cell['eager_us']:.0f}",
         f"{cell['half_width_percent']:.2f}", str(cell["rounds"]),
         f"{sum(cell['same_kernels'])}/{len(cell['same_kernels'])}",
         f"{cell['duration_spread_percent']:.1f}",
         *("{:+.1f} ({:+.1f} to {:+.1f}; {})".format(
             item["difference_percent"], *item["interval_percent"], item["agrees"])
           for item in cell["agreement"].values()))
        for cell in cells
    ]  # fmt: skip
    columns = ("model, batch", "eager, us", "+-%", "rounds", "same kernels", "durations, %",
               "py_bench, %", "plain loop, %")  # fmt: skip
    show("receipts, fp16", columns, rows)
    raw = [{key: cell[key] for key in cell if key != "environment"} for cell in cells]
    figures = make_figures(cells, len(options.models) * len(options.batches))
    finish(__file__, options, figures, raw=raw, environment=cells[0]["environment"])


if __name__ == "__main__":
    main()
