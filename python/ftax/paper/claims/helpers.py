"""The functions that the formulas of claims may call, and the value that stands for no value.

The surprising choice: a number that was not measured is no None and no NaN. It is a `Missing`, on
which every operation raises, so that a formula over a series of batches can be computed as long as
it does not look at the batch that is missing.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NoReturn

# A size is still on the plateau while its latency is within this factor of the smallest so far.
PLATEAU_FACTOR = 1.3


class LackingError(Exception):
    """A formula looked at a number that was not measured; the text says which."""


class Missing:
    """Stands for a number that was not measured; raises LackingError when it is used."""

    __slots__ = ("why",)

    def __init__(self, why: str) -> None:
        self.why = why

    def _refuse(self, *_: object) -> NoReturn:
        raise LackingError(self.why)

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _refuse
    __truediv__ = __rtruediv__ = __neg__ = __abs__ = __round__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = __bool__ = __float__ = _refuse
    __eq__ = __ne__ = __getitem__ = __iter__ = __len__ = _refuse
    __hash__ = None  # type: ignore[assignment]


def find_knee(
    latencies: Sequence[float],
    sizes: Sequence[int] | None = None,
    factor: float = PLATEAU_FACTOR,
) -> int:
    """The largest size up to which every latency is within ``factor`` of the smallest so far.

    Without ``sizes`` they are 1, 2, 4, ... This is the paper data's knee over a grid of sizes;
    `ftax.knee` searches, and judges by rounds.
    """
    steps = [2**index for index in range(len(latencies))] if sizes is None else list(sizes)
    smallest, knee = latencies[0], steps[0]
    for size, latency in zip(steps, latencies):
        smallest = min(smallest, latency)
        if latency > factor * smallest:
            break
        knee = size
    return knee


def find_past(values: Sequence[Any], latencies: Sequence[float]) -> list[Any]:
    """The values at the sizes past the knee of ``latencies``, which are those of 1, 2, 4, ...

    Raises LackingError if the largest size is on the plateau.
    """
    first = find_knee(latencies).bit_length()
    found = list(values)[first : len(latencies)]
    if not found:
        raise LackingError("the largest batch that was measured is still on the plateau")
    return found


def find_plateau(latencies: Sequence[float]) -> float:
    """The median latency up to the knee: of many sessions, so that no single one decides."""
    return statistics.median(latencies[: find_knee(latencies).bit_length()])


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


def correlate_ranks(left: Sequence[float], right: Sequence[float]) -> float:
    """Spearman's rank correlation. Raises ZeroDivisionError where one side is constant."""
    if len(left) != len(right):
        raise ValueError(f"{len(left)} values cannot be correlated with {len(right)}")
    ranks = (rank(left), rank(right))
    middle = (len(left) - 1) / 2
    one, other = ([place - middle for place in places] for places in ranks)
    products = sum(a * b for a, b in zip(one, other))
    return float(products / (sum(a * a for a in one) * sum(b * b for b in other)) ** 0.5)


def compute_cut(old: float, new: float) -> float:
    """Reduction of latency, in %."""
    return 100 * (1 - new / old)


def list_some(texts: Iterable[str], most: int, *, between: str = "; ", more: str) -> str:
    """The first of many texts, and how many more there are: ``more`` holds {}."""
    listed = list(texts)
    rest = more.format(len(listed) - most) if len(listed) > most else ""
    return between.join(listed[:most]) + rest


def _pair(left: Sequence[float], right: Sequence[float]) -> list[tuple[float, float]]:
    if len(left) != len(right):
        raise ValueError(f"{len(left)} values cannot be paired with {len(right)}")
    return list(zip(left, right))


HELPERS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "knee": find_knee,
        "past": find_past,
        "plateau": find_plateau,
        "spearman": correlate_ranks,
        "mean": lambda values: sum(values) / len(values),
        "cut": compute_cut,
        "cuts": lambda old, new: [compute_cut(o, n) for o, n in _pair(old, new)],
        "spread": lambda *values: max(values) / min(values),
        "ratio": lambda a, b: [x / y for x, y in _pair(a, b)],
        "minus": lambda a, b: [x - y for x, y in _pair(a, b)],
        "within": lambda a, b, tolerance: abs(a - b) <= tolerance,
        "all": all,
        "any": any,
        "min": min,
        "max": max,
        "abs": abs,
        "len": len,
        "sum": sum,
        "zip": lambda *lists: list(zip(*lists)),
        "round": round,
        "sorted": sorted,
        "range": lambda *bounds: list(range(*bounds)),
        "list": list,
    }
)
