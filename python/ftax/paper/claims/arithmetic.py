"""The arithmetic of claims: what is computed of a number that was not measured is missing too.

A `Missing` is neither None nor NaN: it says why there is no number. Operators hand it on, and so do
the functions here, so that a claim reads like its formula and each of its conditions is tested as
far as there are numbers for it.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, ParamSpec

from ftax.sweeps.knee_record import Answer, find_ends

# A size is still on the plateau while its latency is within this factor of the smallest so far.
PLATEAU_FACTOR = 1.3

P = ParamSpec("P")


class LackingError(Exception):
    """A truth was asked of a number that was not measured; the text says which."""


class Missing:
    """Stands for a number that was not measured, and for all that is computed of it."""

    __slots__ = ("why",)

    def __init__(self, why: str) -> None:
        self.why = why

    def _keep(self, *_: object) -> Missing:
        return self

    def _refuse(self) -> Any:
        raise LackingError(self.why)

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _keep
    __truediv__ = __rtruediv__ = __neg__ = __abs__ = _keep
    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = _keep  # type: ignore[assignment]
    __bool__ = __float__ = __iter__ = _refuse
    __hash__ = None  # type: ignore[assignment]


def lacking(function: Callable[P, Any]) -> Callable[P, Any]:
    """Let a function give a `Missing` where a number that it needs is missing, or where it has no
    value, as a division by zero."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> Any:
        try:
            return function(*args, **kwargs)
        except LackingError as error:
            return Missing(str(error))
        except (ArithmeticError, ValueError, IndexError) as error:
            return Missing(f"it has no value for these numbers ({type(error).__name__}: {error})")

    return call


@lacking
def knee(latencies: Sequence[Any], sizes: Sequence[int] | None = None) -> Any:
    """The largest size up to which every latency is within 1.3 times the smallest so far.

    Without ``sizes`` they are 1, 2, 4, ... The end of a plateau is that of `ftax.knee`, which
    searches sizes and tells by rounds whether one is on it; here a grid is given and a factor.
    """
    steps = [2**index for index in range(len(latencies))] if sizes is None else list(sizes)
    smallest = latencies[0]
    answers: dict[int, Answer] = {}
    for size, latency in zip(steps, latencies):
        smallest = min(smallest, latency)
        answers[size] = "off" if latency > PLATEAU_FACTOR * smallest else "on"
        if answers[size] == "off":
            break
    return find_ends(steps[0], answers)[0]


@lacking
def past(values: Sequence[Any], latencies: Sequence[Any]) -> Any:
    """The values at the sizes past the knee of ``latencies``, which are those of 1, 2, 4, ...

    Missing if the largest size is on the plateau.
    """
    found = list(values)[_count_plateau(latencies) : len(latencies)]
    if not found:
        raise LackingError("the largest batch that was measured is still on the plateau")
    return found


@lacking
def plateau(latencies: Sequence[Any]) -> Any:
    """The median latency up to the knee: of many sessions, so that no single one decides."""
    return statistics.median(latencies[: _count_plateau(latencies)])


def _count_plateau(latencies: Sequence[Any]) -> int:
    found = knee(latencies)
    return int(float(found)).bit_length()


@lacking
def spearman(left: Sequence[Any], right: Sequence[Any]) -> Any:
    """Rank correlation; missing where one side is constant."""
    if len(left) != len(right):
        raise ValueError(f"{len(left)} values cannot be correlated with {len(right)}")
    middle = (len(left) - 1) / 2
    one, other = ([place - middle for place in rank(values)] for values in (left, right))
    products = sum(a * b for a, b in zip(one, other))
    return float(products / (sum(a * a for a in one) * sum(b * b for b in other)) ** 0.5)


def rank(values: Sequence[float]) -> list[float]:
    """The place of each value in order of size, from 0; equal values share their mean place."""
    ordered = sorted(values)
    places: dict[float, float] = {}
    start = 0
    while start < len(ordered):
        end = start + ordered.count(ordered[start])
        places[ordered[start]] = (start + end - 1) / 2
        start = end
    return [places[value] for value in values]


@lacking
def most(values: Iterable[Any]) -> Any:
    """The largest."""
    return max(float(value) for value in values)


@lacking
def least(values: Iterable[Any]) -> Any:
    """The smallest."""
    return min(float(value) for value in values)


@lacking
def mean(values: Sequence[Any]) -> Any:
    """The arithmetic mean."""
    return sum(values) / len(values)


@lacking
def every(truths: Iterable[Any]) -> Any:
    """Whether all of them are so."""
    return all(truths)


@lacking
def either(truths: Iterable[Any]) -> Any:
    """Whether one of them is so."""
    return any(truths)


def rising(*values: Any) -> Any:
    """Whether each is larger than the one before."""
    return every(low < high for low, high in pairwise(values))


def falling_or_same(*values: Any) -> Any:
    """Whether none is larger than the one before."""
    return every(high >= low for high, low in pairwise(values))


def cut(old: Any, new: Any) -> Any:
    """Reduction of latency, in %."""
    return 100 * (1 - new / old)


def cuts(old: Sequence[Any], new: Sequence[Any]) -> list[Any]:
    """That of each pair."""
    return [cut(before, after) for before, after in zip(old, new, strict=True)]


def spread(*values: Any) -> Any:
    """The largest over the smallest."""
    return most(values) / least(values)


def ratios(left: Sequence[Any], right: Sequence[Any]) -> list[Any]:
    """One over the other, pair by pair."""
    return [a / b for a, b in zip(left, right, strict=True)]


def within(value: Any, target: float, tolerance: float) -> Any:
    """Whether it is no further away than that."""
    return abs(value - target) <= tolerance


def list_some(texts: Iterable[str], most: int, *, between: str = "; ", more: str) -> str:
    """The first of many texts, and how many more there are: ``more`` holds {}."""
    listed = list(texts)
    rest = more.format(len(listed) - most) if len(listed) > most else ""
    return between.join(listed[:most]) + rest
