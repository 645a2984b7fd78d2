"""How often `ftax.compare` is right: pairs that are the same, and pairs that differ by 5 %.

Each side of a pair is several fresh processes, which take turns with those of the other side, as in
`sweeps.processes`. The surprising choice: the workers are its own and measure a module made
on the spot, since 500 processes cannot all import transformers and check a tape. Each measures four
cells one after the other, and each cell together with itself slowed by 5 % of its own warm latency:
side b as it is makes a pair that is the same, side b slowed a pair that differs. Pairs of one cell
have no process in common; the four pairs of a set do, which the interval over all pairs does not
know: the rows by cell do not have that flaw.

Every set is appended to a file as soon as it is done; the summary is computed from that file, so a
run that stops at its time limit is continued with --resume.
"""

from __future__ import annotations

import argparse
import math
import os
import queue
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from pairs import (
    ROW_COLUMNS,
    PairedWorkers,
    Sides,
    compare_sides,
    count_verdicts,
    make_plan,
    make_row,
    open_run,
    read_side,
    run_sides,
    serve_pair,
    take_medians,
)
from torch import nn

import record as frame
from ftax import _core
from ftax.runtimes.tape.recording import record
from ftax.steps.load import load_model
from ftax.sweeps.processes import mark_turns, read_probe
from ftax.timing.candidate import Candidate
from ftax.timing.measurement import Measurement
from ftax.timing.session import measure, require
from ftax.workers.child import Line
from ftax.workers.turns import TurnTaker

KINDS = {"same": "equal", "slow": "slower"}  # comparison and its right answer
# Blocks, width, batch: from 40 to 150 us, in operators and in arithmetic.
_CELLS = {
    "8 blocks": (8, 64, 1),
    "16 blocks": (16, 64, 1),
    "wider": (8, 192, 1),
    "batch 16": (8, 64, 16),
}
_SLOWDOWN_RATIO = 0.05
_LEVEL_ROUNDS = 30  # by which the slowdown is sized


def serve(_: Any, line: Line) -> None:
    """The task of one process."""
    serve_pair(line, lambda: work)


def work(job: Mapping[str, Any], turns: TurnTaker) -> dict[str, Any]:
    """One process of one side: measure each cell as it is and slowed, in the same rounds."""
    torch.set_num_threads(1)
    answer = {}
    for name, sizes in _CELLS.items():
        for kind, measurement in zip(KINDS, measure_cell(*sizes, job, turns), strict=True):
            answer[f"{name}, {kind}"] = mark_turns(measurement, turns).to_dict()
    return answer


def measure_cell(
    blocks: int, width: int, batch: int, job: Mapping[str, Any], turns: TurnTaker
) -> tuple[Measurement, Measurement]:
    """A chain of linear and layer norm, as it is and slowed."""
    torch.manual_seed(0)
    layers = [
        part for _ in range(blocks) for part in (nn.Linear(width, width), nn.LayerNorm(width))
    ]
    loaded = load_model(nn.Sequential(*layers), inputs=torch.randn(batch, width))
    inputs = loaded.flat_inputs()
    tape = record(loaded.call, inputs=inputs, module=loaded.module, device="cpu")[0]
    runner = _core.TapeRunner(tape, "tape", device="cpu", grad_mode=_core.GradMode.inference)
    cell = Candidate(runtime="eager", host="cpp", runner=runner, run=tape.run)
    cpus = tuple(os.sched_getaffinity(0))
    plan = make_plan(job, round_ms=1.0, cpus=cpus)
    (alone,) = require(measure(loaded, [cell], replace(plan, rounds=_LEVEL_ROUNDS)))
    delay_ns = int(statistics.median(alone.values_ns) * _SLOWDOWN_RATIO)
    slowed = replace(cell, runner=_core.DelayRunner(runner, delay_ns))
    turns.begin()
    same, slow = require(measure(loaded, [cell, slowed], plan, turns))
    return same, slow


def run_set(number: int, processes: int) -> dict[str, Any]:
    """Measure two sides and, of each cell, compare b with a, and slowed b with a.

    Raises WorkerDied if a process fails.
    """
    start = time.monotonic()
    with PairedWorkers(__file__, 2) as workers:
        answers = run_sides(number, processes, workers.run_pair)
    return {
        "number": number,
        "seconds": time.monotonic() - start,
        "cells": {name: compare_cell(answers, name) for name in _CELLS},
    }


def compare_cell(answers: Sides, name: str) -> dict[str, Any]:
    """The pairs of one cell."""
    sides = {"a": read_side(answers["a"], f"{name}, same")}
    sides |= {kind: read_side(answers["b"], f"{name}, {kind}") for kind in KINDS}
    return {
        "values_ns": {side: take_medians(found) for side, found in sides.items()},
        "probes_ns": {side: [read_probe(m) for m in found] for side, found in sides.items()},
        **{kind: compare_sides(sides["a"], sides[kind]) for kind in KINDS},
    }


def run_sets(options: argparse.Namespace, run: str, done: list[dict[str, Any]]) -> None:
    """Run what is missing, one thread a CPU; each finished set is appended at once."""
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    wanted = math.ceil(options.pairs / len(_CELLS))
    for number in sorted(set(range(wanted)) - {item["number"] for item in done}):
        waiting.put(number)
    deadline = time.monotonic() + options.time_limit
    lock, stop, failures = threading.Lock(), threading.Event(), Counter[str]()
    slowest = 0.0

    def take_sets(cpu: int) -> None:
        nonlocal slowest
        os.sched_setaffinity(0, {cpu})  # of this thread alone; its workers inherit it
        while not stop.is_set() and time.monotonic() + 1.1 * slowest < deadline:
            try:
                number = waiting.get_nowait()
                item = run_set(number, options.processes)
            except queue.Empty:
                return
            except Exception as error:  # one broken set must not cost the others
                with lock:
                    failures[str(error)] += 1
                continue
            with lock:
                done.append({"run": run, **item})
                frame.append_line(options.sets_file, done[-1])
                slowest = max(slowest, item["seconds"])
                words = ", ".join(
                    f"{name} {cell['same']['verdict']} and {cell['slow']['verdict']}"
                    for name, cell in item["cells"].items()
                )
                frame.progress(f"compare_validity: set {len(done)} of {wanted}: {words}")

    usable = sorted(os.sched_getaffinity(0))
    # Spread out, so that two jobs do not share the two threads of one core.
    cpus = usable[:: max(1, len(usable) // options.jobs)][: options.jobs]
    threads = [threading.Thread(target=take_sets, args=(cpu,)) for cpu in cpus]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except KeyboardInterrupt:  # the workers have died of it too: summarise what there is
        stop.set()
        for thread in threads:
            thread.join()
    for message, count in failures.items():
        frame.progress(f"compare_validity: {count} sets failed: {message}")


def summarise(
    sets: Sequence[Mapping[str, Any]], field: str, cells: Iterable[str] = _CELLS
) -> dict[str, dict[str, Any]]:
    """Per kind: how often each verdict was given, and the interval of the right one's share."""
    return {
        kind: count_verdicts(
            [item["cells"][name][kind][field] for item in sets for name in cells], right
        )
        for kind, right in KINDS.items()
        if sets
    }


def parse() -> argparse.Namespace:
    """The options, with the small ones that --quick stands for."""
    parser = frame.make_parser(__doc__)
    parser.set_defaults(processes=None)
    parser.add_argument("--pairs", type=int, help="pairs of each kind (200)")
    parser.add_argument("--jobs", type=int, help="sets at once, each on a CPU of its own")
    parser.add_argument("--time-limit", type=float, default=7200.0, help="seconds (7200)")
    parser.add_argument("--sets-file", type=Path, help="where sets are appended")
    parser.add_argument("--resume", action="store_true", help="continue the file's last run")
    options = parser.parse_args()
    options.pairs = options.pairs or (8 if options.quick else 200)
    options.processes = options.processes or (3 if options.quick else 5)
    options.jobs = options.jobs or max(1, len(os.sched_getaffinity(0)) // 2)
    folder = options.results or (Path(tempfile.mkdtemp()) if options.quick else frame.RESULTS)
    options.sets_file = options.sets_file or folder / "compare_validity_sets.jsonl"
    return options


def main() -> None:
    """Run the sets, print the table, save the record."""
    options = parse()
    os.environ["OMP_NUM_THREADS"] = "1"  # of the workers
    run, done = open_run(options.sets_file, resume=options.resume)
    run_sets(options, run, done)
    methods = {
        "default": summarise(done, "verdict"),
        "unpaired": summarise(done, "verdict_unpaired"),
        **{name: summarise(done, "verdict", [name]) for name in _CELLS},
    }
    rows = [
        make_row(f"{kind}, {method}", counts)
        for method, summary in methods.items()
        for kind, counts in summary.items()
    ]
    title = f"{options.processes} processes a side; slow: one side takes 5 % longer"
    frame.show(title, ROW_COLUMNS, rows)
    limits = {"same": {"at_least": 92.0, "at_most": 98.0}, "slow": {"at_least": 90.0}}
    names = {"same": "same called equal", "slow": "5 % slower called slower"}
    figures = [
        frame.Figure(name=names[kind], values=(counts["right_percent"],), unit="%", **limits[kind])
        for kind, counts in methods["default"].items()
    ]
    if not figures:
        sys.exit("compare_validity: no set was finished; give a longer --time-limit")
    torch.set_num_threads(1)  # as in the workers, for the record's environment
    raw = {"run": run, "processes_a_side": options.processes, "summary": methods}
    frame.finish(__file__, options, figures, raw=raw)


if __name__ == "__main__":
    main()
