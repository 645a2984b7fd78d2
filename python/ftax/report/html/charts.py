"""A chart with two axes as numbers: where lines, marks and ticks of an SVG picture go.

The surprising choice: every chart is drawn here, once, as wide as a phone. Wide screens put several
side by side, a click enlarges one, and the page needs neither a library nor a script to show any.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from ftax.report.html.view import MICROSECOND
from ftax.report.units import choose_unit
from ftax.results import Cell

WIDTH, HEIGHT = 360, 224
COLOURS, SHAPES = 8, 8
DTYPES = ("fp32", "fp16", "bf16")
_TOP, _RIGHT, _BOTTOM = 24, 12, 34
_LETTER = 6.4  # of a tick's label, in units of the picture
_MOST_TICKS = 6
_LEAST_RANGE = 1.8  # of a logarithmic axis, from end to end: what is flat looks flat
_FAR = 3.0  # times the least or most value: an end of an interval beyond is left out of the range

Ends = tuple[float, float]
Keys = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Colour and shape of marks, by number (None: ink, and no mark); whether they are hollow, and
    the dashes of the line between them."""

    colour: int | None
    shape: int | None
    hollow: bool = False
    dash: int = 0

    @property
    def classes(self) -> str:
        """For the style sheet."""
        colour = "" if self.colour is None else f"c{self.colour} "
        return f"{colour}d{self.dash}{' hollow' if self.hollow else ''}"


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
            colour=place % COLOURS,
            shape=(place + place // COLOURS) % SHAPES,
            hollow=cell.host == "cpp",
            dash=self._dtypes.index(cell.dtype),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A point, with its interval and what it says of itself; ``doubt`` puts a ring around it."""

    x: float
    y: float
    interval: Ends | None = None
    text: str
    doubt: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Marks of one thing. ``keys`` are what filters compare; ``joined`` is whether a line runs
    through them, which never joins two marks of one x."""

    look: Look
    marks: tuple[Mark, ...]
    keys: Keys = field(default_factory=dict)
    joined: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A range with ticks: values with their labels, "" for none."""

    title: str
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    is_log: bool = False

    def place(self, value: float) -> float:
        """From 0 at the low end to 1 at the high one; what is beyond an end is on it."""
        if value <= self.low:
            return 0.0
        if value >= self.high:
            return 1.0
        if self.is_log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A `Line` in units of the picture; ``rings`` are the places of doubtful marks."""

    line: Line
    path: str
    whiskers: str
    marks: tuple[tuple[float, float, str], ...]
    rings: tuple[Ends, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A chart.

    Attributes:
        label: for those who do not see it.
        bands: ranges of x to shade, each with a class of the style sheet.
        areas: between two lines of points over x, each with a class.
        rule: a height to draw a dashed line at.
    """

    label: str
    x: Axis
    y: Axis
    lines: tuple[Line, ...]
    bands: tuple[tuple[float, float, str], ...] = ()
    areas: tuple[tuple[tuple[Ends, ...], tuple[Ends, ...], str], ...] = ()
    rule: float | None = None

    size: ClassVar[tuple[int, int]] = (WIDTH, HEIGHT)

    @property
    def left(self) -> float:
        """Where the axes begin."""
        return max(26.0, 12 + _LETTER * max(len(label) for _, label in self.y.ticks))

    @property
    def ticks(self) -> tuple[list[tuple[float, str]], list[tuple[float, str]]]:
        """Those of x and of y, as places and labels."""
        return (
            [(self.place_x(value), label) for value, label in self.x.ticks],
            [(self.place_y(value), label) for value, label in self.y.ticks],
        )

    @property
    def frame(self) -> tuple[float, float, float, float]:
        """Left, top, right and bottom of what the axes enclose."""
        return self.left, _TOP, WIDTH - _RIGHT, HEIGHT - _BOTTOM

    def place_x(self, value: float) -> float:
        """Where it is in the picture."""
        return _round(self.left + self.x.place(value) * (WIDTH - _RIGHT - self.left))

    def place_y(self, value: float) -> float:
        """Where it is in the picture."""
        return _round(HEIGHT - _BOTTOM - self.y.place(value) * (HEIGHT - _BOTTOM - _TOP))

    @property
    def drawn(self) -> tuple[Drawn, ...]:
        """The lines in units of the picture."""
        return tuple(self._draw(line) for line in self.lines)

    @property
    def shades(self) -> list[tuple[str, str]]:
        """(path, class) of bands and areas."""
        _, top, _, bottom = self.frame
        paths = [
            (f"M{self.place_x(low):g} {top}V{bottom}H{self.place_x(high):g}V{top}Z", name)
            for low, high, name in self.bands
        ]
        for lower, upper, name in self.areas:
            paths.append((self._join([*lower, *reversed(upper)]) + "Z", name))
        return paths

    def _draw(self, line: Line) -> Drawn:
        marks = sorted(line.marks, key=lambda mark: mark.x)
        places = [(self.place_x(mark.x), self.place_y(mark.y), mark.text) for mark in marks]
        again = len({mark.x for mark in marks}) < len(marks)
        return Drawn(
            line=line,
            path=self._join([(mark.x, mark.y) for mark in marks])
            if line.joined and not again and len(marks) > 1
            else "",
            whiskers="".join(
                f"M{self.place_x(mark.x):g} {self.place_y(mark.interval[0]):g}"
                f"V{self.place_y(mark.interval[1]):g}"
                for mark in marks
                if mark.interval is not None
            ),
            marks=tuple(places),
            rings=tuple(
                (x, y) for mark, (x, y, _) in zip(marks, places, strict=True) if mark.doubt
            ),
        )

    def _join(self, points: Sequence[Ends]) -> str:
        return "M" + "L".join(f"{self.place_x(x):g} {self.place_y(y):g}" for x, y in points)


def _round(value: float) -> float:
    return round(value, 1)


# --- axes -----------------------------------------------------------------------------------------


def make_time_axis(
    what: str, times_ns: Sequence[float], intervals: Iterable[Ends | None] = ()
) -> Axis:
    """Of times in ns, logarithmic, with one unit."""
    unit, unit_ns = choose_unit(max(times_ns))
    values = [value / unit_ns for value in gather(times_ns, intervals)]
    axis = make_log_axis("", values)
    return Axis(
        title=f"{what} ({unit.replace('us', MICROSECOND)})",
        low=axis.low * unit_ns,
        high=axis.high * unit_ns,
        ticks=tuple((value * unit_ns, label) for value, label in axis.ticks),
        is_log=True,
    )


def gather(values: Sequence[float], intervals: Iterable[Ends | None]) -> list[float]:
    """The values, and the ends of their intervals, but for those much longer than the differences
    between values: such a whisker leaves its chart, or would flatten it."""
    least, most = min(values) / _FAR, max(values) * _FAR
    ends = (end for ends in intervals if ends for end in ends)
    return [*values, *(end for end in ends if least <= end <= most)]


def make_log_axis(title: str, values: Sequence[float]) -> Axis:
    """With ticks of 1, 2, 5, or of decades, or even ones in a range that is too short for them."""
    low, high = min(values), max(values)
    pad = max(1.04 * (high / low) ** 0.04, math.sqrt(_LEAST_RANGE * low / high))
    low, high = low / pad, high * pad
    ticks: list[float] = []
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ((1, 2, 5), (1, 3), (1,)):
        ticks = [digit * 10.0**decade for decade in decades for digit in digits]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) <= _MOST_TICKS:
            break
    if len(ticks) < 3:
        ticks = _make_even_ticks(low, high)
    return Axis(
        title=title, low=low, high=high, is_log=True,
        ticks=tuple((tick, _format_number(tick)) for tick in ticks),
    )  # fmt: skip


def make_linear_axis(title: str, values: Sequence[float]) -> Axis:
    """From 0 to a little above the largest."""
    high = 1.06 * max(values)
    ticks = tuple((tick, _format_number(tick)) for tick in _make_even_ticks(0, high))
    return Axis(title=title, low=0.0, high=high, ticks=ticks)


def make_size_axis(title: str, sizes: Iterable[float]) -> Axis:
    """Of batches or lengths: a tick each, or the powers of two among many."""
    found = sorted(set(sizes))
    kept = [size for size in found if len(found) <= 8 or math.log2(size).is_integer()]
    pad = (found[-1] / found[0]) ** 0.03 * 1.03
    return Axis(
        title=title, low=found[0] / pad, high=found[-1] * pad, is_log=True,
        ticks=tuple((size, f"{size:g}") for size in kept),
    )  # fmt: skip


def make_share_axis(title: str) -> Axis:
    """From nothing to all."""
    ticks = tuple((share / 4, f"{share * 25} %") for share in range(5))
    return Axis(title=title, low=-0.02, high=1.02, ticks=ticks)


def _make_even_ticks(low: float, high: float) -> list[float]:
    """Multiples of the least round step of which few lie in the range."""
    decade = 10.0 ** math.floor(math.log10((high - low) / _MOST_TICKS))
    step = next(
        digit * decade
        for digit in (1, 2, 5, 10, 20)
        if (high - low) / (digit * decade) < _MOST_TICKS
    )
    first, last = math.ceil(low / step), math.floor(high / step)
    return [round(place * step, 12) for place in range(first, last + 1)]


def _format_number(value: float) -> str:
    """``'2.5'``, ``'10,000'``, ``'1e+12'``."""
    return f"{value:,.10g}" if abs(value) < 1e7 else f"{value:.3g}"
