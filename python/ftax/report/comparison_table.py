"""A comparison for a terminal: the sentence, and the test behind it."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from ftax.comparison import Comparison

_STYLE = {"faster": "green", "slower": "red", "equal": "bold", "cannot-tell": "yellow"}


def render_comparison(comparison: Comparison) -> RenderableType:
    """For a terminal."""
    lines: list[RenderableType] = [
        Text(f"a: {comparison.a}"),
        Text(f"b: {comparison.b}"),
        Text(f"b against a: {comparison.verdict}", style=_STYLE[comparison.verdict]),
        Text(comparison.describe()),
        Text(f"{comparison.method}; p = {comparison.p_value:.3g}"),
    ]
    lines += [Text(f"! {warning}", style="yellow") for warning in comparison.warnings]
    return Group(*lines)
