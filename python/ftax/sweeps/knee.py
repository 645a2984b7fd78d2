"""`ftax.knee`: the size at which a runtime's latency leaves the plateau of its smallest size.

Each size is measured beside the smallest one in rounds of both, because machines drift by a fifth
within minutes; a size that cannot be told from the margin gets more rounds, up to a limit. A search
that ends early (Ctrl-C, the time limit, too little memory) ends with an answer, which says how far
it came.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Unpack

import torch
from torch import nn

from ftax import _core
from ftax.errors import (
    FtaxError,
    InvalidArgumentError,
    RunnerError,
    check_count,
    check_number,
    describe,
    is_out_of_memory,
    name_faults,
    release,
)
from ftax.instruments.gate import try_gate
from ftax.machines.environment import collect_environment
from ftax.runtimes.catalogue import check_host, find_runtime
from ftax.runtimes.workspace import Workspace
from ftax.steps.given import Model, load, measuring
from ftax.steps.load import load_model
from ftax.steps.loaded import LoadedModel
from ftax.steps.setting import Setting, SettingOptions, read_setting
from ftax.sweeps.knee_record import Knee, KneePoint, Over, choose_size
from ftax.timing.candidate import Candidate, Host
from ftax.timing.interrupts import hold, interruptible, take
from ftax.timing.plan import Plan, Progress, choose_plan
from ftax.timing.session import DISTURBANCE, Session, make_cell, measure
from ftax.timing.trust import DISTURBED_IN
from ftax.timing.watched import ProgressChoice, tell_interrupted, watched

_FIRST_LOOK = 10  # rounds: the extremes of eight or more attain a confidence of 99 %
_GATE_REPETITIONS = 10
_MOST_OF_LIMIT = 0.25  # of the search's time, for the rounds of one size
_LEAST_S = 0.5  # for rounds that begin just before the time limit
KNEE_PLAN = Plan(max_rounds=80, duration_s=120.0)
_HIGH = {"batch": 1024, "sequence": 4096}


def knee(
    model: Model,
    inputs: Callable[[int], Any] | None = None,
    *,
    runtime: str = "eager",
    host: Host = "python",
    over: Over = "batch",
    low: int = 1,
    high: int | None = None,
    margin: float = 0.1,
    resolution: float = 0.1,
    confidence: float = 0.99,
    plan: Plan | None = None,
    progress: ProgressChoice = None,
    **options: Unpack[SettingOptions],
) -> Knee:
    """Find the largest size whose latency is within ``margin`` of the smallest size's.

    Args:
        model: a zoo name, a Hugging Face folder, what `ftax.load_model` returned, or an
            ``nn.Module``.
        inputs: for a module: a function from a size to the inputs of that size.
        over: "batch" or "sequence".
        low: the size that is the plateau.
        high: the largest size to try; None: 1024 requests, or as many tokens as the model takes.
        resolution: stop when the ends are within the ratio 1 + resolution, or neighbours.
        confidence: of the interval by which a size counts as on or off the plateau.
        plan: as for `ftax.py_bench`, but ``max_rounds`` and ``rounds`` are of one size,
            ``duration_s`` is the time limit of the search, ``patience_s`` is for all of it, and
            ``target_ratio`` is not used.

    The other arguments are those of `ftax.py_bench`. See docs/knee.md.

    Returns:
        The knee with every probed size; interrupted or out of time, with those that were done.

    Raises:
        InvalidArgumentError, UnsupportedError, UnavailableError: as the message says.
        RunnerError: the smallest size could not be run.
    """
    setting = read_setting(options, knee.__kwdefaults__)
    check_search(low, high, margin=margin, resolution=resolution, confidence=confidence)
    spec = find_runtime(runtime)
    spec.check_options(setting.runtime_options)
    with hold():
        with measuring(model, setting), watched(progress, model) as tell:
            load_size, limit = interruptible(choose_loader, model, inputs, over, setting)
            high = choose_high(over, low, high, limit)
            start = time.perf_counter()
            loaded = interruptible(load_size, low)
            prober = interruptible(
                Prober,
                load=load_size,
                prepare=lambda item: spec.prepare(Workspace(item), check_host(host)),
                over=over,
                low=low,
                loaded=loaded,
                plan=KNEE_PLAN if plan is None else choose_plan(plan),
                is_clear=lambda point: point.judge(margin, confidence) != "unsure",
                progress=tell,
            )
            points, stop_reason = _search(prober, high, resolution, margin, confidence)
            issue_ns, device_ns = prober.plateau_gate
            found = Knee(
                cell=make_cell(loaded, prober.plateau),
                over=over,
                low=low,
                high=high,
                margin=margin,
                resolution=resolution,
                confidence=confidence,
                points=tuple(points),
                issue_ns=issue_ns,
                device_ns=device_ns,
                stop_reason=stop_reason,  # type: ignore[arg-type]  # checked by the record
                environment=collect_environment(device=loaded.device),
                seconds=time.perf_counter() - start,
                checks=prober.plateau.checks.to_dict(),
                preparation=prober.plateau.preparation.to_dict(),
                warnings=prober.collect_warnings(),
            )
        if take():  # too late to cost anything
            found = replace(found, stop_reason="interrupted")
        tell_interrupted(progress, found.stop_reason, f"{len(points)} sizes")
        return found


def check_search(
    low: int, high: int | None, *, margin: float, resolution: float, confidence: float = 0.99
) -> None:
    """Raises InvalidArgumentError for what no search has, before a model is built for it."""
    check_count("low", low)
    if high is not None:
        check_count("high", high)
    check_number("margin", margin)
    check_number("resolution", resolution)
    check_number("confidence", confidence, most=1)


def choose_loader(
    model: Model, inputs: Callable[[int], Any] | None, over: str, setting: Setting
) -> tuple[Callable[[int], LoadedModel], int | None]:
    """What loads the model at a size, building it once, and the largest size if that is known."""
    if over not in ("batch", "sequence"):
        raise InvalidArgumentError(f"over is {over!r}; it has to be 'batch' or 'sequence'")
    if (given := getattr(setting, over)) is not None:
        raise InvalidArgumentError(
            f"{over} is {given}, but the knee is looked for over {over}: leave it out, or give low"
        )
    if isinstance(model, nn.Module):
        if not callable(inputs):
            raise InvalidArgumentError(
                f"inputs is of type {type(inputs).__name__}; a module needs a function from a size "
                "to inputs, such as lambda size: torch.randn(size, 512)"
            )
        return (
            lambda size: load_model(
                model, inputs=inputs(size), setting=replace(setting, **{over: size})
            ),
            None,
        )
    if inputs is not None:
        raise InvalidArgumentError("inputs is given, but a model by name or folder makes its own")
    loaded = load(model, None, None, setting)
    limit = loaded.max_sequence if over == "sequence" else None
    return lambda size: loaded.with_size(**{over: size}), limit


def choose_high(over: str, low: int, high: int | None, limit: int | None) -> int:
    """The largest size to try. Raises InvalidArgumentError for one that cannot be."""
    if high is None:
        high = limit or _HIGH[over]
    if not low < high:
        raise InvalidArgumentError(f"low is {low} and high is {high}; give a low that is smaller")
    if limit is not None and high > limit:
        raise InvalidArgumentError(f"high is {high}, but the model takes at most {limit} tokens")
    return high


def _search(
    prober: Prober, high: int, resolution: float, margin: float, confidence: float
) -> tuple[list[KneePoint], str]:
    points: list[KneePoint] = []
    try:
        while True:
            answers = {point.size: point.judge(margin, confidence) for point in points}
            size = choose_size(prober.low, high, resolution, answers)
            if size is None:
                return points, "done"
            if prober.left_s <= 0:
                return points, "time-limit"
            point = prober.probe(size)
            points += [] if point is None else [point]
            if prober.stopped:
                return points, prober.stopped
            if take():
                raise KeyboardInterrupt
    except KeyboardInterrupt:
        if not points:
            raise
        return points, "interrupted"


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
