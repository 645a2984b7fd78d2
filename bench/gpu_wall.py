"""How long `ftax tax bert-base` on a GPU keeps its user waiting, and when a first number is there.

Each time is that of a whole process, imports and the model's construction included. The surprising
choice: the first number is read off the command's own progress. Rounds begin when every rung has
been warmed up and so has a latency, and the command says on standard error that they begin.

Bytecode is cached, as pip leaves an installation. Some images have none and let nobody write it, so
that each process compiles all that it imports: the first repetition fills a cache of our own, and
is reported apart.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ftax import Receipt
from ftax.errors import RunnerError
from record import Figure, finish, make_parser, progress, show

_WALL_LIMIT_S = 30.0
_FIRST_LIMIT_S = 15.0
_GIVE_UP_S = 300.0
_MODEL = "bert-base"
_COMMAND = ("-c", "from ftax.cli import main; main()", "tax", _MODEL)
_FLAGS = ("--device", "cuda", "--dtype", "fp16", "--runtimes", "none")
_QUICK_FLAGS = ("--tiny", "--duration", "2")
_FIRST_PHASE = "round"


def run_tax(flags: tuple[str, ...], bytecode: str) -> dict[str, Any]:
    """Seconds until the command ends and until each of its phases begins, and its receipt.

    ``bytecode`` is the folder of the cache. Raises RunnerError if it fails, takes five minutes, or
    never says that rounds begin.
    """
    variables = {**os.environ, "PYTHONPYCACHEPREFIX": bytecode}
    variables.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory(prefix="ftax-bench-") as folder:
        saved = Path(folder) / "receipt.jsonl"
        command = [sys.executable, *_COMMAND, *flags, "--json", str(saved)]
        phases, code, wall_s, last = watch(command, variables)
        if code != 0:
            raise RunnerError(f"ftax tax ended with exit code {code}: {last}")
        if _FIRST_PHASE not in phases:
            raise RunnerError(
                f"ftax tax reported the phases {', '.join(phases) or 'none'}, but not "
                f"{_FIRST_PHASE!r}; its progress has changed, so change this script with it"
            )
        (receipt,) = Receipt.load(saved)
    return {
        "wall_s": wall_s,
        "first_s": phases[_FIRST_PHASE],
        "phases_s": phases,
        **describe(receipt),
    }


def watch(
    command: list[str], variables: Mapping[str, str]
) -> tuple[dict[str, float], int, float, str]:
    """Run ``command``; when each phase began (s), exit code, wall time (s), and the last line.

    Lines are stamped as they come, which standard error allows: it is not buffered by the block.
    """
    phases: dict[str, float] = {}
    last = "no message"
    start = time.perf_counter()
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=variables
    ) as process:
        timer = threading.Timer(_GIVE_UP_S, process.kill)
        timer.start()
        try:
            for line in process.stderr or ():
                now_s = time.perf_counter() - start
                last = line.strip() or last
                model, _, phase = last.partition(": ")
                if model == _MODEL:
                    phases.setdefault(phase, now_s)
            code = process.wait()
        finally:
            timer.cancel()
    return phases, code, time.perf_counter() - start, last


def describe(receipt: Receipt) -> dict[str, Any]:
    """What the command had to show for it."""
    ends = receipt.rungs[0].interval_ns
    half_width = None if ends is None else 50 * (ends[1] - ends[0]) / receipt.latency_ns
    return {
        "latency_us": receipt.latency_ns / 1e3,
        "half_width_percent": half_width,
        "rounds": len(receipt.rungs[0].values_ns),
        "stop_reason": receipt.rungs[0].stop_reason,
        "rungs": [f"{rung.cell.runtime}/{rung.cell.host}" for rung in receipt.rungs],
        "same_kernels": [item.same_kernels for item in receipt.evidence],
        "unresolved": [line.name for line in receipt.lines if not line.resolved],
        "preparation": {key: receipt.preparation[key] for key in sorted(receipt.preparation)},
        "warnings": list(receipt.warnings),
        "environment": receipt.rungs[0].environment.to_dict(),
    }


def show_runs(runs: list[dict[str, Any]]) -> None:
    """A row a repetition, and when the phases of the median one began."""
    rows = [
        (
            str(index + 1),
            f"{run['wall_s']:.1f}",
            f"{run['first_s']:.1f}",
            f"{run['latency_us']:.0f}",
            "-" if run["half_width_percent"] is None else f"{run['half_width_percent']:.2f}",
            str(run["rounds"]),
            run["stop_reason"],
        )
        for index, run in enumerate(runs)
    ]
    columns = ("run", "wall, s", "first number, s", "eager, us", "half-width, %", "rounds", "stop")
    show(f"ftax tax {_MODEL} --device cuda --dtype fp16 --runtimes none", columns, rows)
    middle = sorted(runs, key=lambda run: run["wall_s"])[len(runs) // 2]
    phases = [(name, f"{begin_s:.1f}") for name, begin_s in middle["phases_s"].items()]
    show("phases of the median run", ("phase", "began after, s"), phases)


def run_all(options: argparse.Namespace) -> list[dict[str, Any]]:
    """One that fills the cache of bytecode, and the repetitions, one after the other."""
    flags = (*_FLAGS, *(_QUICK_FLAGS if options.quick else ()))
    runs = []
    with tempfile.TemporaryDirectory(prefix="ftax-bytecode-") as bytecode:
        for index in range(options.processes + 1):
            what = f"repetition {index} of {options.processes}" if index else "filling the cache"
            progress(f"gpu_wall: {what}")
            runs.append(run_tax(flags, bytecode))
    return runs


def main() -> None:
    """Run the command, print the tables, save the record."""
    options = make_parser(__doc__).parse_args()
    if options.quick:
        options.processes = 1
    first, *runs = run_all(options)
    show_runs(runs)
    figures = [
        Figure(
            name="wall time",
            values=tuple(run["wall_s"] for run in runs),
            unit="s",
            at_most=_WALL_LIMIT_S,
        ),
        Figure(
            name="time to the first number",
            values=tuple(run["first_s"] for run in runs),
            unit="s",
            at_most=_FIRST_LIMIT_S,
        ),
        Figure(name="wall time without cached bytecode", values=(first["wall_s"],), unit="s"),
    ]
    environment = runs[0]["environment"]
    raw = [{key: run[key] for key in run if key != "environment"} for run in (first, *runs)]
    finish(__file__, options, figures, raw=raw, environment=environment)


if __name__ == "__main__":
    main()
