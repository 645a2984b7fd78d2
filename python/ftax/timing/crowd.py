"""Whether the runners of a receipt disturb each other, which would look like a tax.

The first one is timed anew for that, alone and among the others by turns. The receipt's rounds are
no measure for what comes half a minute later, on a host with neighbours of its own.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import replace

from ftax import _core
from ftax.timing.comparison import compare_values
from ftax.timing.measurement import Measurement
from ftax.timing.plan import Plan
from ftax.timing.session import quiet

_LEAST_PAIRS, _MOST_PAIRS = 5, 6
_ROUNDS = 2  # of one stretch
_SHARE = 0.25  # of the time for the rounds, which all pairs may take
_MARGIN = 0.05


def check_crowd(
    runners: Sequence[_core.Runner], measured: Sequence[Measurement], plan: Plan, *, name: str
) -> str | None:
    """What to warn of if the first of ``runners`` takes other times alone than among the others.

    None also where it cannot be told: requests are so long that too few turns fit, or one failed.
    Raises KeyboardInterrupt after Ctrl-C.

    Args:
        measured: of the same runners, which tells how long a round takes.
        name: of the first of them.
    """
    limit_s = max(1.0, _SHARE * plan.duration_s)
    round_s = find_round_s(measured)
    if len(runners) < 2 or _LEAST_PAIRS * _ROUNDS * round_s > limit_s:
        return None
    short = replace(plan, rounds=_ROUNDS, warmup=2, duration_s=limit_s, patience_s=0.0)
    among: list[float] = []
    alone: list[float] = []
    end = time.monotonic() + limit_s
    with quiet():
        while len(alone) < _MOST_PAIRS and (len(alone) < _LEAST_PAIRS or time.monotonic() < end):
            turn = replace(short, seed=plan.seed + len(alone))  # another order of the runners
            beside, apart = _time_first(runners, turn), _time_first(runners[:1], turn)
            if len(beside) < _ROUNDS or len(apart) < _ROUNDS:
                return None
            among.append(statistics.fmean(beside))
            alone.append(apart[-1])  # in the first round what ran before may still be at work
    return judge_crowd(alone, among, name)


def find_round_s(measured: Sequence[Measurement]) -> float:
    """How long a round of these takes, in seconds."""
    return sum(statistics.fmean(map(sum, item.samples_ns)) for item in measured) / 1e9


def judge_crowd(alone_ns: Sequence[float], among_ns: Sequence[float], name: str) -> str | None:
    """The warning of `check_crowd`, of pairs that were timed by turns."""
    found = compare_values(alone_ns, among_ns, margin=_MARGIN, paired=True)
    low, high = found.ratio_interval.low, found.ratio_interval.high
    if low <= 1 + _MARGIN and high >= 1 / (1 + _MARGIN):
        return None
    return (
        f"{name} took {found.ratio:.2f} times as long among the other runners as alone "
        f"(95 % interval {low:.2f} to {high:.2f}): they disturb each other"
    )


def _time_first(runners: Sequence[_core.Runner], plan: Plan) -> list[float]:
    """The first one's rounds, ns; too few if it failed."""
    result = _core.measure_rounds(runners, plan.to_core())
    if result.stop_reason == "interrupted":
        raise KeyboardInterrupt
    return result.runners[0].values_ns
