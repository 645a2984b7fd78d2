"""What two threads of torch give on this machine: the same operator on one and on two, by rounds.

It says what the machine is good for, and not what it has. On two CPUs that other programs use too
an operator on two threads is slower than on one, and no list of CPUs tells.
"""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass

import torch

from ftax import _core
from ftax.errors import UnavailableError, describe
from ftax.steps.given import use_threads
from ftax.timing.plan import Plan
from ftax.timing.statistics import compute_interval, compute_mean
from ftax.timing.units import format_time

_ELEMENTS = 1 << 20  # of an exponential: half a millisecond on one thread
_ROUNDS = 20
_PLAN = Plan(rounds=_ROUNDS, warmup=5, round_ms=10.0)
_GAIN = 1.3  # times as fast on two threads: less, and they wait for CPUs
_FEW_DISTURBED = 0.2  # of the rounds


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """One operator on one thread and on two.

    Attributes:
        one_ns, two_ns: mean of the rounds, ns; ``two_ns`` is None where there is one CPU.
        waited_ratio: of the requests on two threads, those that can have waited for a CPU.
        disturbed_ratio: of the rounds, those in which other programs used the CPU.
        spread_ratio: half the 95 % interval of ``one_ns`` over it.
    """

    one_ns: float
    two_ns: float | None
    waited_ratio: float
    disturbed_ratio: float
    spread_ratio: float

    @property
    def gain(self) -> float | None:
        """How many times as fast two threads are."""
        return None if self.two_ns is None else self.one_ns / self.two_ns

    def advise(self) -> tuple[str, ...]:
        """What the machine is good for, in sentences."""
        return (self._advise_threads(), self._advise_rounds())

    def _advise_threads(self) -> str:
        if self.two_ns is None or self.gain is None:
            return "one thread: this process may use one CPU"
        times = (
            f"an operator takes {format_time(self.one_ns)} on one thread and "
            f"{format_time(self.two_ns)} on two"
        )
        if self.gain >= _GAIN and self.waited_ratio < _FEW_DISTURBED:
            return f"one thread and several: {times}"
        waits = f", where {self.waited_ratio:.0%} of the calls waited for a CPU"
        return f"one thread alone (--threads 1): {times}{waits if self.waited_ratio else ''}"

    def _advise_rounds(self) -> str:
        disturbed = f"other programs used the CPU in {self.disturbed_ratio:.0%} of the rounds"
        if self.disturbed_ratio > _FEW_DISTURBED:
            return (
                f"large differences: {disturbed}; --patience waits for them, and a longer "
                "--duration averages over them"
            )
        return f"differences of {max(self.spread_ratio, 0.001):.1%} within one process: {disturbed}"


def measure_team() -> Team:
    """Time it: about half a second. Raises UnavailableError if the operator fails."""
    x = torch.ones(_ELEMENTS)
    out = torch.empty_like(x)
    has_two = len(os.sched_getaffinity(0)) > 1
    runners = [
        _core.PythonRunner(
            functools.partial(torch.exp, x, out=out),
            f"exp on {threads}",
            device="cpu",
            grad_mode=_core.GradMode.inference,
            scope=functools.partial(use_threads, threads),
        )
        for threads in ((1, 2) if has_two else (1,))
    ]
    result = _core.measure_rounds(runners, _PLAN.to_core())
    if result.stop_reason == "interrupted":
        raise KeyboardInterrupt
    for found in result.runners:
        if found.error:
            raise UnavailableError(f"two threads cannot be measured: {describe(found.error)}")
    one, *rest = result.runners
    interval = compute_interval(tuple(one.values_ns), confidence=0.95, resamples=2000, seed=0)
    mean_ns = compute_mean(tuple(one.values_ns))
    return Team(
        one_ns=mean_ns,
        two_ns=compute_mean(tuple(rest[0].values_ns)) if rest else None,
        waited_ratio=_core.compute_median(rest[0].queued_ratios) if rest else 0.0,
        disturbed_ratio=len(result.disturbed_rounds) / _ROUNDS,
        spread_ratio=(interval[1] - interval[0]) / 2 / mean_ns if interval else 0.0,
    )
