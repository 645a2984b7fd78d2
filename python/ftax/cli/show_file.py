"""`ftax show FILE`: what a results file holds, printed as when it was measured.

The surprising choice: of an error a table has one line, and `--all` prints the rest, which the
record keeps: the texts of some exporters are hundreds of lines, and hold whole weights.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ftax.cli import options as o
from ftax.cli.show import show as show_result
from ftax.errors import InvalidArgumentError, ResultsError, say_count
from ftax.reports.terminal import say


@o.takes(form=o.make_form)
def show(
    file: Annotated[
        Path, typer.Argument(help="A results file that --json wrote, or the folder of a sweep.")
    ],
    everything: Annotated[
        bool, typer.Option("--all", help="And all of each error, of which tables have one line.")
    ] = False,
    *,
    form: o.Output,
) -> None:
    """Print the results of a file again."""
    from ftax.records.result import Shown
    from ftax.records.store import read_records
    from ftax.reports.tables.errors_table import list_errors
    from ftax.sweeps.results import CELLS_FILE, SweepResults

    results: list[Shown]
    if file.is_dir() or file.name == CELLS_FILE:
        results = [SweepResults.load(file)]
    else:
        results = [item for item in read_records(file).records if isinstance(item, Shown)]
    if not results:
        raise ResultsError(f"{file} has nothing that is printed; `ftax report {file}` lists it")
    if form.csv and len(results) > 1:
        raise InvalidArgumentError(
            f"{file} has {say_count(len(results), 'result')}, whose columns differ: leave --csv "
            "out, or take their to_dataframe() in Python"
        )
    for place, result in enumerate(results):
        if place:
            say("", error=False)
        show_result(result, form)
        for name, text in list_errors(result) if everything else ():
            say(f"\n{name}:\n{text}", error=form.csv)
