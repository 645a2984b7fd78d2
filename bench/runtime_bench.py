"""The frame of the benchmarks of runtimes: a process a model, appended as soon as it is done.

Of a model that failed, the last line that its process wrote is kept: the runtime that it was at.
The surprising choice: a worker ends as soon as its record is written, without tearing down what a
dozen runtimes loaded, so that a fault at exit costs no result.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runtime_cells import describe, list_missing

from ftax.errors import RunnerError
from ftax.ladders.choice import CHOICES
from ftax.ladders.tax import tax_with_traces
from ftax.timing.session import Plan
from record import RESULTS, append_line, make_parser, progress, run_json

_QUICK_S = 4.0
_PATIENCE_S = 10.0  # with a neighbour on the core


def make_runtime_parser(
    doc: str | None,
    *,
    models: Sequence[str],
    dtype: str,
    device: str,
    duration_s: float,
    trace: str,
) -> argparse.ArgumentParser:
    """The options that these scripts share, with a script's own defaults."""
    parser = make_parser(doc)
    parser.add_argument("--models", nargs="+", default=list(models), help=" ".join(models))
    parser.add_argument("--runtimes", nargs="+", default=["all"], help="names; all or available")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--dtype", default=dtype)
    parser.add_argument("--device", default=device)
    parser.add_argument("--tiny", action="store_true", help="same depth, small widths")
    parser.add_argument("--duration", type=float, default=duration_s, help="seconds of rounds")
    parser.add_argument("--trace", default=trace, help="here, worker or none")
    parser.add_argument("--time-limit", type=float, default=1800.0, help="seconds for all models")
    for name in ("--model", "--records"):  # what a worker is given
        parser.add_argument(name, help=argparse.SUPPRESS)
    return parser


def parse(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The options, with the small ones that --quick stands for and a folder that exists."""
    options = parser.parse_args()
    if options.quick:
        options.tiny, options.duration = True, min(options.duration, _QUICK_S)
    options.folder = options.results or (Path(tempfile.mkdtemp()) if options.quick else RESULTS)
    options.folder.mkdir(parents=True, exist_ok=True)
    return options


def work(options: argparse.Namespace) -> None:
    """One model, in this process: append its receipt, print its cell, and end at once."""
    names: Any = options.runtimes
    if len(names) == 1 and names[0] in CHOICES:
        (names,) = names
    receipt, _ = tax_with_traces(
        options.model,
        device=options.device,
        dtype=options.dtype,
        batch=options.batch,
        tiny=options.tiny,
        runtimes=names,
        trace=options.trace,
        operators=False,
        plan=Plan(duration_s=options.duration, patience_s=_PATIENCE_S),
        progress=lambda phase, done, total: (
            progress(f"{options.model}: {phase}, {done}/{total}")
            if phase != "round" or done == 0
            else None
        ),
        keep=lambda rounds: rounds.save(f"{options.records}.rounds"),
    )
    receipt.save(options.records)
    Path(f"{options.records}.rounds").unlink()
    environment = receipt.rungs[0].environment.to_dict()
    print(json.dumps({**describe(receipt), "tiny": options.tiny, "environment": environment}))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def run_models(
    script: str, options: argparse.Namespace
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """A process a model; what each said, and why some said nothing."""
    name = Path(script).stem
    run = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    deadline = time.monotonic() + options.time_limit
    done: list[dict[str, Any]] = []
    failed: dict[str, str] = {}
    for model in options.models:
        progress(f"{name}: {model}")
        left_s = deadline - time.monotonic()
        start = time.perf_counter()
        try:
            if left_s <= 0:
                raise RunnerError("the time limit came first")
            cell = run_json(make_command(script, options, model), timeout_s=left_s)
        except (RunnerError, subprocess.TimeoutExpired, ValueError) as error:
            failed[model] = describe_fault(error)
            append_line(
                options.folder / f"{name}_cells.jsonl",
                {"run": run, "model": model, "failed": failed[model]},
            )
            progress(f"{name}: {model} failed: {failed[model]}")
            continue
        done.append({"run": run, "wall_s": time.perf_counter() - start, **cell})
        append_line(options.folder / f"{name}_cells.jsonl", done[-1])
        missing = list_missing(cell)
        progress(
            f"{name}: {model}: {len(cell['rows'])} rows, {len(missing)} missing, "
            f"{done[-1]['wall_s']:.0f} s, {cell['after_preparation_seconds']:.0f} s after preparing"
        )
    return done, failed


def choose(names: Sequence[str], runtimes: Sequence[str]) -> list[str]:
    """Those of ``names`` that ``--runtimes`` asked for."""
    everything = list(runtimes) in (["all"], ["available"])
    return [name for name in names if everything or name in runtimes]


def describe_fault(error: Exception) -> str:
    """One line; a time limit with the last line that the worker wrote before it."""
    if not isinstance(error, subprocess.TimeoutExpired):
        return str(error)
    written = error.stderr or b""
    text = written if isinstance(written, str) else written.decode(errors="replace")
    last = text.strip().splitlines()[-1:] or ["nothing"]
    return f"not done after {error.timeout:.0f} s; its last line: {last[0]}"


def make_command(script: str, options: argparse.Namespace, model: str) -> list[str]:
    """The command of one model's process."""
    records = options.folder / f"{Path(script).stem}_records.jsonl"
    values = {
        "--model": model, "--records": records, "--batch": options.batch, "--dtype": options.dtype,
        "--device": options.device, "--duration": options.duration, "--trace": options.trace,
    }  # fmt: skip
    return [
        sys.executable,
        script,
        "--worker",
        *(["--tiny"] if options.tiny else []),
        *(str(part) for pair in values.items() for part in pair),
        "--runtimes",
        *options.runtimes,
    ]


def strip(cells: Sequence[dict[str, Any]], failed: dict[str, str]) -> dict[str, Any]:
    """What a record keeps of the cells: the environment stands beside them once."""
    return {
        "failed": failed,
        "cells": [{key: cell[key] for key in cell if key != "environment"} for cell in cells],
    }
