"""A chart with two axes: what it shows, and where in an SVG picture of one size that goes.

Every chart is drawn once, as wide as a phone. Wide screens put several side by side, and a click
enlarges one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from ftax.timing.cell import Cell
from ftax.timing.units import choose_unit

DTYPES = ("fp32", "fp16", "bf16")
MICROSECOND = "\N{MICRO SIGN}s"
_COLOURS, _SHAPES = 8, 8
_WIDTH, _HEIGHT = 360, 224
_TOP, _RIGHT, _BOTTOM = 24, 12, 34
_LETTER = 6.4  # of a tick's label, in units of the picture
_MOST_TICKS = 6
_LEAST_RANGE = 1.8  # of a logarithmic axis, from end to end: what is flat looks flat
_FAR = 3.0  # times the least or most value: an end of an interval beyond is left out of the range

Ends = tuple[float, float]
Keys = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Colour and shape of marks, by number (None: ink, and no mark), and dashes between them."""

    colour: int | None = None
    shape: int | None = None
    hollow: bool = False
    dash: int = 0

    @property
    def classes(self) -> str:
        """For the style sheet."""
        return f"c{self.colour} d{self.dash}{' hollow' if self.hollow else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Of a legend: what a look means; None is the ring of what is in doubt."""

    name: str
    look: Look | None
    keys: Keys = field(default_factory=dict)


RING = Entry(name="not resolved, or disturbed", look=None)


class Looks:
    """The looks of runtimes, each the same on the whole page: filled when Python drives it, hollow
    when C++ does, one dash a dtype. No two share both colour and shape before there are 64."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        runtimes = {cell.runtime for cell in cells}
        order = sorted(runtimes, key=lambda name: (name != "eager", name))
        self._places = {name: place for place, name in enumerate(order)}
        self._dtypes = sorted({cell.dtype for cell in cells}, key=DTYPES.index)

    def find(self, cell: Cell) -> Look:
        """The look of a cell's runtime."""
        place = self._places[cell.runtime]
        return Look(
            colour=place % _COLOURS,
            shape=(place + place // _COLOURS) % _SHAPES,
            hollow=cell.host == "cpp",
            dash=self._dtypes.index(cell.dtype),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A point, with its interval and what it says of itself; ``doubt`` puts a ring around it."""

    x: float
    y: float
    interval: Ends | None = None
    text: str = ""
    doubt: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Marks of one thing, in the order of x, and a line through them, which never joins two marks
    of one x. ``keys`` are what filters compare."""

    look: Look
    marks: tuple[Mark, ...]
    keys: Keys = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A range with ticks: values with their labels."""

    title: str
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    is_log: bool = False

    def place(self, value: float) -> float:
        """From 0 at the low end to 1 at the high one; what is beyond an end is on it."""
        value = min(max(value, self.low), self.high)
        if self.is_log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A chart.

    Attributes:
        label: for those who do not see it.
        areas: to shade: corners, and a class of the style sheet.
        rule: a height to draw a dashed line at.
    """

    size: ClassVar[tuple[int, int]] = (_WIDTH, _HEIGHT)

    label: str
    x: Axis
    y: Axis
    lines: tuple[Line, ...]
    areas: tuple[tuple[tuple[Ends, ...], str], ...] = ()
    rule: float | None = None

    @property
    def frame(self) -> tuple[float, float, float, float]:
        """Left, top, right and bottom of what the axes enclose."""
        left = max(26.0, 12 + _LETTER * max(len(label) for _, label in self.y.ticks))
        return left, _TOP, _WIDTH - _RIGHT, _HEIGHT - _BOTTOM

    def place(self, x: float, y: float) -> Ends:
        """Where a point is in the picture."""
        left, top, right, bottom = self.frame
        across, up = self.x.place(x), self.y.place(y)
        return round(left + across * (right - left), 1), round(bottom - up * (bottom - top), 1)

    def trace(self, points: Iterable[Ends]) -> str:
        """A path through points."""
        places = (self.place(x, y) for x, y in points)
        return "M" + "L".join(f"{x:g} {y:g}" for x, y in places)

    def join(self, line: Line) -> str:
        """The path through a line's marks; "" where there is none."""
        places = [mark.x for mark in line.marks]
        if len(places) < 2 or len(set(places)) < len(places):
            return ""
        return self.trace((mark.x, mark.y) for mark in line.marks)

    def reach(self, line: Line) -> str:
        """The path along its marks' intervals; "" where there is none."""
        known = [mark for mark in line.marks if mark.interval is not None]
        return "".join(self.trace((mark.x, end) for end in mark.interval or ()) for mark in known)


# --- axes -----------------------------------------------------------------------------------------


def make_time_axis(
    what: str,
    times_ns: Sequence[float],
    intervals: Iterable[Ends | None] = (),
    *,
    like_ns: float | None = None,
    log: bool = True,
) -> Axis:
    """Of times in ns, in one unit: that of the longest, or of ``like_ns``."""
    unit, unit_ns = choose_unit(max(times_ns) if like_ns is None else like_ns)
    make = make_log_axis if log else make_linear_axis
    title = f"{what} ({unit.replace('us', MICROSECOND)})"
    return make(title, times_ns, intervals, unit=unit_ns)


def make_log_axis(
    title: str,
    values: Sequence[float],
    intervals: Iterable[Ends | None] = (),
    *,
    unit: float = 1.0,
) -> Axis:
    """With ticks of 1, 2, 5, or of decades, or even ones in a range that is too short for them.

    An interval much longer than the differences between values leaves it, or would flatten them.
    """
    ends = [end for pair in intervals if pair for end in pair]
    least, most = min(values) / _FAR, max(values) * _FAR
    within = [value / unit for value in (*values, *ends) if least <= value <= most]
    low, high = min(within), max(within)
    pad = max(1.04 * (high / low) ** 0.04, math.sqrt(_LEAST_RANGE * low / high))
    low, high = low / pad, high * pad
    ticks: list[float] = []
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ((1, 2, 5), (1, 3), (1,)):
        ticks = [digit * 10.0**decade for decade in decades for digit in digits]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) <= _MOST_TICKS:
            break
    return _make_axis(title, low, high, ticks if len(ticks) > 2 else (), unit, is_log=True)


def make_linear_axis(
    title: str,
    values: Sequence[float],
    intervals: Iterable[Ends | None] = (),
    *,
    unit: float = 1.0,
) -> Axis:
    """From 0 to a little above the largest; whiskers may leave it."""
    return _make_axis(title, 0.0, 1.06 * max(values) / unit, (), unit, is_log=False)


def make_size_axis(title: str, sizes: Iterable[float]) -> Axis:
    """Of batches or lengths: a tick each, or the powers of two among many."""
    found = sorted(set(sizes))
    kept = [size for size in found if len(found) <= 8 or math.log2(size).is_integer()]
    pad = (found[-1] / found[0]) ** 0.03 * 1.03
    return _make_axis(title, found[0] / pad, found[-1] * pad, kept, 1.0, is_log=True)


def make_share_axis(title: str) -> Axis:
    """From nothing to all."""
    ticks = tuple((share / 4, f"{share * 25} %") for share in range(5))
    return Axis(title=title, low=-0.02, high=1.02, ticks=ticks)


def _make_axis(
    title: str, low: float, high: float, ticks: Sequence[float], unit: float, *, is_log: bool
) -> Axis:
    """Of a range in units, with these ticks or, without any, even ones."""
    return Axis(
        title=title,
        low=low * unit,
        high=high * unit,
        ticks=tuple((tick * unit, f"{tick:,.10g}") for tick in ticks or _spread(low, high)),
        is_log=is_log,
    )


def _spread(low: float, high: float) -> list[float]:
    """Multiples of the least round step of which few lie in the range."""
    decade = 10.0 ** math.floor(math.log10((high - low) / _MOST_TICKS))
    steps = (digit * decade for digit in (1, 2, 5, 10, 20))
    step = next(step for step in steps if (high - low) / step < _MOST_TICKS)
    places = range(math.ceil(low / step), math.floor(high / step) + 1)
    return [round(place * step, 12) for place in places]
