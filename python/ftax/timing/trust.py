"""Whether the mean of some rounds is a latency to go by: the one place that judges it.

A number that is not is still printed, with the words "not resolved" and the reason, and nothing is
recommended by it. Rounds may be far apart, because an honest result of
a noisy machine has to pass: of more than 500 results in ``bench/results`` the mean of none is more
than 1.4 times the median of its rounds, and of none that nothing disturbed more than 1.2 times.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from ftax import _core

NOT_RESOLVED = "not resolved"
DISTURBED_IN = "the host was disturbed in"  # how the warning begins that says so

TOO_FEW = "rounds are too few"  # how a doubt ends that says so
FEW_ROUNDS = 5  # fewer have an interval that is wide or none, and nothing to go by
_MOST_QUEUED = 0.5  # of the requests of the middle round: a median of more is one that waited
_FARTHEST = 1.5  # times, either way, that the mean of rounds may be their median
_FEW_TO_GROW = 20  # rounds: fewer have fifths of which nothing is known
_GROWN = 0.1  # of the first fifth, until the last
_STEADILY = 0.1  # of all that, from each fifth to the next


def say_few_rounds(rounds: int) -> str:
    """That so many rounds tell nothing apart; "" if they may."""
    return f"{rounds} {TOO_FEW}" if rounds < FEW_ROUNDS else ""


def find_doubt_of_waits(queued_ratio: float | None) -> str:
    """Why even the median of rounds says little of what was measured; "" if it can be believed.

    Args:
        queued_ratio: `Measurement.queued_ratio`; None where nobody knows.
    """
    if queued_ratio is None or queued_ratio < _MOST_QUEUED:
        return ""
    return (
        "requests waited for a CPU: other work had the CPUs, or torch has more threads than there "
        "are CPUs (--threads); leave the machine alone"
    )


def find_disturbance(warnings: Iterable[str]) -> str:
    """The warning that rounds beside a neighbour count, being too many to leave out; "" without it.

    Such a latency is a latency of its machine, at a time when others used it too.
    """
    return next((text for text in warnings if text.startswith(DISTURBED_IN)), "")


def find_doubt(values_ns: Sequence[float], *, queued_ratio: float | None = None) -> str:
    """`find_doubt_of_waits`, and why their mean says less: few of the rounds decide it.

    Args:
        values_ns: one a round that counts; at least one.
    """
    doubt = find_doubt_of_waits(queued_ratio)
    if doubt:
        return doubt
    mean = sum(values_ns) / len(values_ns)
    median = _core.compute_median(list(values_ns))
    if not median / _FARTHEST <= mean <= median * _FARTHEST:
        ratio = mean / median if median else float("inf")
        return (
            f"the mean of the rounds is {ratio:.3g} times their median: few rounds decide it; "
            "measure on a machine that is left alone"
        )
    return ""


def find_growth(values_ns: Sequence[float]) -> float | None:
    """How many times as long the last fifth of some rounds took as the first, if they became longer
    all along; None if not, or if they are too few to tell. A neighbour that comes, or a clock that
    falls, makes one step and no more."""
    if len(values_ns) < _FEW_TO_GROW:
        return None
    bounds = [len(values_ns) * part // 5 for part in range(6)]
    fifths = [_core.compute_median(list(values_ns[begin:end])) for begin, end in pairwise(bounds)]
    grown = fifths[-1] - fifths[0]
    if grown <= _GROWN * fifths[0] or min(b - a for a, b in pairwise(fifths)) < _STEADILY * grown:
        return None
    return fifths[-1] / max(fifths[0], 1.0)


def find_doubt_of_mean(
    values_ns: Sequence[float],
    interval_ns: tuple[float, ...] | None,
    *,
    queued_ratio: float | None = None,
) -> str:
    """`find_doubt`, and what the interval of the mean says against it."""
    doubt = find_doubt(values_ns, queued_ratio=queued_ratio)
    if doubt:
        return doubt
    if interval_ns is None:
        return "a single round has no interval; --duration gives it more"
    if interval_ns[0] <= 0:
        return "the interval holds latencies below 0; --duration gives it more rounds"
    return ""
