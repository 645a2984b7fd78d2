"""How often `ftax compare old.py:make new.py:make` is right, as a user types it.

Three kinds of pairs of source, written on the spot: the same work under other names and with other
comments; 5 % more work (21 blocks in place of 20); and 5 layers in place of 4, which a gate has to
fail. A neighbour that comes and goes is part of the bench: it keeps one of two CPUs busy for some
seconds, and then not, as on a runner of CI. A bigger host runs several pairs at once (--at-once),
each on two other CPUs beside a neighbour.

Each pair is appended to a file as soon as it is done; the summary is computed from that file, so a
run that stops at its time limit is continued with --resume.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import record as frame
from ftax.records.store import read_records
from ftax.timing.comparison import Comparison

VERDICTS = ("equal", "faster", "slower", "cannot-tell")
KINDS = {"same": 100, "slow": 100, "layers": 20}  # pairs of each
_TITLES = {
    "same": "other names and comments",
    "slow": "5 % more work",
    "layers": "5 layers, not 4",
}
# Width and batch: from 10 to 60 us a block, in operators and in arithmetic.
_SIZES = ((64, 1), (128, 1), (64, 16), (256, 1))
_WORDS = ("hidden", "state", "value", "signal", "middle", "x", "features", "h", "activations")
_SOURCE = '''"""{comment}"""

import torch
from torch import nn


class {name}(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.{first} = nn.Linear(width, width)  # {comment}
        self.{second} = nn.LayerNorm(width)

    def forward(self, {given}):
        {result} = torch.relu(self.{first}({given}))
        # {comment}
        return self.{second}({result} + {given})


def make():
    torch.manual_seed(0)
    {blocks} = nn.Sequential(*[{name}({width}) for _ in range({count})])
    return {blocks}, (torch.ones({batch}, {width}),)
'''
_NEIGHBOUR = """
import random, time
draw = random.Random()
while True:
    end = time.monotonic() + draw.uniform(1, 8)
    while time.monotonic() < end:
        sum(range(10000))
    time.sleep(draw.uniform(1, 8))
"""


def write_source(path: Path, size: tuple[int, int], count: int, draw: random.Random) -> None:
    """A model of ``count`` blocks, whose names and comments are drawn."""
    given, result, first, second, blocks = draw.sample(_WORDS, 5)
    path.write_text(
        _SOURCE.format(
            name=draw.choice(_WORDS).title(), given=given, result=result, first=f"{first}_in",
            second=f"{second}_out", blocks=blocks, width=size[0], batch=size[1], count=count,
            comment=" ".join(draw.choice(_WORDS) for _ in range(draw.randrange(1, 40))),
        )
    )  # fmt: skip


def run_pair(kind: str, number: int, cpus: set[int]) -> dict[str, Any]:
    """What the command said of one pair, run on ``cpus``, and how long it took."""
    draw = random.Random(f"{kind} {number}")
    size = _SIZES[number % len(_SIZES)]
    counts = {"same": (20, 20), "slow": (20, 21), "layers": (4, 5)}[kind]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, count in zip(("old", "new"), counts, strict=True):
            write_source(folder / f"{file}.py", size, count, draw)
        command = [sys.executable, "-m", "ftax", "compare", "old.py:make", "new.py:make"]
        options = ["--threads", "1", "--fail-on", "slower", "--json", "found.jsonl"]
        begin = time.monotonic()
        done = subprocess.run(
            [*bind(cpus), *command, *options],
            cwd=folder, capture_output=True, text=True, check=False,
        )  # fmt: skip
        seconds = time.monotonic() - begin
        if done.returncode not in (0, 1):
            raise RuntimeError(f"exit code {done.returncode}: {done.stderr.strip()[-300:]}")
        found = read_records(folder / "found.jsonl").records
    (comparison,) = (item for item in found if isinstance(item, Comparison))
    return {
        "kind": kind,
        "number": number,
        "seconds": round(seconds, 2),
        "exit_code": done.returncode,
        "verdict": comparison.verdict,
        "ratio": comparison.ratio,
        "ratio_interval": list(comparison.ratio_interval),
        "pairs": comparison.units_a,
    }


def bind(cpus: set[int]) -> list[str]:
    """What starts a command on ``cpus``."""
    return ["taskset", "--cpu-list", ",".join(map(str, sorted(cpus)))]


@contextmanager
def neighbour(is_wanted: bool, cpus: set[int]) -> Iterator[None]:
    """A process that keeps one of ``cpus`` busy by turns."""
    if not is_wanted:
        yield
        return
    process = subprocess.Popen([*bind(cpus), sys.executable, "-c", _NEIGHBOUR])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def run_pairs(options: argparse.Namespace, run: str, done: list[dict[str, Any]]) -> None:
    """Run what is missing, the kinds by turns; each finished pair is appended at once."""
    known = {(item["kind"], item["number"]) for item in done}
    places = sorted(
        (number / count, kind, number)
        for kind, count in KINDS.items()
        for number in range(max(1, round(count * options.share)))
    )
    left = iter([(kind, number) for _, kind, number in places if (kind, number) not in known])
    end = time.monotonic() + options.time_limit
    cpus = sorted(os.sched_getaffinity(0))
    if 2 * options.at_once > max(2, len(cpus)):
        sys.exit(f"compare_validity: {len(cpus)} CPUs are too few for --at-once {options.at_once}")

    def serve(lane: int) -> None:
        own = set(cpus[2 * lane : 2 * lane + 2])
        with neighbour(options.neighbour, own):
            for kind, number in left:
                if time.monotonic() > end:
                    return
                try:
                    item = run_pair(kind, number, own)
                except RuntimeError as error:  # one broken pair must not cost the others
                    frame.progress(f"{kind} {number} failed: {error}")
                    continue
                done.append({"run": run, "neighbour": options.neighbour, **item})
                frame.append_line(options.pairs_file, done[-1])
                show_pair(item)

    with ThreadPoolExecutor(options.at_once) as lanes:
        list(lanes.map(serve, range(options.at_once)))


def show_pair(item: Mapping[str, Any]) -> None:
    """One line of progress."""
    low, high = item["ratio_interval"]
    frame.progress(
        f"{item['kind']} {item['number']}: {item['verdict']}, {item['ratio'] - 1:+.1%} "
        f"({low - 1:+.1%} to {high - 1:+.1%}), {item['pairs']} pairs, {item['seconds']:.0f} s"
    )


def summarise(done: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Per kind: how often each verdict was given, how many a gate failed, and the times."""
    found = {}
    for kind in KINDS:
        items = [item for item in done if item["kind"] == kind]
        if items:
            verdicts = [item["verdict"] for item in items]
            found[kind] = {
                "count": len(items),
                **{verdict: verdicts.count(verdict) for verdict in VERDICTS},
                "failed": sum(item["exit_code"] == 1 for item in items),
                "seconds": [item["seconds"] for item in items],
            }
    return found


def compute_wilson(hits: int, trials: int) -> tuple[float, float]:
    """The 95 % interval of a share, in percent (Wilson 1927)."""
    z = 1.959964
    centre = hits + z * z / 2
    spread = z * math.sqrt(hits * (trials - hits) / trials + z * z / 4)
    return 100 * (centre - spread) / (trials + z * z), 100 * (centre + spread) / (trials + z * z)


def open_run(path: Path, *, resume: bool) -> tuple[str, list[dict[str, Any]]]:
    """The name of a run and what it has done: a new one, or the last one of the file."""
    if resume and (before := frame.read_lines(path)):
        run = str(before[-1]["run"])
        return run, [item for item in before if item["run"] == run]
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()), []


def make_figures(summary: Mapping[str, Mapping[str, Any]]) -> list[frame.Figure]:
    """The bars."""
    figures = []
    seconds = [value for counts in summary.values() for value in counts["seconds"]]
    for kind, name, limits, hits in (
        ("same", "same called different", {"at_most": 3.0}, ("faster", "slower")),
        ("slow", "5 % more work called slower", {"at_least": 90.0}, ("slower",)),
        ("slow", "5 % more work called faster", {"at_most": 0.0}, ("faster",)),
        ("layers", "5 layers, not 4, fail the gate", {"at_least": 100.0}, ("failed",)),
    ):
        if kind in summary:
            counts = summary[kind]
            share = 100 * sum(counts[hit] for hit in hits) / counts["count"]
            figures.append(frame.Figure(name=name, values=(share,), unit="%", **limits))
    middle = statistics.median(seconds)
    figures.append(frame.Figure(name="median run", values=(middle,), unit="s", at_most=60.0))
    return figures


def parse() -> argparse.Namespace:
    """The options, with the small ones that --quick stands for."""
    parser = frame.make_parser(__doc__)
    parser.add_argument("--share", type=float, help="of all pairs (1)")
    parser.add_argument("--time-limit", type=float, default=14_400.0, help="seconds (14400)")
    parser.add_argument("--pairs-file", type=Path, help="where pairs are appended")
    parser.add_argument("--resume", action="store_true", help="continue the file's last run")
    parser.add_argument("--neighbour", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--at-once", type=int, default=1, help="pairs, on two CPUs each (1)")
    options = parser.parse_args()
    options.share = options.share or (0.02 if options.quick else 1.0)
    folder = options.results or (Path(tempfile.mkdtemp()) if options.quick else frame.RESULTS)
    options.pairs_file = options.pairs_file or folder / "compare_validity_pairs.jsonl"
    return options


def main() -> None:
    """Run the pairs, print the table, save the record."""
    options = parse()
    os.environ["OMP_NUM_THREADS"] = "1"  # of the commands
    run, done = open_run(options.pairs_file, resume=options.resume)
    run_pairs(options, run, done)
    if not done:
        sys.exit("compare_validity: no pair was finished; give a longer --time-limit")
    summary = summarise(done)
    rows = []
    for kind, counts in summary.items():
        right = "equal" if kind == "same" else "slower"
        low, high = compute_wilson(counts[right], counts["count"])
        cells = [str(counts[name]) for name in ("count", *VERDICTS, "failed")]
        middle = f"{statistics.median(counts['seconds']):.0f} s"
        rows.append((_TITLES[kind], *cells, f"{low:.0f} to {high:.0f}", middle))
    columns = ("source", "pairs", *VERDICTS, "gate fails", "right, % (95 %)", "median run")
    frame.show("ftax compare old.py:make new.py:make", columns, rows)
    raw = {"run": run, "neighbour": options.neighbour, "summary": summary}
    frame.finish(__file__, options, make_figures(summary), raw=raw)


if __name__ == "__main__":
    main()
