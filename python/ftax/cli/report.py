"""`ftax report RESULTS... -o report.html`: results as one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ftax.errors import say_count
from ftax.reports.terminal import say

_MOST_PROBLEMS = 20  # on a terminal


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
