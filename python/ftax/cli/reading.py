"""`ftax show FILE` and `ftax report RESULTS...`: what results files hold, printed as when it was
measured, or as one page.

`show --all` prints every table of a receipt, and then all of each error, of which a table has one
line: the texts of some exporters are hundreds of lines, and hold whole weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ftax.cli import options as o
from ftax.cli.show import find_last
from ftax.cli.show import show as show_result
from ftax.errors import InvalidArgumentError, ResultsError, say_count
from ftax.reports.terminal import say

if TYPE_CHECKING:
    from ftax.ladders.receipt import Unavailable

_MOST_PROBLEMS = 20  # on a terminal


@o.takes(form=o.make_form)
def show(
    file: Annotated[
        Path | None,
        typer.Argument(
            help="A results file that --json wrote, or the folder of a sweep; left out, the last "
            "receipt that ftax tax printed."
        ),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Print all tables, notes, and the whole of each error.")
    ] = False,
    *,
    form: o.Output,
) -> None:
    """Print the results of a file again."""
    from ftax.records.kinds import KINDS
    from ftax.records.result import Shown
    from ftax.records.store import read_records
    from ftax.sweeps.results import SweepResults, is_cells_file

    named = file is not None
    file = file or find_last()
    if not named and not file.exists():
        raise InvalidArgumentError(
            "there is no last receipt here: give FILE, or measure one with `ftax tax MODEL`"
        )
    more = f"ftax show {file} --all" if named else "ftax show --all"
    results: list[Shown]
    if file.is_dir() or is_cells_file(file):
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
        is_short = bool(KINDS[result.kind].details) and not everything
        show_result(result.draw(more=more) if is_short else result.details, form)
        for name, text in list_errors(result) if everything else ():
            say(f"\n{name}:\n{text}", error=form.csv)


def list_errors(result: object) -> Iterator[tuple[str, str]]:
    """What failed, and the whole text of it."""
    from ftax.ladders.receipt import Receipt
    from ftax.timing.measurement import Measurement

    if isinstance(result, Receipt):
        for item in result.unavailable:
            if item.error and not _says_no_more(item):
                yield str(item.place), item.error
        for measurement in (*result.rungs, *result.others):
            yield from list_errors(measurement)
    elif isinstance(result, Measurement):
        for name in ("outputs", "second_input"):
            check = result.checks.get(name)
            if isinstance(check, Mapping) and (error := check.get("error")):
                yield f"{result.place}, whose outputs were checked", str(error)


def _says_no_more(item: Unavailable) -> bool:
    """Whether this is a refusal of ftax, whose reason is all of it: its traceback is ftax's."""
    return item.error.count("Traceback") <= 1 and item.error.rstrip().endswith(item.reason)


def report(
    results: Annotated[
        list[Path],
        typer.Argument(help="Results files, or folders in which all .jsonl files are read."),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The page to write.")] = Path(
        "report.html"
    ),
    skip_bad: Annotated[
        bool,
        typer.Option("--skip-bad", help="Go on without lines that cannot be read; list them."),
    ] = False,
    title: Annotated[str | None, typer.Option(help="Of the page.")] = None,
) -> None:
    """Write one self-contained HTML page of any results: charts, tables, and every record."""
    from ftax.paper.study_page import describe_study
    from ftax.reports.html.page import write_report

    sources = write_report(
        results, output, skip_bad=skip_bad, title=title, describe_study=describe_study
    )
    size = output.stat().st_size / 1e6
    say(
        f"wrote {say_count(len(sources.found), 'record')} of "
        f"{say_count(len(sources.files), 'file')} to {output} ({size:.1f} MB)"
    )
    for problem in sources.problems[:_MOST_PROBLEMS]:
        say(f"left out: {problem}")
    if len(sources.problems) > _MOST_PROBLEMS:
        say(f"left out: {len(sources.problems)} lines in all; the page lists them")
