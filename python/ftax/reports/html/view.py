"""What the templates show: tables whose rows know their record, bars, and groups of charts.

Bars are lines of text with a length: names wrap, values can be copied, and a phone puts each bar
below its name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ftax.reports.html.charts import MICROSECOND, Ends, Entry, Keys, Plot
from ftax.reports.table import Rows

_MICROSECONDS = re.compile(r"(?<=\d) us\b")
_LETTER, _PADDING = 7.2, 14.0  # of a table's cell, px
_PHONE = 350.0  # px that a page has there


def typeset(text: str) -> str:
    """Text of a terminal as a page writes it: microseconds with their own letter."""
    return _MICROSECONDS.sub(f" {MICROSECOND}", text)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableView:
    """A table of one record, or with a record a row.

    Attributes:
        record: of the whole table; None where rows have their own.
        records: of each row.
        ids: of each row, by which the page links to it.
        filtered: whether filters hide rows, by the cells whose columns they name.
        notes: sentences below it.
    """

    rows: Rows
    record: str | None = None
    records: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    filtered: bool = False
    notes: tuple[str, ...] = ()

    @property
    def is_narrow(self) -> bool:
        """Whether a phone has room for its columns, by their longest texts."""
        columns = [*zip(self.rows.columns, *self.rows.rows, strict=True), self.records]
        letters = [max(map(len, texts), default=0) for texts in columns]
        return sum(_LETTER * count + _PADDING for count in letters if count) <= _PHONE


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A piece of a bar in percent of the longest; ``kind`` is a class of the style sheet."""

    start: float
    width: float
    kind: str
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A bar with its name before it and its value behind it.

    Attributes:
        whisker: (start, width) of the interval, in percent.
        text: what it says when it is pointed at.
        keys: what filters compare.
        link: where its name leads to on the page; "" for nowhere.
    """

    name: str
    value: str
    parts: tuple[Part, ...]
    whisker: Ends | None = None
    text: str = ""
    keys: Keys = field(default_factory=dict)
    link: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """Bars below each other; ``legend`` has (class, what it is) of their parts."""

    label: str
    bars: tuple[Bar, ...]
    legend: tuple[tuple[str, str], ...] = ()


class Scale:
    """From values to percent of a bar's room, which holds 0 and all of them."""

    def __init__(self, values: Sequence[float]) -> None:
        self.low, self.high = min(0.0, *values), max(0.0, *values)

    def make_part(self, start: float, end: float, kind: str) -> Part:
        """The part between two values, whichever is the larger."""
        low, width = self.measure((min(start, end), max(start, end)))
        return Part(start=low, width=width, kind=kind)

    def measure(self, ends: Ends) -> Ends:
        """(start, width) of an interval; what is beyond the room ends with it."""
        span = (self.high - self.low) or 1.0
        first, last = (100 * (min(max(end, self.low), self.high) - self.low) / span for end in ends)
        return round(first, 2), round(last - first, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A chart with its caption; ``keys`` are what filters compare."""

    chart: Bars | Plot
    caption: str = ""
    detail: str = ""
    keys: Keys = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Charts:
    """Charts with one legend."""

    panels: tuple[Panel, ...]
    legend: tuple[Entry, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Lead:
    """What a section comes to, for the top of the page: a sentence, what to know before it, charts,
    tables, what to say after them, and code to paste."""

    section: str
    text: str
    warning: str = ""
    charts: tuple[Charts, ...]
    tables: tuple[TableView, ...] = ()
    more: str = ""
    code: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """What a room above this one adds: verdicts on claims, and figures and tables of a study, as
    claims.html shows them."""

    lead: Lead | None = None
    claims: Sequence[Any] = ()
    items: Sequence[Any] = ()
