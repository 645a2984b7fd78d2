"""The iteration of a program, found in the order of what it gives its device.

Programs do something more now and then, such as a look at the loss in each tenth iteration. So a
few iterations may be a little longer than the others. Layers may not: what stands before the first
of equal layers and after the last is much beside a layer, or it comes often. And libraries choose
kernels by the length of a sequence, so each second or fourth token may be more alike than tokens
that follow each other: what an iteration consists of several times without a rest is the iteration.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

_LEAST_COUNT = 3  # iterations, before it is called one
_MOST_WORK = 1 << 17  # that is looked at
_LEAST_SCORE = 0.6
_LEAST_SHARE = 0.1  # of all work is in iterations
_FEW_NAMES = 16  # for which lags are scored exactly
_OF_BEST = 0.8  # of the best lag's score
_MOST_LAGS = 32  # that are tried
_LEAST_SIZE = 0.9  # of that of the longest
_SAME_AS_WELL = 0.02  # that a shorter iteration may have less of the same
_SAME_IN_PARTS = 0.2  # that a part of it may have less, which it is several times
_LEAST_PARTS = 0.5  # of its size
_SAME = 0.8  # of an iteration's pieces are those of others
_COMPARED = 8  # iterations, to find a usual one
_MORE, _MOST_MORE = 0.06, 64  # as a share, and pieces, by which one may be longer or shorter
_SAME_BESIDE = 0.9  # of the pieces beside what is more
_MOST_OTHERS = 0.2  # of the iterations are such
_MUCH_MORE = 1.5  # of the work
_MOST_SHORTER = 4  # that are tried instead
_LEAST_OF_LONGEST = 0.1  # as many iterations another stretch has, as a share of the longest one's
_MOST_SCORED = 512  # pieces of an iteration


@dataclass(frozen=True, slots=True)
class Period:
    """``length`` pieces of work that come again and again, in each of the ``stretches`` without a
    break: where each iteration begins, and the end of the last. ``usual`` are the pieces of an
    iteration that is most like the others."""

    length: int
    stretches: tuple[tuple[int, ...], ...]
    usual: np.ndarray = field(compare=False, repr=False)

    @property
    def count(self) -> int:
        """Whole iterations."""
        return sum(len(starts) - 1 for starts in self.stretches)

    @property
    def size(self) -> int:
        """Of all iterations, in pieces of work."""
        return sum(starts[-1] - starts[0] for starts in self.stretches)


def find_period(symbols: np.ndarray) -> Period | None:
    """The shortest stretch that repeats, and where it does so; None if nothing repeats. ``symbols``
    are numbers that name the pieces of work in their order."""
    symbols = symbols[:_MOST_WORK]
    if len(symbols) < 2 * _LEAST_COUNT:
        return None
    found = []
    for length in _list_lags(symbols):
        stretch = _find_longest(symbols, length)
        if stretch is not None:
            found.append(_extend(symbols, length, *stretch))
    most = max((period.size * same for period, same in found), default=0.0)
    long = [(period, same) for period, same in found if period.size * same > _LEAST_SIZE * most]
    best = max((same for _, same in long), default=0.0)
    chosen = next((period for period, same in long if same >= best - _SAME_AS_WELL), None)
    if chosen is None:
        return None
    parts = (
        period
        for period, same in found
        if chosen.length % period.length == 0
        and same >= best - _SAME_IN_PARTS
        and period.size >= _LEAST_PARTS * chosen.size
    )
    whole = _add_others(symbols, next(parts, chosen))
    if _MUCH_MORE * whole.size < len(symbols):
        # What interrupts may come again with all around it, and is then a long iteration: a shorter
        # one explains much more. Layers do not.
        shorter = [(period.size * same, period) for period, same in found
                   if period.length < whole.length and same >= best - _SAME_IN_PARTS]  # fmt: skip
        shorter.sort(key=lambda item: -item[0])
        others = [_add_others(symbols, period) for _, period in shorter[:_MOST_SHORTER]]
        widest = max(others, key=lambda period: period.size, default=whole)
        whole = widest if widest.size > _MUCH_MORE * whole.size else whole
    return whole if whole.size >= _LEAST_SHARE * len(symbols) else None


def is_same(pieces: np.ndarray, usual: np.ndarray) -> bool:
    """Whether most are the usual ones."""
    return bool((pieces == usual).mean() >= _SAME)


def _add_others(symbols: np.ndarray, period: Period) -> Period:
    """With the stretches before and after the longest: other work may come in each window, such as
    the prompt of the next text."""
    (longest,), length, usual = period.stretches, period.length, period.usual
    least = max(_LEAST_COUNT, _LEAST_OF_LONGEST * period.count)
    found = [longest]
    for low, high in ((0, longest[0]), (longest[-1], len(symbols))):
        scores = _score_places(symbols[low:high], usual)
        good = np.flatnonzero(scores >= _SAME)
        place = 0
        while (next_good := np.searchsorted(good, place)) < len(good):
            near = int(good[next_good])
            start = near + int(np.argmax(scores[near : near + length]))
            ends: list[int] = []
            if is_same(symbols[low + start :][:length], usual):
                ends, _ = _go_on(symbols[:high], usual, low + start)
            if len(ends) >= least:
                found.append((low + start, *ends))
            place = ends[-1] - low if ends else start + length
    return replace(period, stretches=tuple(sorted(found)))


def _score_places(symbols: np.ndarray, usual: np.ndarray) -> np.ndarray:
    """Of each place the share of an iteration's pieces that are the usual ones from there on; of
    some pieces, where there are many."""
    length, count = len(usual), len(symbols) - len(usual) + 1
    if count < 1:
        return np.zeros(0)
    pieces = np.arange(length)
    if length > _MOST_SCORED:
        pieces = np.random.default_rng(0).choice(pieces, _MOST_SCORED, replace=False)
    total = np.zeros(count)
    for piece in pieces.tolist():
        total += symbols[piece : piece + count] == usual[piece]
    return total / len(pieces)


def _list_lags(symbols: np.ndarray) -> list[int]:
    """After how many pieces the same may come again, the shortest first."""
    most = len(symbols) // _LEAST_COUNT
    scores = _score_lags(symbols)[: most + 2]
    best = scores[1 : most + 1].max(initial=0.0)
    if best < _LEAST_SCORE:
        return []
    is_peak = np.concatenate([[False], scores[1:-1] >= np.maximum(scores[:-2], scores[2:])])
    is_peak[1] = True
    lags = np.flatnonzero(is_peak & (scores[:-1] >= max(_LEAST_SCORE, _OF_BEST * best)))
    likely = lags[np.argsort(-scores[lags].round(2), kind="stable")][:_MOST_LAGS]
    return [lag for lag in sorted(likely.tolist()) if not _is_other(lag, likely, scores)]


def _is_other(lag: int, lags: np.ndarray, scores: np.ndarray) -> bool:
    """Whether it is several times one that is as good, or a little beside a better one."""
    parts = lags[(lags < lag) & (lag % lags == 0)]
    beside = lags[np.abs(lags - lag) <= min(int(_MORE * lag), _MOST_MORE)]
    is_several = bool((scores[parts] >= scores[lag] - _SAME_AS_WELL).any())
    return is_several or bool(scores[beside].max() > scores[lag])


def _score_lags(symbols: np.ndarray) -> np.ndarray:
    """For each lag the share of pieces that are the same that much later."""
    _, numbers = np.unique(symbols, return_inverse=True)
    count = len(symbols)
    size = 1 << (2 * count - 1).bit_length()
    names = int(numbers.max()) + 1
    if names <= _FEW_NAMES:
        signs = np.eye(names)
    else:  # products of the signs of equal names are 1, of others 0 on average
        signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(8, names)) / math.sqrt(8)
    total = np.zeros(count)
    for row in signs:
        spectrum = np.fft.rfft(row[numbers], size)
        total += np.fft.irfft(spectrum * spectrum.conj(), size)[:count]
    return total / np.arange(count, 0, -1)


def _find_longest(symbols: np.ndarray, length: int) -> tuple[int, int] | None:
    """From where to where pieces are the same that much later."""
    same = symbols[:-length] == symbols[length:]
    # A piece may differ now and then, an iteration not as a whole.
    sums = np.concatenate([[0], np.cumsum(same)])
    width = min(length, len(same))
    good = (sums[width:] - sums[:-width]) >= _SAME * width
    edges = np.flatnonzero(np.diff(np.concatenate([[False], good, [False]])))
    runs = edges.reshape(-1, 2)
    if not len(runs):
        return None
    first, end = max(runs.tolist(), key=lambda run: run[1] - run[0])
    last = min(end - 1 + width + length, len(symbols))
    return (first, last) if (last - first) // length >= _LEAST_COUNT else None


def _extend(symbols: np.ndarray, length: int, first: int, last: int) -> tuple[Period, float]:
    """The iterations from ``first`` to ``last``, and in both directions beyond; and the share of
    pieces that are the same in all."""
    regular = list(range(first, last + 1, length))
    rows = symbols[first : regular[-1]].reshape(-1, length)
    usual = _find_usual(rows)
    same = float(np.count_nonzero(rows == usual))
    after, same_after = _go_on(symbols, usual, regular[-1])
    turned, same_before = _go_on(symbols[::-1], usual[::-1], len(symbols) - first)
    before = [len(symbols) - place for place in reversed(turned)]
    found = (*before, *regular, *after)
    others = np.count_nonzero(np.diff(found) != length)
    if others > 1 + _MOST_OTHERS * len(found):
        found = tuple(regular)
    else:
        same += same_before + same_after
    return Period(length, (found,), usual), same / (len(found) - 1) / length


def _find_usual(rows: np.ndarray) -> np.ndarray:
    """The row that is most like the others: any may have something else in it."""
    some = rows[:: max(1, len(rows) // _COMPARED)]
    alike = [np.count_nonzero(some == row) for row in some]
    usual: np.ndarray = some[int(np.argmax(alike))]
    return usual


def _go_on(symbols: np.ndarray, usual: np.ndarray, end: int) -> tuple[list[int], float]:
    """Where one iteration after the other ends, from the end of one, and how much is the same."""
    ends, total = [], 0.0
    while (found := _find_end(symbols, usual, end)) is not None:
        end, same = found
        ends.append(end)
        total += same
    return ends, total


def _find_end(symbols: np.ndarray, usual: np.ndarray, start: int) -> tuple[int, float] | None:
    """Of the iteration that begins at ``start``, and how many of its pieces are the usual ones;
    None if none begins there."""
    length = len(usual)
    pieces = symbols[start : start + length]
    if len(pieces) < length:
        return None
    same = pieces == usual
    if is_same(pieces, usual):
        return start + length, float(same.sum())
    before = np.concatenate([[0], np.cumsum(same)])  # of each place how many are the same before it
    most, end = _SAME_BESIDE * length, None
    slack = min(int(_MORE * length), _MOST_MORE)
    for more in range(max(-slack, -start), min(slack, len(symbols) - start - length) + 1):
        moved = symbols[start + more :][:length] == usual
        after = np.concatenate([np.cumsum(moved[::-1])[::-1], [0]])
        if (before + after).max() > most:
            most, end = float((before + after).max()), start + length + more
    return None if end is None else (end, most)
