"""When a comparison that goes on may be looked at, and how sure each look has to be.

The k-th look spends 1 / (k (k + 1)) of the rate of false alarms, and these shares sum to 1 over all
looks, however many there are: the union bound, with alpha spent over looks. So the intervals of all
looks hold together, and whoever stops when the answer is settled is wrong no more often than that.
Looks are planned, and not taken after every pair, because each one costs.
"""

from __future__ import annotations

FEWEST_PAIRS = 5
_LATER = 3, 2  # each look has 3 / 2 as many pairs as the one before: 5, 8, 12, 18, 27, ...


def find_look_confidence(look: int, confidence: float) -> float:
    """Of the interval at a look, counted from 1, so that those of all looks hold together with
    ``confidence``."""
    return 1 - (1 - confidence) / (look * (look + 1))


def is_look(pairs: int) -> bool:
    """Whether so many pairs are looked at."""
    planned = FEWEST_PAIRS
    while planned < pairs:
        planned = -(-planned * _LATER[0] // _LATER[1])
    return planned == pairs
