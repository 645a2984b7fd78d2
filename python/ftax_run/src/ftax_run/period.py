"""The iteration of a program, found in the order of what it gives its device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_LEAST_COUNT = 3  # iterations, before it is called one
_MOST_WORK = 1 << 17  # that is looked at


@dataclass(frozen=True, slots=True)
class Period:
    """``length`` pieces of work that come again and again from ``first`` up to ``last``."""

    length: int
    first: int
    last: int

    @property
    def count(self) -> int:
        """Whole iterations."""
        return (self.last - self.first) // self.length


def find_period(symbols: np.ndarray) -> Period | None:
    """The shortest stretch that repeats, and where it does so without a break for longest; None if
    nothing repeats. ``symbols`` are numbers that name the pieces of work in their order."""
    symbols = symbols[:_MOST_WORK]
    if len(symbols) < 2 * _LEAST_COUNT:
        return None
    scores = _score_lags(symbols)
    most = len(symbols) // _LEAST_COUNT
    scores = scores[1 : most + 1]
    if not len(scores) or scores.max() < 0.6:
        return None
    # Of a model with equal layers, a layer repeats nearly as well as the whole.
    length = int(np.argmax(scores >= scores.max() - 0.02)) + 1
    found = _find_longest(symbols, length)
    if found is None:
        return None
    first, last = found
    return Period(length, first, last)


def _score_lags(symbols: np.ndarray) -> np.ndarray:
    """For each lag the share of pieces that are the same that much later."""
    _, numbers = np.unique(symbols, return_inverse=True)
    count = len(symbols)
    size = 1 << (2 * count - 1).bit_length()
    signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(8, numbers.max() + 1))
    total = np.zeros(count)
    for row in signs:  # a random sign a name: products of equal names are 1, of others 0 on average
        spectrum = np.fft.rfft(row[numbers], size)
        total += np.fft.irfft(spectrum * spectrum.conj(), size)[:count]
    return total / len(signs) / np.arange(count, 0, -1)


def _find_longest(symbols: np.ndarray, length: int) -> tuple[int, int] | None:
    same = symbols[:-length] == symbols[length:]
    # A piece may differ now and then, an iteration not as a whole.
    sums = np.concatenate([[0], np.cumsum(same)])
    width = min(length, len(same))
    good = (sums[width:] - sums[:-width]) >= 0.8 * width
    edges = np.flatnonzero(np.diff(np.concatenate([[False], good, [False]])))
    runs = edges.reshape(-1, 2)
    if not len(runs):
        return None
    first, end = max(runs.tolist(), key=lambda run: run[1] - run[0])
    last = min(end - 1 + width + length, len(symbols))
    return (first, last) if (last - first) // length >= _LEAST_COUNT else None
