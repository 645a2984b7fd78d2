"""Measures one size after the other, each beside the smallest one in rounds of its own.

The surprising choice: the plateau is measured again at every size. Machines drift by a fifth within
minutes, so two latencies are compared only where they were taken in the same rounds; a size that
cannot be told from the margin gets more of them, up to a limit.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import torch

from ftax import _core
from ftax.errors import (
    FtaxError,
    InvalidArgumentError,
    RunnerError,
    describe,
    is_out_of_memory,
    name_faults,
    release,
)
from ftax.instruments.gate import try_gate
from ftax.steps.loaded import LoadedModel
from ftax.sweeps.knee.record import KneePoint
from ftax.timing.candidate import Candidate
from ftax.timing.interrupts import interruptible
from ftax.timing.session import DISTURBANCE, Plan, Progress, Session, measure
from ftax.timing.trust import DISTURBED_IN

_FIRST_LOOK = 10  # rounds: the extremes of eight or more attain a confidence of 99 %
_GATE_REPETITIONS = 10
_MOST_OF_LIMIT = 0.25  # of the search's time, for the rounds of one size
_LEAST_S = 0.5  # for rounds that begin just before the time limit


class _PlateauError(RunnerError):
    """The smallest size failed, and no other size can be judged."""


@dataclass(slots=True, kw_only=True)
class Prober:
    """Measures sizes beside the plateau, which is made ready once and kept."""

    load: Callable[[int], LoadedModel]
    prepare: Callable[[LoadedModel], Candidate]
    over: str
    low: int
    loaded: LoadedModel  # at the smallest size
    plan: Plan
    is_clear: Callable[[KneePoint], bool]  # whether a point needs no further rounds
    progress: Progress | None
    plateau: Candidate = field(init=False)
    plateau_gate: tuple[float | None, float | None] = field(init=False)
    stopped: str = ""  # "time-limit" or "interrupted"
    _deadline: float = field(init=False)
    _sessions: int = 0
    _waited_s: float = 0.0  # for neighbours to leave
    _rounds: int = 0
    _disturbed: int = 0
    _warnings: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._tell(self.low, "preparing")
        self.plateau = self.prepare(self.loaded)
        self._note_outputs(self.low, self.plateau)
        self.plateau_gate = self._gate(self.plateau)
        self._deadline = time.perf_counter() + self.plan.duration_s

    @property
    def left_s(self) -> float:
        """What is left of the time limit."""
        return self._deadline - time.perf_counter()

    def probe(self, size: int) -> KneePoint | None:
        """The point of one size; None if the search was stopped before its first round."""
        try:
            return self._probe(size)
        except (InvalidArgumentError, _PlateauError):
            raise  # a larger size is not what is wrong
        except FtaxError as error:
            release(error)
            return _fail(size, error)
        finally:
            gc.collect()  # the next size may need the memory that this one took
            if torch.cuda.is_initialized():
                torch.cuda.empty_cache()

    def collect_warnings(self) -> tuple[str, ...]:
        """What a reader should know beside the answer, each once."""
        found = [*self.loaded.warnings, *self.plateau.warnings, *self._warnings]
        if self._disturbed:
            found.append(f"{DISTURBED_IN} {self._disturbed} of {self._rounds} rounds {DISTURBANCE}")
        return tuple(dict.fromkeys(found))

    def _probe(self, size: int) -> KneePoint | None:
        self._tell(size, "preparing")
        with name_faults(f"{self.over} {size} could not be loaded"):
            loaded = interruptible(self.load, size)
        prepared = interruptible(self.prepare, loaded)
        self._note_outputs(size, prepared)
        point = self._measure(size, prepared)
        # Where the gate could not tell once, it would wait for its watchdog at every size.
        has_gate = self.plateau_gate[0] is not None
        if point is None or point.problem is not None or self.stopped or not has_gate:
            return point
        try:
            issue_ns, device_ns = interruptible(self._gate, prepared)
        except KeyboardInterrupt:
            self.stopped = "interrupted"
            return point
        return replace(point, issue_ns=issue_ns, device_ns=device_ns)

    def _measure(self, size: int, prepared: Candidate) -> KneePoint | None:
        plateau_ns: list[float] = []
        values_ns: list[float] = []
        queued: list[float] = []
        disturbed = 0
        point = None
        deadline = time.perf_counter() + self.plan.duration_s * _MOST_OF_LIMIT
        for look in self._looks():
            left_s = min(self.left_s, deadline - time.perf_counter())
            try:
                session = self._run(size, prepared, look - len(values_ns), left_s)
            except KeyboardInterrupt:
                if point is None:
                    raise
                self.stopped = "interrupted"
                break
            for place, error in enumerate(session.errors):
                if error is not None:
                    # The plateau can run out of the memory that the larger size took.
                    if place == 0 and not is_out_of_memory(error):
                        raise _PlateauError(f"{self.over} {self.low} failed: {describe(error)}")
                    return _fail(size, error)
            measured = [item for item in session.measurements if item is not None]
            if len(measured) == 2:
                plateau_ns += measured[0].all_values_ns
                values_ns += measured[1].all_values_ns
                queued += map(max, measured[0].queued_ratios, measured[1].queued_ratios)
                disturbed += len(measured[1].disturbed_rounds)
                point = KneePoint(
                    size=size,
                    plateau_values_ns=tuple(plateau_ns),
                    values_ns=tuple(values_ns),
                    queued_ratio=statistics.median(queued) if queued else None,
                    disturbed_rounds=disturbed,
                )
            if session.stop_reason == "interrupted":
                self.stopped = "interrupted"
            elif point is None or self.left_s <= _LEAST_S:
                self.stopped = "time-limit"
            if self.stopped or point is None or self.is_clear(point):
                break
            if session.stop_reason == "time-limit":
                break
        return point

    def _looks(self) -> list[int]:
        """Numbers of rounds after which a point is looked at, declared before the first."""
        if self.plan.rounds is not None:
            return [self.plan.rounds]
        looks = [_FIRST_LOOK]
        while looks[-1] < self.plan.most_rounds:
            looks.append(min(self.plan.most_rounds, 2 * looks[-1]))
        return looks

    def _run(self, size: int, prepared: Candidate, rounds: int, left_s: float) -> Session:
        plan = replace(
            self.plan,
            rounds=max(2, rounds),
            duration_s=max(_LEAST_S, left_s),
            patience_s=max(0.0, self.plan.patience_s - self._waited_s),
            seed=self.plan.seed + self._sessions,
        )
        self._sessions += 1
        session = measure(self.loaded, [self.plateau, prepared], plan, partial(self._tell, size))
        for measurement in session.measurements[:1]:
            if measurement is not None:
                self._waited_s += float(measurement.checks.get("waited_for_core_s", 0.0))  # type: ignore[arg-type]
                self._rounds += len(measurement.samples_ns)
                self._disturbed += len(measurement.disturbed_rounds)
        return session

    def _gate(self, prepared: Candidate) -> tuple[float | None, float | None]:
        """Issue and device time of one request; None on a CPU, and where the gate cannot tell."""
        if self.loaded.device == "cpu" or not hasattr(_core, "measure_gated"):
            return None, None
        gated = try_gate(prepared, repetitions=_GATE_REPETITIONS)
        if gated.reason is not None:
            self._warnings.append(f"issue time: {gated.reason}")
        issue, device = gated.issue_ns, gated.device_ns
        if issue is None or device is None:
            return None, None
        return issue.median_ns, device.median_ns

    def _note_outputs(self, size: int, prepared: Candidate) -> None:
        if problem := prepared.checks.judge_outputs().problem:
            self._warnings.append(f"outputs at {self.over} {size}: {problem}")

    def _tell(self, size: int, phase: str, done: int = 0, total: int = 1) -> None:
        if self.progress:
            self.progress(f"{self.over} {size}: {phase}", done, total)


def _fail(size: int, error: BaseException | str) -> KneePoint:
    return KneePoint(size=size, problem=describe(error), out_of_memory=is_out_of_memory(error))
