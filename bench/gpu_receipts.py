"""Receipts of three models on a GPU, in half precision at three batch sizes, and what they prove.

Every cell has a process of its own, so a fault in one costs no other, and is appended as soon as it
is done. The surprising choice: what a receipt's total is held against, `ftax.py_bench` and a plain
loop, is timed before the receipt, by turns with rounds as a receipt takes them. A traced process is
no place to time, and a host with neighbours is another one half a minute later.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from receipt_cells import AGREEMENT_LIMIT, CHECKS, describe, make_figures, show_cells, show_spread
from receipt_turns import judge_turns, take_turns

import ftax
from ftax.errors import RunnerError
from ftax.steps.load import load_model
from ftax.timing.session import Plan
from record import RESULTS, append_line, finish, make_parser, progress, run_json

_MODELS = ("bert-base", "resnet-50", "gpt2")
_BATCHES = (1, 8, 32)
_CELL_LIMIT_S = 240.0
_PATIENCE_S = 5.0  # with a neighbour on the core
_RECORDS = "gpu_receipts_records.jsonl"


def work(options: argparse.Namespace) -> dict[str, Any]:
    """One cell, in this process; its receipt is appended to the records."""
    loaded = load_model(
        options.model, device="cuda", dtype="fp16", batch=options.batch, tiny=options.quick
    )
    times = take_turns(loaded, 6 if options.quick else options.turns)
    progress(f"turns of {options.model}, batch {options.batch}, are over")
    start = time.perf_counter()
    plan = Plan(duration_s=1.0 if options.quick else options.duration, patience_s=_PATIENCE_S)
    receipt = ftax.tax(loaded, runtimes="none", trace="here", plan=plan)
    tax_s = time.perf_counter() - start
    receipt.save(options.records)
    return {
        "model": options.model,
        "batch": options.batch,
        "tax_s": tax_s,
        **describe(receipt),
        "turns_ns": times,
        "agreement": judge_turns(times, AGREEMENT_LIMIT),
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
    records = options.folder / _RECORDS
    names = ("--model", "--batch", "--duration", "--turns", "--records")
    values = (model, batch, options.duration, options.turns, records)
    return [
        sys.executable,
        __file__,
        "--worker",
        *(["--quick"] if options.quick else []),
        *(str(part) for pair in zip(names, values, strict=True) for part in pair),
    ]


def parse() -> argparse.Namespace:
    """The options, with the small ones that --quick stands for."""
    parser = make_parser(__doc__)
    parser.add_argument("--models", nargs="+", default=_MODELS, help=" ".join(_MODELS))
    parser.add_argument("--batches", nargs="+", type=int, default=_BATCHES, help="1 8 32")
    parser.add_argument(
        "--duration", type=float, default=20.0, help="seconds of rounds a cell (20)"
    )
    parser.add_argument("--turns", type=int, default=40, help="with what it is held against (40)")
    parser.add_argument(
        "--spread",
        action="store_true",
        help="measure nothing; the receipts on record, cell by cell",
    )
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
    if options.spread:
        show_spread((options.results or RESULTS) / _RECORDS)
        return
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
