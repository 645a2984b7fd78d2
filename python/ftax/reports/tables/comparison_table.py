"""A comparison for a terminal: the sentence, and the test behind it."""

from __future__ import annotations

from rich.console import Group, RenderableType

from ftax.reports.tables.measurement_table import make_measurement_table
from ftax.reports.terminal import plain
from ftax.timing.comparison import Comparison
from ftax.timing.host_comparison import HostComparison

_STYLE = {"faster": "green", "slower": "red", "equal": "bold", "cannot-tell": "yellow"}


def render_comparison(comparison: Comparison) -> RenderableType:
    """For a terminal."""
    lines: list[RenderableType] = [
        plain(f"a: {comparison.a}"),
        plain(f"b: {comparison.b}"),
        plain(f"b against a: {comparison.verdict}", style=_STYLE[comparison.verdict]),
        plain(comparison.describe()),
        plain(f"{comparison.method}; p = {comparison.p_value:.3g}"),
    ]
    lines += [plain(f"! {warning}", "yellow") for warning in comparison.warnings]
    return Group(*lines)


def render_hosts(comparison: HostComparison) -> RenderableType:
    """Both hosts and the cost of Python between them, for a terminal."""
    table = make_measurement_table([*comparison]).to_rich()
    return Group(table, plain(comparison.describe()))
