"""CSV that a spreadsheet can open without running what is in it.

The surprising choice: a text that it would run gets an apostrophe. Names come from elsewhere, and
`=HYPERLINK(...)` may be one.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence

from ftax.reports.terminal import clean

# Begins like a formula, and calls something: a function, another program, or a cell elsewhere.
_FORMULA = re.compile(r"\s*[=+@-].*[(|!]", re.DOTALL)


def write_csv(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, numeric: Sequence[str] = ()
) -> str:
    """A header and a line a row, lines ended by a line feed. ``numeric`` columns are ours, and
    written as they are."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(map(clean, columns))
    for row in rows:
        cells = zip(columns, map(clean, row), strict=True)
        writer.writerow(text if name in numeric else _disarm(text) for name, text in cells)
    return buffer.getvalue()


def _disarm(text: str) -> str:
    return f"'{text}" if _FORMULA.match(text) else text
