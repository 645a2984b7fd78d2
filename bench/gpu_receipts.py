"""Receipts of three models on a GPU, in half precision at three batch sizes, and what they prove.

Every cell has a process of its own, so a fault in one costs no other, and is appended as soon as it
is done. In the same process Python eager is timed twice more, by `ftax.py_bench` and by the loop
that people write by hand. The surprising choice: both are timed before the receipt's rounds and
again behind them, before the receipt traces anything, for a traced process is no place to time.
Their mean stands against the receipt, so that a host which only grows slower is no disagreement,
and how far they moved meanwhile says what the host allows to be told.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from receipt_cells import CHECKS, Timing, describe, judge_agreement, make_figures, show_cells
from record import RESULTS, append_line, finish, make_parser, progress, run_json

import ftax
from ftax.errors import RunnerError
from ftax.gate import MedianTime
from ftax.measure import Plan
from ftax.models import LoadedModel, load_model
from ftax.receipt_api import tax_with_traces

_MODELS = ("bert-base", "resnet-50", "gpt2")
_BATCHES = (1, 8, 32)
_CELL_LIMIT_S = 240.0
_BLOCK_NS = 20e6
_PATIENCE_S = 5.0  # with a neighbour on the core


def time_by_hand(loaded: LoadedModel, blocks: int) -> Timing:
    """Median over blocks of each block's median, with its interval: a plain Python loop.

    On a stream that is not the default one and under inference mode, as ftax times it. A median,
    because this loop knows of no neighbours and so cannot leave out what they disturbed.
    """
    call = loaded.bind()
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()), torch.inference_mode():
        warm = [_time_one(call) for _ in range(30)]
        size = max(5, int(_BLOCK_NS / statistics.median(warm)))
        medians = [
            statistics.median([_time_one(call) for _ in range(size)][1:]) for _ in range(blocks)
        ]
    found = MedianTime.compute([int(value) for value in medians])
    return Timing(found.median_ns, (found.high_ns - found.low_ns) / 2)


def time_by_bench(loaded: LoadedModel, plan: Plan) -> Timing:
    """`ftax.py_bench` of Python eager."""
    found = ftax.py_bench(loaded, plan=plan)
    ends = found.interval_ns
    return Timing(found.latency_ns, None if ends is None else (ends[1] - ends[0]) / 2)


def _time_one(call: Callable[[], object]) -> int:
    start_ns = time.perf_counter_ns()
    call()
    torch.cuda.synchronize()
    return time.perf_counter_ns() - start_ns


def work(options: argparse.Namespace) -> dict[str, Any]:
    """One cell, in this process; its receipt is appended to the records."""
    loaded = load_model(
        options.model, device="cuda", dtype="fp16", batch=options.batch, tiny=options.quick
    )
    seconds, blocks = (1.0, 10) if options.quick else (options.duration, 60)
    short = Plan(duration_s=max(1.0, seconds / 6), patience_s=_PATIENCE_S)
    times: dict[str, list[Timing]] = {"py_bench": [], "plain loop": []}

    def time_alone(receipt: ftax.Receipt | None = None) -> None:
        times["py_bench"].append(time_by_bench(loaded, short))
        times["plain loop"].append(time_by_hand(loaded, blocks))

    time_alone()
    start = time.perf_counter()
    plan = Plan(duration_s=seconds, patience_s=_PATIENCE_S)
    receipt, _ = tax_with_traces(loaded, runtimes="none", trace="here", plan=plan, keep=time_alone)
    tax_s = time.perf_counter() - start
    receipt.save(options.records)
    return {
        "model": options.model,
        "batch": options.batch,
        "tax_s": tax_s,
        **describe(receipt),
        "agreement": {name: judge_agreement(receipt, *around) for name, around in times.items()},
        "environment": receipt.rungs[0].environment.to_dict(),
    }


def run_cells(options: argparse.Namespace) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """A process a cell; what each said, and why some said nothing."""
    run = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    done: list[dict[str, Any]] = []
    failed: dict[str, str] = {}
    for model in options.models:
        for batch in options.batches:
            name = f"{model}, batch {batch}"
            start = time.perf_counter()
            try:
                cell = run_json(make_command(options, model, batch), timeout_s=_CELL_LIMIT_S)
            except (RunnerError, subprocess.TimeoutExpired, ValueError) as error:
                late = isinstance(error, subprocess.TimeoutExpired)  # its text is a command line
                failed[name] = f"not done after {_CELL_LIMIT_S:g} s" if late else str(error)
                progress(f"gpu_receipts: {name} failed: {failed[name]}")
                continue
            done.append({"run": run, "wall_s": time.perf_counter() - start, **cell})
            append_line(options.folder / "gpu_receipts_cells.jsonl", done[-1])
            progress(
                f"gpu_receipts: {name}: {cell['eager_us']:.0f} us, {done[-1]['wall_s']:.0f} s; "
                f"not held: {', '.join(k for k, holds in CHECKS.items() if not holds(cell)) or '-'}"
            )
    return done, failed


def make_command(options: argparse.Namespace, model: str, batch: int) -> list[str]:
    """The command of one cell's process."""
    records = options.folder / "gpu_receipts_records.jsonl"
    values = ("--model", model, "--batch", batch, "--duration", options.duration)
    return [
        sys.executable,
        __file__,
        "--worker",
        *(["--quick"] if options.quick else []),
        *map(str, (*values, "--records", records)),
    ]


def parse() -> argparse.Namespace:
    """The options, with the small ones that --quick stands for."""
    parser = make_parser(__doc__)
    parser.add_argument("--models", nargs="+", default=_MODELS, help=" ".join(_MODELS))
    parser.add_argument("--batches", nargs="+", type=int, default=_BATCHES, help="1 8 32")
    parser.add_argument("--duration", type=float, default=8.0, help="seconds of rounds a cell (8)")
    for name in ("--model", "--batch", "--records"):  # what a worker is given
        kind = {"--batch": int, "--records": Path}.get(name, str)
        parser.add_argument(name, type=kind, help=argparse.SUPPRESS)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp()) if options.quick else RESULTS
    options.folder = options.results or folder
    options.folder.mkdir(parents=True, exist_ok=True)
    return options


def main() -> None:
    """Run the cells, print the tables, save the record."""
    options = parse()
    if options.worker:
        print(json.dumps(work(options)))
        return
    cells, failed = run_cells(options)
    if not cells:
        sys.exit(f"gpu_receipts: no cell was measured: {next(iter(failed.values()), 'none asked')}")
    show_cells(cells)
    raw = {
        "failed": failed,
        "cells": [{key: cell[key] for key in cell if key != "environment"} for cell in cells],
    }
    figures = make_figures(cells, len(options.models) * len(options.batches))
    finish(__file__, options, figures, raw=raw, environment=cells[0]["environment"])


if __name__ == "__main__":
    main()
