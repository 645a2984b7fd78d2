"""The commands of `ftax`, put together."""

from __future__ import annotations

from typing import Annotated

import typer

from ftax.cli import (
    bench,
    catalogue,
    check,
    compare,
    conform,
    knee,
    ops,
    paper,
    reading,
    sweep,
    tax,
    trace,
)
from ftax.cli.ending import show_version

app = typer.Typer(
    name="ftax",
    help="Measures the framework tax of inference, decoding and training; says who collects it.",
    epilog="Exit codes: 0 done, 1 slower, over budget or not conforming, 2 wrong input, 3 cannot "
    "be had here, 4 the model failed, 5 cannot tell, 70 a fault of ftax, 130 interrupted. "
    "FTAX_TRACEBACK=1 shows all of an error.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},  # of every command below, too
    pretty_exceptions_enable=False,
)


@app.callback()
def ftax(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            is_eager=True,
            callback=show_version,
            help="Show the versions of ftax, torch and Python, and end.",
        ),
    ] = False,
) -> None:
    """What comes before the name of a command."""


@app.command("run")
def run() -> None:
    """Run a program unchanged, and say which lines keep its GPU waiting (`ftax run --help`)."""
    # For the list of commands: `ftax.cli.main` hands it to ftax_run.


app.command("tax")(tax.tax)
app.command("bench")(bench.bench)
app.command("compare")(compare.compare)
app.command("check")(check.check)
app.command("knee")(knee.knee)
app.command("sweep")(sweep.sweep)
app.command("trace")(trace.trace)
app.command("conform")(conform.conform)
app.command("ops")(ops.ops)
app.command("show")(reading.show)
app.command("report")(reading.report)
app.command("models")(catalogue.models)
app.command("runtimes")(catalogue.runtimes)
app.command("paper")(paper.paper)
app.command("doctor")(catalogue.doctor)
