"""What the templates show: tables whose rows know their record, and texts about records."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ftax.reports.table import Rows

_MICROSECONDS = re.compile(r"(?<=\d) us\b")


def typeset(text: str) -> str:
    """Text of a terminal as a page writes it: microseconds with their own letter."""
    return _MICROSECONDS.sub(" \N{MICRO SIGN}s", text)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableView:
    """A table of one record, or with a record a row.

    Attributes:
        record: of the whole table; None where rows have their own.
        records: of each row.
        links: of each row, where its first cell leads to on the page.
        keys: of each row, what filters compare: values by name.
    """

    rows: Rows
    record: str | None = None
    records: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    keys: tuple[Mapping[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A place for a chart: ``kind`` names what draws it, ``item`` its data."""

    kind: str
    item: int
    label: str  # for those who do not see it
    rows: int = 0  # of a bar chart, which grows with them


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A warning, and the records that it is about."""

    text: str
    refs: tuple[str, ...]


def make_notices(warnings: Sequence[tuple[str, str]]) -> list[Notice]:
    """Notices from (text, ref) pairs: each text once, with all its records."""
    refs: dict[str, dict[str, None]] = {}
    for text, ref in warnings:
        refs.setdefault(text, {})[ref] = None
    return [Notice(text=text, refs=tuple(found)) for text, found in refs.items()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """Where records are described on the page; those of sweeps have no place of their own."""

    anchors: Mapping[str, str] = field(default_factory=dict)

    def find(self, ref: str) -> str:
        """The id to link to; "" if there is none."""
        return self.anchors.get(ref, "")
