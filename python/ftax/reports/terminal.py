"""Prints all text of ftax, as text.

Callers do not escape. Names, paths, errors and records come from elsewhere, and rich would read
`[bold]` in them as markup and pass on what commands a terminal (escape codes, carriage returns,
marks that turn the direction of writing). So markup is off, and what is not printable is shown as
Python writes it, `\\x1b`. `ruff` refuses rich's own Text and Console, and
typer's echo, everywhere else (pyproject.toml).
"""

from __future__ import annotations

import ctypes
import os
import random
import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator, MutableMapping
from contextlib import contextmanager, suppress
from typing import TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.segment import Segment
from rich.text import Text

_WIDTH = 80  # where no terminal says how wide it is: what is kept then fits into every one
# Variables that give the size of a terminal, and the least that one has.
_SIZES = {
    "COLUMNS": 20,
    "LINES": 1,
    "TERMINAL_WIDTH": 20,
    "JUPYTER_COLUMNS": 20,
    "JUPYTER_LINES": 1,
}
_apart: list[TextIO] = []  # where results go, if not to sys.stdout
_SIZE = re.compile("[0-9]{1,5}")


def clean(text: str, *, keep: str = "\n\t") -> str:
    """The text with everything that is not printable written as an escape, but for ``keep``."""
    if text.isprintable():
        return text
    return "".join(
        character
        if character.isprintable() or character in keep or unicodedata.category(character) == "Zs"
        else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def clean_line(text: str) -> str:
    """`clean` for what has to stay on one line."""
    return clean(text, keep="")


def plain(text: str, style: str = "") -> Text:
    """Text for rich, whatever console it is printed on."""
    return Text(clean(text), style=style)


def drop_bad_sizes(environment: MutableMapping[str, str]) -> None:
    """Remove the variables that give a terminal a size in which nothing can be read: COLUMNS=0."""
    for name, least in _SIZES.items():
        text = environment.get(name, "")
        if not (_SIZE.fullmatch(text) and int(text) >= least):
            environment.pop(name, None)


class _CleanConsole(Console):
    """Also what was made elsewhere, such as a table whose cells are strings, leaves clean."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            text, style, control = segment
            yield segment if control or text.isprintable() else Segment(clean(text), style)

    def on_broken_pipe(self) -> None:
        """Let the caller say how to end; rich would end the process with 1."""
        raise BrokenPipeError


def make_console(
    *, stderr: bool = False, width: int | None = None, is_plain: bool = False
) -> Console:
    """A console for text of any origin. Without a width: $COLUMNS, or the terminal's, or 80, so
    that a pipe gets what a terminal of that width shows.

    ``is_plain``: without colour, whatever it is printed on.
    """
    environment = dict(os.environ)
    drop_bad_sizes(environment)
    console = _CleanConsole(
        stderr=stderr,
        width=width,
        color_system=None if is_plain else "auto",
        force_terminal=False if is_plain else None,
        markup=False,
        emoji=False,
        highlight=False,
        _environ=environment,
    )
    if width is None and not console.is_terminal and "COLUMNS" not in environment:
        console.width = _WIDTH
    return console


def make_bar(console: Console) -> Progress:
    """A bar that moves only when it is told to."""
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}", markup=False),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}", markup=False),
        console=console,
        auto_refresh=False,
        transient=True,
        redirect_stdout=False,  # what a model prints meanwhile is not for standard error
    )


@contextmanager
def keep_results_apart() -> Iterator[None]:
    """Where standard output is a file or a pipe it gets results alone: what else is printed there,
    as by a model, goes to standard error."""
    stream = sys.stdout
    try:
        is_file = stream is not None and stream.fileno() == 1 and not stream.isatty()
    except (OSError, ValueError):  # a stream of Python's, as a test has
        is_file = False
    if not is_file:
        yield
        return
    stream.flush()
    results = os.fdopen(os.dup(1), "w", encoding=stream.encoding, errors=stream.errors)
    os.dup2(2, 1)
    _apart.append(results)
    try:
        yield
    finally:
        _apart.remove(results)
        with suppress(OSError):  # which is standard error's
            stream.flush()
        ctypes.CDLL(None).fflush(None)  # what C has buffered
        os.dup2(results.fileno(), 1)
        with suppress(OSError):  # it was flushed, or that has failed
            results.close()


def say(text: str, *, error: bool = True, end: str = "\n") -> None:
    """Print text as it is, on stderr or on stdout; nowhere if that is closed."""
    stream = sys.stderr if error else next(iter(_apart), sys.stdout)
    if stream is not None:
        stream.write(clean(text) + end)
        stream.flush()


def to_text(renderable: RenderableType, *, width: int | None = None) -> str:
    """The renderable as plain text, without blanks at the ends of lines; of the width that
    `make_console` has unless one is given."""
    console = make_console(width=width or make_console().width, is_plain=True)
    drawn = random.getstate()  # rich draws numbers of Python's, which may be the user's seed
    try:
        with console.capture() as capture:
            console.print(renderable, crop=False)
    finally:
        random.setstate(drawn)
    return "\n".join(line.rstrip() for line in capture.get().split("\n"))


def show_on_stdout(renderable: RenderableType) -> None:
    """Print it; a line that is too long is left to the terminal, which breaks it and cuts
    nothing off."""
    console = make_console()
    if console.is_terminal:
        console.print(renderable, crop=False)
    else:
        say(to_text(renderable), error=False, end="")
