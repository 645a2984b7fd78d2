"""How long `ftax tax bert-base` keeps its user waiting, and when a first number is there.

Each time is that of a whole process. On a CPU: with an empty cache, with a warm one, and tiny,
where the Python tax has to be clear of 0. On a GPU: with Python's bytecode cached, as pip leaves
it, which the first run does. The first number is there when rounds begin, as the command says.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ftax import Receipt
from ftax.errors import RunnerError
from record import Figure, figure, finish, make_parser, progress, show

_GIVE_UP_S = 300.0
_MODEL = "bert-base"
_ON_GPU = ("--device", "cuda", "--dtype", "fp16", "--runtimes", "none")
_LIMITS_S = {
    "wall, empty cache": 180.0, "wall, warm cache": 60.0, "wall time": 30.0,
    "time to the first number": 15.0,
}  # fmt: skip


def run_tax(flags: Sequence[str], variables: Mapping[str, str]) -> dict[str, Any]:
    """Seconds until the command ends and until its rounds begin, and what its receipt says.

    Lines are stamped as they come: standard error is not buffered by the block. Raises RunnerError
    if it fails, takes five minutes, or never says that rounds begin.
    """
    with tempfile.TemporaryDirectory(prefix="ftax-bench-") as folder:
        saved = Path(folder) / "receipt.jsonl"
        command = [sys.executable, "-m", "ftax", "tax", _MODEL, *flags, "--json", str(saved)]
        environment = {**os.environ, **variables}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        first_s, last, start = None, "no message", time.perf_counter()
        with subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment
        ) as process:
            timer = threading.Timer(_GIVE_UP_S, process.kill)
            timer.start()
            for line in process.stderr or ():
                last = line.strip() or last
                if first_s is None and last.startswith(f"{_MODEL}: round"):
                    first_s = time.perf_counter() - start
            code = process.wait()
            timer.cancel()
        wall_s = time.perf_counter() - start
        if code != 0 or first_s is None:
            raise RunnerError(f"ftax tax ended with exit code {code}, without rounds: {last}")
        (receipt,) = Receipt.load(saved)
    return {"wall_s": wall_s, "first_s": first_s, **describe(receipt)}


def describe(receipt: Receipt) -> dict[str, Any]:
    """What the command had to show for it: one that is quick and resolves nothing is no good."""
    tax_ns, interval_ns = receipt.python_tax_ns or (None, None)
    first = receipt.rungs[0]
    return {
        "latency_us": receipt.latency_ns / 1e3,
        "python_tax_us": None if tax_ns is None else tax_ns / 1e3,
        "python_tax_interval_us": None if interval_ns is None else [t / 1e3 for t in interval_ns],
        "rounds": len(first.values_ns),
        "stop_reason": first.stop_reason,
        "preparation": {key: receipt.preparation[key] for key in sorted(receipt.preparation)},
        "unavailable": [f"{item.runtime}/{item.host}" for item in receipt.unavailable],
        "environment": first.environment.to_dict(),
    }


def run_all(options: argparse.Namespace) -> dict[str, list[dict[str, Any]]]:
    """By case. Each repetition on a CPU has a cache that is empty at first; those on a GPU share
    one of bytecode, which a run before them fills."""
    short = ("--tiny", "--duration", "2") if options.quick else ()
    on_gpu = options.device == "cuda"
    flags: dict[str, Sequence[str]] = {"warm cache": (*_ON_GPU, *short)}
    if not on_gpu:
        flags = {"empty cache": short, "warm cache": short, "tiny": short or ("--tiny",)}
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in flags}
    with tempfile.TemporaryDirectory(prefix="ftax-bytecode-") as bytecode:
        variables = {"PYTHONPYCACHEPREFIX": bytecode} if on_gpu else {}
        if on_gpu:
            progress("tax_wall: filling the cache of bytecode")
            found["without bytecode"] = [run_tax(flags["warm cache"], variables)]
        for index in range(options.processes):
            with tempfile.TemporaryDirectory(prefix="ftax-bench-") as cache:
                for name in flags:
                    progress(f"tax_wall: {name}, {index + 1} of {options.processes}")
                    own = {} if on_gpu else {"FTAX_CACHE": cache}
                    found[name].append(run_tax(flags[name], {**variables, **own}))
    return found


def make_figures(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[Figure]:
    """Walls, when the first number was there, and whether the tiny model's tax is clear."""
    walls = {name: tuple(run["wall_s"] for run in runs) for name, runs in found.items()}
    if "without bytecode" in found:
        values = {
            "wall time": walls["warm cache"],
            "time to the first number": tuple(run["first_s"] for run in found["warm cache"]),
            "wall time without cached bytecode": walls["without bytecode"],
        }
    else:
        values = {f"wall, {name}": seconds for name, seconds in walls.items()}
    figures = [
        figure(name, seconds, "s", at_most=_LIMITS_S.get(name)) for name, seconds in values.items()
    ]
    if "tiny" in found:
        ends = [run["python_tax_interval_us"] for run in found["tiny"]]
        clear = tuple(float(end is not None and end[0] > 0) for end in ends)
        name = "tiny: Python tax above 0"
        figures.append(figure(name, clear, "(1: yes)", at_least=1))
    return figures


def main() -> None:
    """Run the command, print the table, save the record."""
    parser = make_parser(__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    options = parser.parse_args()
    if options.quick:
        options.processes = 1
    found = run_all(options)
    rows = []
    for name, runs in found.items():
        run = sorted(runs, key=lambda item: item["wall_s"])[len(runs) // 2]
        tax, ends = run["python_tax_us"], run["python_tax_interval_us"]
        rows.append(
            (name, f"{run['wall_s']:.1f}", f"{run['first_s']:.1f}", f"{run['latency_us']:.0f}",
             "-" if tax is None else f"{tax:.0f}",
             "-" if ends is None else f"{ends[0]:.0f} to {ends[1]:.0f}", str(run["rounds"]))
        )  # fmt: skip
    columns = ("run", "wall, s", "first number, s", "eager, us", "Python tax, us", "95 % interval",
               "rounds")  # fmt: skip
    show(f"ftax tax {_MODEL}, {options.device} (median run)", columns, rows)
    environment = found["warm cache"][0]["environment"]
    raw = {
        name: [{key: run[key] for key in run if key != "environment"} for run in runs]
        for name, runs in found.items()
    }
    finish(__file__, options, make_figures(found), raw=raw, environment=environment)


if __name__ == "__main__":
    main()
