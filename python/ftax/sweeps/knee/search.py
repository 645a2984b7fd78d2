"""Which size to probe next when looking for the knee of a latency curve.

The surprising choice: the search has no state. It looks at the answers that there are and names the
next size, so it can be stopped after any probe, and a test can play any machine against it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

# "on" and "off" the plateau for certain; "unsure"; "limit": it could not be run at this size.
Answer = Literal["on", "off", "unsure", "limit"]


def find_ends(low: int, answers: Mapping[int, Answer]) -> tuple[int, int | None]:
    """The largest size certainly on the plateau, and the smallest certainly off it or not to be run
    at all; None if there is none yet. ``low`` is the plateau itself, and so on it."""
    upper = min((size for size, answer in answers.items() if answer in ("off", "limit")), default=0)
    on = [
        size for size, answer in answers.items() if answer == "on" and (not upper or size < upper)
    ]
    return max(on, default=low), upper or None


def choose_size(
    low: int, high: int, resolution: float, answers: Mapping[int, Answer]
) -> int | None:
    """The next size to probe, or None when nothing is left to learn.

    Sizes are doubled until one is off the plateau; then the gap is halved until its ends are
    neighbours or within the ratio 1 + ``resolution``. Sizes whose answer is "unsure" are left where
    they are, and the gaps on either side of them are closed each by itself.
    """
    last_on, upper = find_ends(low, answers)
    if upper is None:
        reached = max(answers, default=low)
        if reached < high:
            return min(high, 2 * reached)
    unsure = sorted(
        size
        for size, answer in answers.items()
        if answer == "unsure" and size > last_on and (upper is None or size < upper)
    )
    gaps = []
    if unsure:
        gaps.append((last_on, unsure[0]))
        if upper is not None:
            gaps.append((unsure[-1], upper))
    elif upper is not None:
        gaps.append((last_on, upper))
    for lower, higher in gaps:
        if higher - lower > max(1.0, resolution * lower):
            return (lower + higher) // 2
    return None
