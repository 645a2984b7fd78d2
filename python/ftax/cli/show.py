"""Progress while measuring, and results in the format that was asked for.

The bar moves only between rounds: a thread that redrew it meanwhile would take the GIL from the
rungs that need it, and be measured.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from ftax.errors import UnavailableError
from ftax.measure import Progress as Callback
from ftax.report.table import Rows, join_csv, join_markdown
from ftax.results import append_record
from ftax.results.store import Storable

if TYPE_CHECKING:
    from ftax.processes import JobRuns
    from ftax.tracing import Trace


@contextmanager
def progress_bar(reason: str) -> Iterator[Callback]:
    """A bar on stderr; off where stderr is no terminal, which gets one line a phase instead."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _line_per_phase(console, reason)
        return
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
        TimeElapsedColumn(),
        console=console,
        auto_refresh=False,
        transient=True,
    )
    with bar:
        task = bar.add_task(reason, total=1)

        def update(phase: str, done: int, total: int) -> None:
            bar.update(task, description=f"{reason}: {phase}", completed=done, total=total)
            bar.refresh()

        yield update


def _line_per_phase(console: Console, reason: str) -> Callback:
    seen: set[str] = set()

    def update(phase: str, done: int, total: int) -> None:
        if phase not in seen:
            seen.add(phase)
            console.print(f"{reason}: {phase}", highlight=False, soft_wrap=True)

    return update


def show(renderable: RenderableType, tables: Sequence[Rows], *, csv: bool, markdown: bool) -> None:
    """Print tables as CSV or Markdown, or the renderable for people."""
    if csv and markdown:
        raise typer.BadParameter("give --csv or --markdown, not both")
    if csv:
        typer.echo(join_csv(tables), nl=False)
    elif markdown:
        typer.echo(join_markdown(tables), nl=False)
    else:
        # A pipe has no width; 80 columns would fold every cell.
        width = None if Console().is_terminal or "COLUMNS" in os.environ else 160
        Console(width=width).print(renderable)


def write_traces(traces: Sequence[Trace], path: Path) -> None:
    """Write traces for a trace viewer."""
    from ftax.tracing import write_chrome_trace

    if not traces:
        raise UnavailableError(f"there is no trace to write to {path}: none was taken")
    write_chrome_trace(traces, path)


@contextmanager
def keep_rounds(path: Path | None) -> Iterator[Callable[[Storable], None]]:
    """What keeps a receipt beside the results file (or among temporary files) until the command is
    done, so that a fault of a runtime while it is traced costs no round that was measured."""
    kept = Path(f"{path}.rounds" if path else f"{tempfile.gettempdir()}/ftax-{os.getpid()}.rounds")

    def keep(receipt: Storable) -> None:
        append_record(kept, receipt)

    try:
        yield keep
    except BaseException:  # Ctrl-C too
        if kept.exists():
            typer.echo(f"the rounds that were measured are in {kept}", err=True)
        raise
    kept.unlink(missing_ok=True)


def leave_if_ended(runs: JobRuns, processes: int) -> None:
    """Say what the answer is of, and exit, if not all processes ran: 130 after Ctrl-C, else 4."""
    if runs.ended is None:
        return
    interrupted = isinstance(runs.ended, KeyboardInterrupt)
    reason = "interrupted" if interrupted else str(runs.ended)
    done = len({m.process.index for m in runs.sides[0]})
    typer.echo(f"{reason}; this is the answer of {done} of {processes} processes", err=True)
    raise typer.Exit(130 if interrupted else 4)


def save(path: Path | None, records: Sequence[Storable]) -> None:
    """Append records to a results file, if one was asked for."""
    if path is None:
        return
    for record in records:
        append_record(path, record)
    typer.echo(f"appended {len(records)} record(s) to {path}", err=True)
