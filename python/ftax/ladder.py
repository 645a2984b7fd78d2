"""The ladder: which rungs there are, what the step between two of them removes, and the taxes.

Every rung makes the same operator calls, so the difference between two latencies is the cost of
what the lower rung does without. Differences are marginal in the order of the ladder: they add up
exactly to the latency of the first rung, but they are not savings that one could bank in any order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from ftax import _core
from ftax.records import Name, Record, Rule
from ftax.results import Measurement
from ftax.runtimes import Host

# (runtime, host) of each rung, top to bottom.
RUNGS: tuple[tuple[str, Host], ...] = (("eager", "python"), ("flat", "python"), ("eager", "cpp"))

_REMOVED = {
    (("eager", "python"), ("flat", "python")): (
        "model glue",
        "module calls, hooks, the model's own Python",
    ),
    (("flat", "python"), ("eager", "cpp")): (
        "interpreter and bindings",
        "bytecode, argument parsing, wrapping of tensors",
    ),
    (("eager", "python"), ("eager", "cpp")): (
        "Python",
        "model glue, interpreter and bindings together (there is no flat rung between them)",
    ),
}
_REST = {
    ("eager", "cpp"): ("operators", "dispatcher, operators and their kernels, allocator"),
    ("flat", "python"): ("operators and bindings", "everything below the model's own Python"),
    ("eager", "python"): ("everything", "no rung below could be measured"),
}

_Ends = Annotated[tuple[float, ...], Rule("a list of two numbers", lambda ends: len(ends) == 2)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line(Record):
    """One line of a receipt: a part of the latency of the first rung.

    ``interval_ns`` comes from rounds resampled jointly over all rungs. ``resolved`` says whether it
    excludes 0; ``rounds_needed`` is about how many rounds would resolve it (None: it is resolved,
    or the difference is too close to 0 to say).
    """

    name: Name
    removes: str
    upper: str  # label of the rung above, "eager/python"
    lower: str | None  # None: the rest, which no rung below takes away
    time_ns: float
    interval_ns: _Ends | None
    share_ratio: float  # of the latency of the first rung
    resolved: bool
    rounds_needed: int | None


def label(runtime: str, host: str) -> str:
    """``eager/cpp``."""
    return f"{runtime}/{host}"


def compute_lines(rungs: Sequence[Measurement]) -> tuple[Line, ...]:
    """The lines for rungs given from top to bottom; their times sum to the first one's latency."""
    top_ns = rungs[0].latency_ns
    places = range(len(rungs))
    contrasts = [_unit(len(rungs), i, i + 1) for i in places]
    intervals = compute_intervals(rungs, contrasts)
    lines = []
    for place, (upper, interval) in enumerate(zip(rungs, intervals, strict=True)):
        lower = rungs[place + 1] if place + 1 < len(rungs) else None
        time_ns = upper.latency_ns - (lower.latency_ns if lower else 0.0)
        name, removes = _name_line(upper, lower)
        resolved = interval is not None and not interval[0] <= 0.0 <= interval[1]
        lines.append(
            Line(
                name=name,
                removes=removes,
                upper=label(upper.cell.runtime, upper.cell.host),
                lower=label(lower.cell.runtime, lower.cell.host) if lower else None,
                time_ns=time_ns,
                interval_ns=interval,
                share_ratio=time_ns / top_ns,
                resolved=resolved,
                rounds_needed=_estimate_rounds(time_ns, interval, len(upper.values_ns), resolved),
            )
        )
    return tuple(lines)


def compute_difference(
    measurements: Sequence[Measurement], upper: int, lower: int
) -> tuple[float, tuple[float, float] | None]:
    """Latency of one measurement minus another's of the same rounds, with its interval (ns)."""
    weights = _unit(len(measurements), upper, lower)
    (interval,) = compute_intervals(measurements, [weights])
    return measurements[upper].latency_ns - measurements[lower].latency_ns, interval


def compute_intervals(
    measurements: Sequence[Measurement], contrasts: Sequence[Sequence[float]]
) -> list[tuple[float, float] | None]:
    """Intervals of weighted sums of latencies, rounds resampled jointly; None below two rounds."""
    table = [list(row) for row in zip(*(m.values_ns for m in measurements), strict=True)]
    if len(table) < 2:
        return [None] * len(contrasts)
    first = measurements[0]
    intervals = _core.compute_joint_intervals(
        table,
        [list(weights) for weights in contrasts],
        confidence=first.confidence,
        resamples=first.resamples,
        seed=first.seed,
    )
    return [(interval.low, interval.high) for interval in intervals]


def _unit(size: int, plus: int, minus: int) -> list[float]:
    weights = [0.0] * size
    weights[plus] = 1.0
    if minus < size:
        weights[minus] = -1.0
    return weights


def _name_line(upper: Measurement, lower: Measurement | None) -> tuple[str, str]:
    above = (upper.cell.runtime, upper.cell.host)
    if lower is None:
        return _REST[above]
    return _REMOVED[above, (lower.cell.runtime, lower.cell.host)]


def _estimate_rounds(
    time_ns: float, interval: tuple[float, float] | None, rounds: int, resolved: bool
) -> int | None:
    """Intervals shrink with the square root of the rounds."""
    if resolved or interval is None or time_ns == 0.0:
        return None
    half_width = (interval[1] - interval[0]) / 2
    needed = rounds * (half_width / abs(time_ns)) ** 2
    return math.ceil(needed) if needed < 1e6 else None
