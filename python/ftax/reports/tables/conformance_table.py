"""What `ftax conform` found, as a table: a row a check.

The surprising choice: what to do about it stands below and not in a row, since a library that is
for another model fails most checks for one reason.
"""

from __future__ import annotations

from ftax.reports.table import Printout, Rows
from ftax.runtimes.plugins.conform.report import Conformance


def draw_conformance(found: Conformance) -> Printout:
    """Every check with its result and the reason, as they are printed."""
    cells = {"check": "name", "result": "status", "why": "reason"}
    return Printout(tables=(Rows.of(found.describe(), found.findings, cells, text=cells),))
