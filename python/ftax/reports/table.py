"""One kind of table for every output: rows of text, rendered by rich or written as CSV or
Markdown.

The surprising choice: a text that a spreadsheet would run gets an apostrophe in CSV. Names come
from elsewhere, and `=HYPERLINK(...)` may be one.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.table import Table

from ftax.reports.terminal import clean, clean_line, plain

# Begins like a formula, and calls something: a function, another program, or a cell elsewhere.
_FORMULA = re.compile(r"\s*[=+@-].*[(|!]", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """A titled table of text. ``numeric`` columns are aligned to the right."""

    title: str
    columns: tuple[str, ...]
    numeric: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def to_rich(self) -> Table:
        """For a terminal."""
        title = plain(self.title, "table.title")
        table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
        for column in self.columns:
            is_number = column in self.numeric
            table.add_column(
                plain(column),
                justify="right" if is_number else "left",
                no_wrap=is_number,
                overflow="fold",
            )
        for row in self.rows:
            table.add_row(*map(plain, row))
        return table

    def to_csv(self) -> str:
        """For a spreadsheet."""
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(map(clean, self.columns))
        is_number = [column in self.numeric for column in self.columns]
        for row in self.rows:
            writer.writerow(
                clean(text) if number else _disarm(clean(text))
                for text, number in zip(row, is_number, strict=True)
            )
        return buffer.getvalue()

    def to_markdown(self) -> str:
        """For a page; the title goes above as bold text."""
        rule = ["---:" if column in self.numeric else "---" for column in self.columns]
        lines = [self.columns, rule, *self.rows]
        return f"**{clean_line(self.title)}**\n\n" + "".join(
            f"| {' | '.join(map(_escape, line))} |\n" for line in lines
        )


def join_csv(tables: Sequence[Rows]) -> str:
    """Several tables in one text, an empty line between them."""
    return "\n".join(table.to_csv() for table in tables)


def join_markdown(tables: Sequence[Rows]) -> str:
    """Several tables in one page."""
    return "\n".join(table.to_markdown() for table in tables)


def _escape(text: str) -> str:
    return clean_line(text.replace("\n", " ")).replace("|", "\\|")


def _disarm(text: str) -> str:
    return f"'{text}" if _FORMULA.match(text) else text
