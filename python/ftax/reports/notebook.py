"""A printout as HTML for a notebook: the tables that a wide terminal has, every text escaped.

The surprising choice: it has no colour but that of warnings. A notebook may be light or dark, and
what is not said in a colour of its own is readable in both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from ftax.reports.table import Printout, Rows
from ftax.reports.terminal import clean

_TABLE = "border-collapse:collapse;margin:0.3em 0 1em"
_CELL = "padding:0.15em 0.8em 0.15em 0;white-space:pre-line;vertical-align:top;text-align:"
_HEAD = "border-bottom:1px solid currentColor;"
_WARNING = "border-left:3px solid #d99a00;padding-left:0.6em"  # seen on white and on black


def to_html(printout: Printout) -> str:
    """The whole of it, in one element."""
    return f"<div>{''.join(_list_parts(printout))}</div>"


def _list_parts(printout: Printout) -> Iterator[str]:
    if printout.head:
        yield f"<p>{'<br>'.join(map(_escape, printout.head))}</p>"
    for table in printout.tables:
        yield _make_table(table)
    for note in printout.notes:
        yield f"<p>{_escape(note)}</p>"
    for warning in printout.warnings:
        yield f'<p style="{_WARNING}">{_escape(warning)}</p>'


def _make_table(table: Rows) -> str:
    sides = ["right" if name in table.numeric else "left" for name in table.columns]

    def make_row(tag: str, style: str, texts: Sequence[str]) -> str:
        cells = (
            f'<{tag} style="{style}{side}">{_escape(text)}</{tag}>'
            for text, side in zip(texts, sides, strict=True)
        )
        return f"<tr>{''.join(cells)}</tr>"

    head = make_row("th", _HEAD + _CELL, table.columns)
    rows = "".join(make_row("td", _CELL, row) for row in table.rows)
    title = f"<b>{_escape(table.title)}</b>" if table.title else ""
    body = f"<thead>{head}</thead><tbody>{rows}</tbody>"
    return f'{title}<table style="{_TABLE}">{body}</table>'


def _escape(text: str) -> str:
    return escape(clean(text))
