"""How often `ftax.compare` calls two runs of the same thing on a GPU equal.

Each side of a pair is several fresh processes, which take turns with those of the other side, as in
`sweeps.processes`. They get ready side by side, since that takes far longer than to measure. The
surprising choice: a process measures four cells one after the other, so one set of processes makes
four pairs. Processes are disjoint between the pairs of one cell, but the four pairs of a set share
theirs, which the interval over all pairs does not know: the rows by cell do not have that flaw. The
cells are modules made on the spot, because importing transformers would take most of the time.

Every set is appended to a file as soon as it is done; the summary is computed from that file, so a
run that stops at its time limit is continued with --resume, and --pooled sums up runs of several
days, whose sets are as independent as those of one.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from pairs import (
    ROW_COLUMNS,
    PairedWorkers,
    compare_sides,
    compute_wilson,
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
from ftax.machines.environment import collect_environment
from ftax.runtimes.catalogue import find_runtime
from ftax.runtimes.workspace import Workspace
from ftax.steps.load import load_model
from ftax.steps.loaded import LoadedModel
from ftax.timing.candidate import Host
from ftax.timing.session import measure, require
from ftax.workers.child import Line
from ftax.workers.process import WorkerDied
from ftax.workers.turns import ROUNDS_A_TURN, TurnTaker

# Batch, runtime, host.
_CELLS: dict[str, tuple[int, str, Host]] = {
    "eager/python": (1, "eager", "python"),
    "eager/cpp": (1, "eager", "cpp"),
    "cuda-graph/cpp": (1, "cuda-graph", "cpp"),
    "eager/cpp, batch 32": (32, "eager", "cpp"),
}
_BLOCKS, _WIDTH = 8, 1024
_PATIENCE_S = 0.5  # of one measurement; a set has forty and more
_ALL = "all cells"
_WRONG_PERCENT = 5.0  # of pairs that are the same; the confidence of the comparison is 95 %


def make_model(batch: int) -> LoadedModel:
    """A chain of linear and layer norm in half precision, on the GPU."""
    torch.manual_seed(0)
    layers = [
        part for _ in range(_BLOCKS) for part in (nn.Linear(_WIDTH, _WIDTH), nn.LayerNorm(_WIDTH))
    ]
    x = torch.randn(batch, _WIDTH).half().cuda()
    return load_model(nn.Sequential(*layers).half().cuda(), inputs=x)


def serve(_: Any, line: Line) -> None:
    """The task of one process."""
    serve_pair(line, prepare)


def prepare() -> Callable[[Mapping[str, Any], TurnTaker], dict[str, Any]]:
    """One process of one side gets ready; what measures each cell, one after the other."""
    torch.set_num_threads(1)
    workspaces = {batch: Workspace(make_model(batch)) for batch, _, _ in _CELLS.values()}
    cells = {
        name: (workspaces[batch], find_runtime(runtime).prepare(workspaces[batch], host))
        for name, (batch, runtime, host) in _CELLS.items()
    }

    def work(job: Mapping[str, Any], turns: TurnTaker) -> dict[str, Any]:
        plan = make_plan(job, round_ms=3.0, patience_s=_PATIENCE_S)
        answer: dict[str, Any] = {}
        for name, (workspace, prepared) in cells.items():
            (measurement,) = require(measure(workspace.loaded, [prepared], plan, turns))
            answer[name] = measurement.with_turns(ROUNDS_A_TURN).to_dict()
        return {**answer, "environment": collect_environment(device="cuda").to_dict()}

    return work


def run_set(number: int, processes: int) -> dict[str, Any]:
    """One pair of each cell. Raises WorkerDied if a process fails."""
    start = time.monotonic()
    with PairedWorkers(__file__, 2 * processes) as workers:
        answers = run_sides(number, processes, workers.run_pair)
    cells = {}
    for name in _CELLS:
        a, b = (read_side(answers[side], name) for side in ("a", "b"))
        values = {"a": take_medians(a), "b": take_medians(b)}
        cells[name] = {**compare_sides(a, b), "values_ns": values}
    return {
        "number": number,
        "seconds": time.monotonic() - start,
        "processes_a_side": processes,
        "cells": cells,
        "environment": answers["a"][0]["environment"],
    }


def run_sets(options: argparse.Namespace, run: str, done: list[dict[str, Any]]) -> None:
    """Run the sets that are missing; each is appended at once."""
    deadline = time.monotonic() + options.time_limit
    slowest_s = max((item["seconds"] for item in done), default=0.0)
    for number in sorted(set(range(options.sets)) - {item["number"] for item in done}):
        if time.monotonic() + 1.1 * slowest_s > deadline:
            frame.progress("gpu_compare: no time for another set; --resume continues this run")
            return
        try:
            item = run_set(number, options.processes)
        except WorkerDied as error:  # one broken set must not cost the others
            frame.progress(f"gpu_compare: set {number} failed: {error}")
            continue
        done.append({"run": run, **item})
        frame.append_line(options.sets_file, done[-1])
        slowest_s = max(slowest_s, item["seconds"])
        words = ", ".join(
            f"{name} {cell['verdict']} ({cell['ratio'] - 1:+.2%})"
            for name, cell in item["cells"].items()
        )
        frame.progress(
            f"gpu_compare: set {len(done)} of {options.sets}, {item['seconds']:.0f} s: {words}"
        )


def summarise(sets: Sequence[Mapping[str, Any]], field: str) -> dict[str, dict[str, Any]]:
    """How often each verdict was given: all cells together, and each."""
    verdicts = {name: [item["cells"][name][field] for item in sets] for name in _CELLS}
    everything = [verdict for found in verdicts.values() for verdict in found]
    return {
        name: count_verdicts(found, "equal")
        for name, found in {_ALL: everything, **verdicts}.items()
    }


def summarise_runs(sets: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The same of all cells together in each run: one was taken beside more neighbours than
    another."""
    runs = dict.fromkeys(item["run"] for item in sets)
    return {
        f"run {run}": summarise([item for item in sets if item["run"] == run], "verdict")[_ALL]
        for run in runs
    }


def make_figures(paired: Mapping[str, Mapping[str, Any]]) -> list[frame.Figure]:
    """Of all cells together. A share is judged by its interval: 40 pairs give no digits.

    "Cannot tell" is no wrong answer, and on a machine whose processes differ by 3 % it is the
    honest one for what its host drives; a difference that is none is wrong.
    """
    counts = paired[_ALL]
    low, high = counts["right_percent_interval"]
    wrong = counts["faster"] + counts["slower"]
    wrong_low, _ = compute_wilson(wrong, counts["pairs"])
    return [
        frame.Figure(
            name="pairs of the same", values=(counts["pairs"],), unit="pairs", at_least=40
        ),
        frame.Figure(name="called equal", values=(counts["right_percent"],), unit="%"),
        frame.Figure(name="called equal, lower end of the 95 % interval", values=(low,), unit="%"),
        frame.Figure(name="called equal, upper end of the 95 % interval", values=(high,), unit="%"),
        frame.Figure(
            name="called faster or slower", values=(100 * wrong / counts["pairs"],), unit="%"
        ),
        frame.Figure(
            name="called faster or slower, lower end of the interval",
            values=(wrong_low,),
            unit="%",
            at_most=_WRONG_PERCENT,
        ),
    ]


def parse() -> argparse.Namespace:
    """The options, with the small ones that --quick stands for."""
    parser = frame.make_parser(__doc__)
    parser.set_defaults(processes=None)
    parser.add_argument("--sets", type=int, help="sets, each a pair of every cell (10)")
    parser.add_argument("--time-limit", type=float, default=3600.0, help="seconds (3600)")
    parser.add_argument("--sets-file", type=Path, help="where sets are appended")
    parser.add_argument("--resume", action="store_true", help="continue the file's last run")
    parser.add_argument(
        "--pooled", action="store_true", help="measure nothing: sum up every run of the file"
    )
    options = parser.parse_args()
    options.sets = options.sets or (1 if options.quick else 10)
    options.processes = options.processes or (2 if options.quick else 5)
    folder = options.results or (Path(tempfile.mkdtemp()) if options.quick else frame.RESULTS)
    options.sets_file = options.sets_file or folder / "gpu_compare_sets.jsonl"
    return options


def main() -> None:
    """Run the sets, print the table, save the record."""
    options = parse()
    if options.pooled:
        done = frame.read_lines(options.sets_file)
    else:
        run, done = open_run(options.sets_file, resume=options.resume)
        run_sets(options, run, done)
    if not done:
        sys.exit("gpu_compare: there is no set; give a longer --time-limit, or a file that has one")
    methods = {
        "paired": summarise(done, "verdict") | summarise_runs(done),
        "unpaired": summarise(done, "verdict_unpaired"),
    }
    rows = [
        make_row(f"{name}, {method} test", counts)
        for method, summary in methods.items()
        for name, counts in summary.items()
    ]
    title = f"the same cell twice, {done[-1]['processes_a_side']} processes a side"
    frame.show(title, ROW_COLUMNS, rows)
    sizes = sorted({item["processes_a_side"] for item in done})
    raw = {"processes_a_side": sizes, "sets": len(done), "summary": methods}
    frame.finish(
        __file__,
        options,
        make_figures(methods["paired"]),
        raw=raw,
        environment=done[-1]["environment"],
    )


if __name__ == "__main__":
    main()
