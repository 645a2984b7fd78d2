"""Text of anything that rich can render, without colour, for logs and `print`."""

from __future__ import annotations

from rich.console import RenderableType

from ftax.report.terminal import make_console


def to_text(renderable: RenderableType, *, width: int = 160) -> str:
    """The renderable as plain text of at most ``width`` columns."""
    console = make_console(width=width, is_plain=True)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get()
