"""Pairs of measurements whose right answer is known, and how often `ftax.compare` gave it.

The surprising choice: a run is a file. Each finished piece is appended at once under the run's
name, and whatever counts verdicts reads them from there, so a run can be stopped and continued.
"""

from __future__ import annotations

import math
import os
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ftax import Measurement, compare
from ftax.machines.gpu_condition import expect_idle
from ftax.sweeps.processes import read_probe, repeat_disturbed
from ftax.timing.comparison import compare_values
from ftax.timing.measurement import make_session_id
from ftax.timing.session import Plan
from ftax.workers.child import Line
from ftax.workers.process import Worker
from ftax.workers.turns import TurnTaker, take_turns
from record import read_lines

_READY_S = 120.0  # to import, build and prepare, beside others that do

VERDICTS = ("equal", "faster", "slower", "cannot-tell")
ROW_COLUMNS = ("pairs", "number", *VERDICTS, "right, % (95 % Wilson)")

_ROUNDS = 150
_PATIENCE_S = 5.0  # of one measurement, with a neighbour on its core

_PLACES = ((0, "a"), (1, "b"))

Sides = dict[str, list[dict[str, Any]]]


def run_sides(
    number: int,
    processes: int,
    run_pair: Callable[[Mapping[str, Any], random.Random], Sequence[dict[str, Any]]],
) -> Sides:
    """What ``processes`` pairs of fresh processes answered, one of each pair for a side.

    ``run_pair`` lets the two take turns, given their session, their index on their side, the
    fastest host probe of those before them, and ``number``, which also decides the order.
    """
    session = make_session_id()
    runs: dict[int, Sequence[dict[str, Any]]] = {}

    def run(index: int) -> Sequence[dict[str, Any]]:
        probes = [read_probes([answer]) for pair in runs.values() for answer in pair]
        quiet_ns = min(probes, default=0.0)
        job = {"number": number, "index": index, "session": session, "quiet_probe_ns": quiet_ns}
        return run_pair(job, random.Random(f"{number} {index}"))

    for index in range(processes):
        runs[index] = run(index)
    repeat_disturbed(runs, read_probes, run, limit=processes)
    return {side: [runs[index][place] for index in range(processes)] for place, side in _PLACES}


def make_plan(job: Mapping[str, Any], *, patience_s: float = _PATIENCE_S, **sizes: Any) -> Plan:
    """What the process of a job measures by."""
    return Plan(
        rounds=_ROUNDS,
        seed=job["index"],
        process_index=job["index"],
        session=job["session"],
        patience_s=patience_s,
        quiet_probe_ns=job["quiet_probe_ns"],
        **sizes,
    )


def read_probes(answers: Sequence[Mapping[str, Any]]) -> float:
    """The host probe of processes: the slowest of the measurements that they answered."""
    found = [value for answer in answers for value in answer.values() if "samples_ns" in value]
    return max(read_probe(Measurement.from_dict(value)) for value in found)


class PairedWorkers:
    """Processes that do the task ``serve`` of a script here; they get ready side by side and
    measure two at a time, by turns.

    All that were asked for have to be ready before the first measures, so that nothing else runs
    meanwhile. Each answers once; for a pair more than there were, another is started.
    """

    def __init__(self, script: str, count: int) -> None:
        folders = [str(Path(script).parent), os.environ.get("PYTHONPATH", "")]
        self._environment = {"PYTHONPATH": os.pathsep.join(filter(None, folders))}
        self._task = f"{Path(script).stem}:serve"
        self._waiting = [self._start() for _ in range(count)]
        self._ready: set[int] = set()  # their process ids

    def __enter__(self) -> PairedWorkers:
        return self

    def __exit__(self, *error: object) -> None:
        for worker in self._waiting:
            worker.end()

    def run_pair(self, job: Mapping[str, Any], shuffler: random.Random) -> list[dict[str, Any]]:
        """What each of the next two answered. Raises WorkerDied if one failed."""
        while len(self._waiting) < 2:
            self._waiting.append(self._start())
        for worker in self._waiting:
            if worker.pid not in self._ready:
                worker.receive(_READY_S)
                self._ready.add(worker.pid)
        pair = self._waiting[:2]
        for worker in pair:
            worker.send(job)
        said = take_turns(pair, shuffler)
        for worker in pair:
            worker.end()
            self._waiting.remove(worker)
        return [answers[-1]["answer"] for answers in said]

    def _start(self) -> Worker:
        worker = Worker(self._task, environment=self._environment)
        worker.send({})  # to get ready
        return worker


def serve_pair(
    line: Line, prepare: Callable[[], Callable[[Mapping[str, Any], TurnTaker], dict[str, Any]]]
) -> None:
    """Be one of `PairedWorkers`: get ready by ``prepare``, and answer one job by what it made."""
    work = prepare()
    line.say("prepared")
    job = line.hear()
    turns = TurnTaker(line, expect_idle)
    turns.begin()
    line.say("answer", answer=work(job, turns))


def read_side(answers: Sequence[Mapping[str, Any]], key: str) -> list[Measurement]:
    """The measurement ``key`` of each process of a side."""
    return [Measurement.from_dict(answer[key]) for answer in answers]


def take_medians(side: Sequence[Measurement]) -> list[float]:
    """One number a process, ns, for the file."""
    return [round(statistics.median(m.values_ns), 1) for m in side]


def compare_sides(a: Sequence[Measurement], b: Sequence[Measurement]) -> dict[str, Any]:
    """What `ftax.compare` says of b against a, and what it would say were they not paired."""
    comparison = compare(a, b)
    return {
        "verdict": comparison.verdict,
        "ratio": comparison.ratio,
        "ratio_interval": list(comparison.ratio_interval),
        "method": comparison.method,
        "verdict_unpaired": compare_values(take_medians(a), take_medians(b)).verdict,
    }


def compute_wilson(hits: int, trials: int) -> tuple[float, float]:
    """The 95 % interval of a share, in percent (Wilson 1927)."""
    z = 1.959964
    centre = hits + z * z / 2
    spread = z * math.sqrt(hits * (trials - hits) / trials + z * z / 4)
    return 100 * (centre - spread) / (trials + z * z), 100 * (centre + spread) / (trials + z * z)


def count_verdicts(verdicts: Sequence[str], right: str) -> dict[str, Any]:
    """How often each verdict was given, and the interval of the right one's share; at least one."""
    counts = Counter(verdicts)
    return {
        "pairs": len(verdicts),
        **{verdict: counts[verdict] for verdict in VERDICTS},
        "right_percent": 100 * counts[right] / len(verdicts),
        "right_percent_interval": compute_wilson(counts[right], len(verdicts)),
    }


def make_row(title: str, counts: Mapping[str, Any]) -> tuple[str, ...]:
    """A row under `ROW_COLUMNS`."""
    low, high = counts["right_percent_interval"]
    return (
        title,
        *(str(counts[key]) for key in ("pairs", *VERDICTS)),
        f"{counts['right_percent']:.1f} ({low:.1f} to {high:.1f})",
    )


def open_run(path: Path, *, resume: bool) -> tuple[str, list[dict[str, Any]]]:
    """The name of a run and what it has done: a new one, or the last one of the file."""
    if resume and (before := read_lines(path)):
        run = str(before[-1]["run"])
        return run, [item for item in before if item["run"] == run]
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()), []
