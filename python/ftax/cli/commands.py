"""The commands of `ftax`, put together."""

from __future__ import annotations

import typer

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

app = typer.Typer(
    name="ftax",
    help="Measures the framework tax of inference and says who collects it.",
    epilog="Exit codes: 0 done, 1 slower or not conforming, 2 wrong input, 3 not available here, "
    "4 the model failed, 70 a fault of ftax (FTAX_TRACEBACK=1 shows all of it), 130 interrupted.",
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
