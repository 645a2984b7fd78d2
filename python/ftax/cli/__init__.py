"""The command line: `ftax tax bert-base`, `ftax bench`, `ftax compare`, ...

This file only assembles the commands. Exit codes: 0 done, 1 a comparison says slower or a library
does not conform, 2 wrong usage or input, 3 this machine lacks something, 4 the measured code
failed, 130 interrupted.
"""

from __future__ import annotations

import sys

import typer
from rich.console import Console

from ftax.cli import (
    bench,
    catalogue,
    compare,
    conform,
    doctor,
    knee,
    ops,
    paper,
    report,
    sweep,
    tax,
    trace,
)
from ftax.errors import FtaxError, RunnerError, UnavailableError, UnsupportedError

app = typer.Typer(
    name="ftax",
    help="Measures the framework tax of inference and says who collects it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("tax")(tax.tax)
app.command("bench")(bench.bench)
app.command("compare")(compare.compare)
app.command("knee")(knee.knee)
app.command("sweep")(sweep.sweep)
app.command("trace")(trace.trace)
app.command("conform")(conform.conform)
app.command("ops")(ops.ops)
app.command("report")(report.report)
app.command("models")(catalogue.models)
app.command("runtimes")(catalogue.runtimes)
app.command("paper")(paper.paper)
app.command("doctor")(doctor.doctor)


def main() -> None:
    """Entry point of the ``ftax`` command: errors become one sentence and an exit code."""
    console = Console(stderr=True)
    try:
        app()
    except FtaxError as error:
        console.print(f"[red]ftax:[/red] {error}", highlight=False, soft_wrap=True)
        sys.exit(_exit_code(error))
    except KeyboardInterrupt:
        console.print("ftax: interrupted before anything was measured")
        sys.exit(130)


def _exit_code(error: FtaxError) -> int:
    if isinstance(error, (UnavailableError, UnsupportedError)):
        return 3
    return 4 if isinstance(error, RunnerError) else 2
