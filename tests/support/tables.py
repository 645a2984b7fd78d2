"""What a table holds, by the names of its columns."""

from __future__ import annotations

from ftax.reports.table import Rows


def read_column(table: Rows, name: str) -> list[str]:
    """The cells below a name, from top to bottom."""
    place = table.columns.index(name)
    return [row[place] for row in table.rows]
