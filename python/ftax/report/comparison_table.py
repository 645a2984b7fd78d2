"""A comparison for a terminal: the sentence, and the test behind it."""

from __future__ import annotations

from rich.console import Group, RenderableType

from ftax.comparison import Comparison
from ftax.report.terminal import plain

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
