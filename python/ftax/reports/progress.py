"""How far measuring is, for whoever waits: a bar in a terminal, a line in a notebook.

It moves only when it is told to, between rounds: a thread that redrew it meanwhile would take the
GIL from the rungs that need it, and be measured.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ftax.reports.terminal import clean_line, make_bar, make_console, say

Callback = Callable[[str, int, int], None]  # phase, done, of how many

_OF_THE_LIMIT = ("warmup", "round")  # phases that a plan's time limit is for


def is_watched() -> bool:
    """Whether somebody sees what moves: in a notebook, or where standard error is a terminal."""
    return _find_notebook() is not None or make_console(stderr=True).is_terminal


@contextmanager
def show_progress(what: str, *, limit_s: float | None = None) -> Iterator[Callback]:
    """A callback that shows how far ``what`` is; where nobody sees what moves, one line a phase.

    ``limit_s`` is the time limit of warm-up and rounds together.
    """
    what, left = clean_line(what), _Left(limit_s)
    console = make_console(stderr=True)
    if notebook := _find_notebook():
        with _show_line(notebook) as show:
            yield lambda phase, done, total: show(
                f"{what}: {clean_line(phase)}  {done}/{total}  {left.tell(phase, done, total)}"
            )
    elif console.is_terminal:
        bar = make_bar(console)
        with bar:
            task = bar.add_task(what, total=1, left="")

            def update(phase: str, done: int, total: int) -> None:
                bar.update(
                    task,
                    description=f"{what}: {clean_line(phase)}",
                    completed=done,
                    total=total,
                    left=left.tell(phase, done, total),
                )
                bar.refresh()

            yield update
    else:
        yield _line_per_phase(what)


class _Left:
    """How long it takes at most: by the time limit, and by what was done in this phase."""

    def __init__(self, limit_s: float | None) -> None:
        self._limit_s = limit_s
        self._phase, self._done_before = "", 0
        self._began = self._first = time.monotonic()

    def tell(self, phase: str, done: int, total: int) -> str:
        """``"at most 12 s left"``; nothing where nobody knows."""
        now = time.monotonic()
        if phase != self._phase:
            self._began = now
            if self._phase not in _OF_THE_LIMIT:
                self._first = now
            self._phase, self._done_before = phase, done
        left = []
        if (gone := done - self._done_before) > 0:
            left.append((now - self._began) / gone * (total - done))
        if self._limit_s is not None and phase in _OF_THE_LIMIT:
            left.append(self._limit_s - (now - self._first))
        return f"at most {max(0.0, min(left)):.0f} s left" if left else ""


def _line_per_phase(what: str) -> Callback:
    seen: set[str] = set()

    def update(phase: str, done: int, total: int) -> None:
        if phase not in seen:
            seen.add(phase)
            say(f"{what}: {clean_line(phase)}")

    return update


def _find_notebook() -> Any:
    """IPython's display, if this is a notebook's kernel; None elsewhere."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is None or not hasattr(shell, "kernel"):
        return None
    from IPython.display import display

    return display


@contextmanager
def _show_line(display: Any) -> Iterator[Callable[[str], None]]:
    """A line of text that replaces itself, and is gone afterwards."""
    handle = display({"text/plain": ""}, raw=True, display_id=True)
    try:
        yield lambda text: handle.update({"text/plain": text.rstrip()}, raw=True)
    finally:
        handle.update({"text/plain": ""}, raw=True)
