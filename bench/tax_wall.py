"""How long `ftax tax bert-base` keeps its user waiting: with an empty cache, a warm one, and tiny.

Each time is that of a whole process, imports and the model's construction included. The surprising
choice: the receipt that the process saved is read back and judged too, since a command that is
quick and resolves nothing would be no good; for the tiny model the Python tax has to be clear of 0.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ftax import Receipt
from ftax.errors import RunnerError
from record import Figure, finish, make_parser, progress, show

_EMPTY_LIMIT_S = 180.0
_WARM_LIMIT_S = 60.0
_COMMAND = ("-c", "from ftax.cli import main; main()")


def run_tax(cache: Path, flags: Sequence[str]) -> dict[str, Any]:
    """Wall seconds of `ftax tax bert-base`, and what its receipt says."""
    with tempfile.TemporaryDirectory(prefix="ftax-bench-") as folder:
        saved = Path(folder) / "receipt.jsonl"
        command = [sys.executable, *_COMMAND, "tax", "bert-base", "--json", str(saved), *flags]
        start = time.perf_counter()
        finished = subprocess.run(
            command,
            env={**os.environ, "FTAX_CACHE": str(cache)},
            capture_output=True,
            text=True,
            check=False,
        )
        wall_s = time.perf_counter() - start
        if finished.returncode != 0:
            reason = finished.stderr.strip().splitlines()[-1:] or ["no message"]
            raise RunnerError(f"ftax tax ended with exit code {finished.returncode}: {reason[0]}")
        (receipt,) = Receipt.load(saved)
    return {"wall_s": wall_s, **describe(receipt)}


def describe(receipt: Receipt) -> dict[str, Any]:
    """The Python tax and how the rounds went."""
    tax_ns, interval_ns = receipt.python_tax_ns or (None, None)
    first = receipt.rungs[0]
    return {
        "latency_us": receipt.latency_ns / 1e3,
        "python_tax_us": None if tax_ns is None else tax_ns / 1e3,
        "python_tax_interval_us": None if interval_ns is None else [t / 1e3 for t in interval_ns],
        "rounds": len(first.values_ns),
        "stop_reason": first.stop_reason,
        "preparation": {key: receipt.preparation[key] for key in sorted(receipt.preparation)},
        "alternatives": len(receipt.others),
        "unavailable": [f"{item.runtime}/{item.host}" for item in receipt.unavailable],
    }


def run_all(options: argparse.Namespace) -> dict[str, list[dict[str, Any]]]:
    """Each repetition has a cache of its own, empty at first."""
    short = ["--tiny", "--duration", "2"]
    runs: dict[str, list[str]] = {
        "empty cache": short if options.quick else [],
        "warm cache": short if options.quick else [],
        "tiny": short if options.quick else ["--tiny"],
    }
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in runs}
    for index in range(options.processes):
        with tempfile.TemporaryDirectory(prefix="ftax-bench-") as cache:
            for name, flags in runs.items():
                progress(f"tax_wall: {name}, repetition {index + 1} of {options.processes}")
                found[name].append(run_tax(Path(cache), flags))
    return found


def exceeds_zero(run: dict[str, Any]) -> bool:
    """Whether the whole interval of the Python tax lies above 0."""
    interval = run["python_tax_interval_us"]
    return interval is not None and interval[0] > 0.0


def main() -> None:
    """Run the command, print the table, save the record."""
    options = make_parser(__doc__).parse_args()
    if options.quick:
        options.processes = 1
    found = run_all(options)
    rows = []
    for name, runs in found.items():
        run = sorted(runs, key=lambda item: item["wall_s"])[len(runs) // 2]
        interval = run["python_tax_interval_us"]
        ends = "-" if interval is None else f"{interval[0]:.0f} to {interval[1]:.0f}"
        tax = run["python_tax_us"]
        cells = (f"{run['wall_s']:.1f} s", f"{run['latency_us']:.0f}")
        rows.append((name, *cells, "-" if tax is None else f"{tax:.0f}", ends, str(run["rounds"])))
    title = "ftax tax bert-base (median run)" + (", all of it --tiny" if options.quick else "")
    columns = ("run", "wall", "eager, us", "Python tax, us", "95 % interval", "rounds")
    show(title, columns, rows)
    walls = {name: tuple(run["wall_s"] for run in runs) for name, runs in found.items()}
    figures = [
        Figure(
            name="wall, empty cache",
            values=walls["empty cache"],
            unit="s",
            at_most=_EMPTY_LIMIT_S,
        ),
        Figure(
            name="wall, warm cache", values=walls["warm cache"], unit="s", at_most=_WARM_LIMIT_S
        ),
        Figure(name="wall, tiny", values=walls["tiny"], unit="s"),
        Figure(
            name="tiny: Python tax above 0",
            values=tuple(float(exceeds_zero(run)) for run in found["tiny"]),
            unit="(1: yes)",
            at_least=1.0,
        ),
    ]
    finish(__file__, options, figures, raw=found)


if __name__ == "__main__":
    main()
