"""What `ftax conform` found, as a table: a row a check.

The surprising choice: what to do about it stands below and not in a row, since a library that is
for another model fails most checks for one reason.
"""

from __future__ import annotations

from ftax.reports.table import Printout, Rows
from ftax.runtimes.plugins.conform.report import Conformance


def make_conformance_table(found: Conformance) -> Rows:
    """Every check with its result and the reason."""
    return Rows(
        title=found.describe(),
        columns=("check", "result", "why"),
        numeric=(),
        rows=tuple((finding.name, finding.status, finding.reason) for finding in found.findings),
    )


def draw_conformance(found: Conformance) -> Printout:
    """The checks as they are printed."""
    return Printout(tables=(make_conformance_table(found),))
