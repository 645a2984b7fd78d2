"""Text of anything that rich can render, without colour, for logs and `print`."""

from __future__ import annotations

from rich.console import Console, RenderableType


def to_text(renderable: RenderableType, *, width: int = 160) -> str:
    """The renderable as plain text of at most ``width`` columns."""
    console = Console(width=width, color_system=None, force_terminal=False)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get()
