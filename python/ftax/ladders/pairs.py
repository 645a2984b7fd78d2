"""Measures sides by turns, in pairs of processes, until the answer is settled or the time is over.

A pair is one fresh process with another hash seed. It imports torch, runs no operator, and
forks the sides. Each builds its model, and once all are built they take turns, five rounds each. So
memory layout, hash seed and what else the machine does are the same for all sides of a pair, and
others in the next one. Pairs are counted and not rounds: all rounds of a pair share its luck.
"""

from __future__ import annotations

import functools
import os
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch

from ftax.errors import FtaxError, RunnerError
from ftax.machines.gpu import expect_idle
from ftax.runtimes.prepare import prepare
from ftax.steps.given import use_threads
from ftax.steps.loaded import MeasuredModel
from ftax.steps.revision import Revision, check_origin, suggest_setup
from ftax.steps.setting import Setting
from ftax.timing.call_inputs import check_inputs_alike
from ftax.timing.candidate import Candidate
from ftax.timing.comparison import FEWEST_PAIRS, find_look_confidence, is_look
from ftax.timing.interrupts import interruptible
from ftax.timing.measurement import Measurement, make_session_id
from ftax.timing.plan import Plan, Progress
from ftax.timing.session import measure, require
from ftax.workers.child import Line
from ftax.workers.forks import ROUNDS_A_TURN, Fork, TurnTaker, take_turns
from ftax.workers.process import Worker, WorkerDied

DURATION_S = 55.0  # of all pairs, with the start of their processes
# Of one side in one pair, the warm-up included. Both sides feel the same of a turn of 50 ms.
_ROUNDS, _ROUND_MS, _SIDE_S = 80, 10.0, 2.0
_LIMIT_S = 24 * 3600.0  # of one step of a pair: to build, to compile, or a turn

Judge = Callable[[Sequence[Sequence[Measurement]], float], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairSide:
    """How another process builds one side.

    Attributes:
        model: by name; "" for objects, which are read from ``pickled``.
        pickled: a file with a model and its inputs, by `torch.save`.
        path: where its modules are found: in the place of Python's own folders, and after them if
            it is another Python; () for what Python has.
        revision: the git revision that its code has to come from.
        folder: where it runs; "" for the folder of the revision, or of this process.
        python: another interpreter to run it in; "" for this one.
    """

    model: str = ""
    runtime: str = ""
    host: str = "python"
    label: str = ""
    pickled: str = ""
    path: tuple[str, ...] = ()
    revision: Revision | None = None
    folder: str = ""
    python: str = ""
    setting: Setting = field(default_factory=Setting)

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {**asdict(self), "setting": self.setting.to_dict()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> PairSide:
        """What `to_dict` wrote."""
        revision = None if data["revision"] is None else Revision(**data["revision"])
        setting, path = Setting(**data["setting"]), tuple(data["path"])
        return cls(**{**data, "setting": setting, "revision": revision, "path": path})


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRuns:
    """The measurements of each side, one a pair; ``confidence`` of the interval at the last look,
    and what ended the pairs before they were done."""

    sides: list[list[Measurement]]
    confidence: float
    ended: KeyboardInterrupt | FtaxError | None = None


def make_pair_plan(changes: Mapping[str, Any]) -> Plan:
    """The plan of one side in one pair, with what the user changed of it."""
    own = {name: value for name, value in changes.items() if name != "duration_s"}
    usual = {"rounds": _ROUNDS, "round_ms": _ROUND_MS, "duration_s": _SIDE_S}
    return Plan(**{**usual, **own})


def run_pairs(
    sides: Sequence[PairSide],
    judge: Judge,
    *,
    plan: Plan,
    confidence: float,
    duration_s: float = DURATION_S,
    allow_different_inputs: bool = False,
    progress: Progress | None = None,
) -> PairRuns:
    """Measure pairs until ``judge``, which is given all measurements and the confidence of the
    look, says that they settle it, or ``duration_s`` is over; five pairs at least.

    A pair that fails, or Ctrl-C, ends them; what was measured before stays.

    Raises:
        InvalidArgumentError: the sides have different inputs, unless ``allow_different_inputs``.
        FtaxError: the first pair was stopped by it; RunnerError if a process just died.
    """
    found: list[list[Measurement]] = [[] for _ in sides]
    session, begin, looks = make_session_id(), time.monotonic(), 0
    ended: KeyboardInterrupt | FtaxError | None = None
    while True:
        index = len(found[0])
        if progress:
            pace_s = (time.monotonic() - begin) / max(1, index)
            most = max(FEWEST_PAIRS, int(duration_s / pace_s)) if index else FEWEST_PAIRS
            progress("pairs by turns", index, most)
        own = replace(plan, process_index=index, session=session, seed=plan.seed + index)
        try:
            pair = interruptible(_run_pair, sides, own)
        except (KeyboardInterrupt, FtaxError) as error:
            if not index:
                raise
            ended = error
            break
        for measurements, measurement in zip(found, pair, strict=True):
            measurements.append(measurement)
        if index == 0:
            _check_inputs(sides, pair, is_allowed=allow_different_inputs)
        pairs, taken_s = index + 1, time.monotonic() - begin
        is_over = pairs >= FEWEST_PAIRS and taken_s * (pairs + 1) / pairs > duration_s
        if is_over or is_look(pairs):
            looks += 1
            if judge(found, find_look_confidence(looks, confidence)) or is_over:
                break
    return PairRuns(
        sides=found, confidence=find_look_confidence(max(1, looks + bool(ended)), confidence),
        ended=ended,
    )  # fmt: skip


def _check_inputs(
    sides: Sequence[PairSide], pair: Sequence[Measurement], *, is_allowed: bool
) -> None:
    for side, other in zip(sides[1:], pair[1:], strict=True):
        names = (sides[0].label, side.label)
        check_inputs_alike(pair[0].inputs, other.inputs, names, is_allowed=is_allowed)


def _run_pair(sides: Sequence[PairSide], plan: Plan) -> list[Measurement]:
    """One pair: the measurement of each side."""
    seed = random.Random(f"{plan.session} {plan.process_index}").randrange(1, 2**32)
    environment = {"PYTHONHASHSEED": str(seed)}
    jobs = [{"side": side.to_dict(), "plan": plan.to_dict()} for side in sides]
    run = _run_apart if any(side.python for side in sides) else _run_forked
    answers = run(sides, jobs, seed, environment)
    return [
        Measurement.from_dict(answer).with_label(side.label)
        for side, answer in zip(sides, answers, strict=True)
    ]


def _run_forked(
    sides: Sequence[PairSide],
    jobs: Sequence[Mapping[str, Any]],
    seed: int,
    environment: Mapping[str, str],
) -> Sequence[Mapping[str, Any]]:
    worker = Worker(f"{__name__}:serve_pair", environment=environment)
    try:
        worker.send({"jobs": jobs, "seed": seed})
        (answer,) = worker.listen(_LIMIT_S)
    except WorkerDied as error:
        names = " and ".join(side.label for side in sides)
        raise RunnerError(f"the process of {names} failed: {error}") from error
    finally:
        worker.end()
    found: Sequence[Mapping[str, Any]] = answer["measurements"]
    return found


def _run_apart(
    sides: Sequence[PairSide],
    jobs: Sequence[Mapping[str, Any]],
    seed: int,
    environment: Mapping[str, str],
) -> Sequence[Mapping[str, Any]]:
    """As processes with one hash seed, where a side has another interpreter."""
    workers: list[Worker] = []
    try:
        for side, job in zip(sides, jobs, strict=True):
            task = f"{__name__}:serve_side"
            workers.append(Worker(task, environment=environment, python=side.python))
            workers[-1].send(job)
        return _take_turns(workers, jobs, seed)
    finally:
        for worker in workers:
            worker.end()


def _take_turns(
    processes: Sequence[Worker | Fork], jobs: Sequence[Mapping[str, Any]], seed: int
) -> list[Mapping[str, Any]]:
    names = [job["side"]["label"] for job in jobs]
    said = take_turns(processes, names, random.Random(seed))
    return [answer["measurement"] for (answer,) in said]


def serve_pair(job: Mapping[str, Any], line: Line) -> None:
    """The task of the process of a pair: fork the sides, and answer with what they measured."""
    forks: list[Fork] = []
    try:
        for each in job["jobs"]:
            forks.append(Fork(functools.partial(serve_side, each)))
        line.say("measured", measurements=_take_turns(forks, job["jobs"], job["seed"]))
    finally:
        for fork in forks:
            fork.end()


def serve_side(job: Mapping[str, Any], line: Line) -> None:
    """The task of one side: build, wait for the others, measure by turns, and answer."""
    side, plan = PairSide.from_dict(job["side"]), Plan(**job["plan"])
    turns = TurnTaker(line, expect_idle)
    with use_threads(side.setting.threads):
        loaded, prepared = _build(side)
        turns.begin()
        (found,) = require(measure(loaded, prepared, plan, turns, in_a_row=False))
    line.say("measured", measurement=found.with_turns(ROUNDS_A_TURN).to_dict())


def _build(side: PairSide) -> tuple[MeasuredModel, list[Candidate]]:
    if side.path:
        own = [folder for folder in sys.path if folder != os.getcwd()] if side.python else []
        sys.path[:] = [*own, *side.path]
    folder = side.folder or (side.revision.folder if side.revision else "")
    if folder:
        os.chdir(folder)
    model, inputs = _read_pickled(side.pickled) if side.pickled else (side.model, None)
    try:
        made = prepare(model, inputs, None, side.setting, runtime=side.runtime, hosts=(side.host,))
    except RunnerError as error:
        hint = suggest_setup(str(error)) if side.revision else ""
        if hint:
            raise RunnerError(f"{error}; {hint}") from error
        raise
    if side.revision:
        check_origin(side.revision, *([sys.prefix] if side.python else []))
    return made


def _read_pickled(path: str) -> tuple[Any, Any]:
    model, inputs = torch.load(path, weights_only=False)
    return model, inputs
