"""A comparison for a terminal: the sentence, and the test behind it."""

from __future__ import annotations

from ftax.reports.table import Printout
from ftax.reports.tables.measurement_table import make_measurement_table
from ftax.timing.comparison import Comparison
from ftax.timing.host_comparison import HostComparison


def draw_comparison(comparison: Comparison) -> Printout:
    """A comparison as it is printed."""
    return Printout(
        head=(
            f"a: {comparison.a}",
            f"b: {comparison.b}",
            f"b against a: {comparison.verdict}",
            comparison.describe(),
            f"{comparison.method}; p = {comparison.p_value:.3g}",
        ),
        warnings=comparison.warnings,
    )


def draw_hosts(comparison: HostComparison) -> Printout:
    """Both hosts and the cost of Python between them, as they are printed."""
    return Printout(tables=(make_measurement_table([*comparison]),), notes=(comparison.describe(),))
