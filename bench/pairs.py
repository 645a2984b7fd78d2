"""Pairs of measurements whose right answer is known, and how often `ftax.compare` gave it.

The surprising choice: a run is a file. Each finished piece is appended at once under the run's
name, and whatever counts verdicts reads them from there, so a run can be stopped and continued.
"""

from __future__ import annotations

import json
import math
import random
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from record import read_lines, run_json

from ftax import Measurement, compare
from ftax.comparison import compare_values
from ftax.errors import RunnerError
from ftax.measure import Plan
from ftax.processes import read_probe, repeat_disturbed
from ftax.results.measurement import make_session_id

_READY = "ready"

VERDICTS = ("equal", "faster", "slower", "cannot-tell")
ROW_COLUMNS = ("pairs", "number", *VERDICTS, "right, % (95 % Wilson)")

_ROUNDS = 150
_PATIENCE_S = 5.0  # of one measurement, with a neighbour on its core

Sides = dict[str, list[dict[str, Any]]]


def run_sides(
    number: int,
    processes: int,
    start: Callable[[Mapping[str, Any]], dict[str, Any]],
) -> Sides:
    """What ``processes`` fresh processes a side answered, interleaved in random order.

    ``start`` runs one process, given its session, its index on its side, the fastest host probe of
    those before it, and ``number``, which also decides the order.
    """
    session = make_session_id()
    shuffler = random.Random(number)
    runs: dict[tuple[str, int], dict[str, Any]] = {}

    def run(key: tuple[str, int]) -> dict[str, Any]:
        quiet_ns = min((read_answer_probe(answer) for answer in runs.values()), default=0.0)
        job = {"number": number, "index": key[1], "session": session, "quiet_probe_ns": quiet_ns}
        return start(job)

    for index in range(processes):
        for side in shuffler.sample(("a", "b"), 2):
            runs[side, index] = run((side, index))
    repeat_disturbed(runs, read_answer_probe, run, limit=2 * processes)
    return {side: [runs[side, index] for index in range(processes)] for side in ("a", "b")}


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


def read_answer_probe(answer: Mapping[str, Any]) -> float:
    """The host probe of one process: the slowest of the measurements that it answered."""
    found = [value for value in answer.values() if "samples_ns" in value]
    return max(read_probe(Measurement.from_dict(value)) for value in found)


def start_worker(
    script: str,
    job: Mapping[str, Any],
    *,
    deadline: float,
    variables: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The answer of ``script --worker``, given ``job`` on standard input.

    Raises TimeoutExpired at the deadline, a time of `time.monotonic`.
    """
    left_s = deadline - time.monotonic()
    command = [sys.executable, script, "--worker"]
    if left_s <= 0:  # no process is worth starting only to be killed
        raise subprocess.TimeoutExpired(command, 0.0)
    answer: dict[str, Any] = run_json(
        command, given=json.dumps(job), variables=variables, timeout_s=left_s
    )
    return answer


class WaitingWorkers:
    """Processes of ``script --worker`` that got ready side by side and wait for their jobs.

    All have to be ready before the first is asked, so that nothing else runs while one measures.
    A worker answers once; for a job more than there were workers, another is started.
    """

    def __init__(self, script: str, count: int, *, deadline: float) -> None:
        self._script, self._deadline = script, deadline
        self._ready: set[int] = set()
        self._waiting = [self._start() for _ in range(count)]

    def __enter__(self) -> WaitingWorkers:
        return self

    def __exit__(self, *error: object) -> None:
        for worker in self._waiting:
            worker.kill()
            worker.communicate()

    def ask(self, job: Mapping[str, Any]) -> dict[str, Any]:
        """The answer of the next worker. Raises TimeoutExpired at the deadline, RunnerError if the
        worker failed."""
        for worker in self._waiting:
            self._require_ready(worker)
        worker = self._waiting.pop(0) if self._waiting else self._start()
        self._require_ready(worker)
        left_s = max(0.0, self._deadline - time.monotonic())
        try:
            answer, _ = worker.communicate(json.dumps(job) + "\n", timeout=left_s)
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.communicate()
            raise
        if worker.returncode != 0:
            raise RunnerError(f"a worker ended with exit code {worker.returncode}; see above")
        found: dict[str, Any] = json.loads(answer.splitlines()[-1])
        return found

    def _start(self) -> subprocess.Popen[str]:
        command = [sys.executable, self._script, "--worker"]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def _require_ready(self, worker: subprocess.Popen[str]) -> None:
        if worker.pid in self._ready:
            return
        assert worker.stdout is not None
        if worker.stdout.readline().strip() != _READY:
            raise RunnerError(f"a worker of {Path(self._script).name} did not get ready; see above")
        self._ready.add(worker.pid)


def wait_for_job() -> dict[str, Any]:
    """In a worker: say that it is ready, and return the job that `WaitingWorkers.ask` gives it."""
    print(_READY, flush=True)
    job: dict[str, Any] = json.loads(sys.stdin.readline())
    return job


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
        "p_value": comparison.p_value,
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
