"""`ftax paper`: the study of "The Framework Tax" on this machine, all of it or one item.

What the folder has already is not measured again, so that the command may be ended at any time and
given again.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ftax.cli import options as o
from ftax.cli.show import show
from ftax.reports.progress import show_progress
from ftax.reports.terminal import say
from ftax.steps.setting import Setting

if TYPE_CHECKING:
    from ftax.paper.study import Study
    from ftax.paper.write import Page


@o.takes(
    setting=o.some_of(o.make_setting, ("threads",)),
    timing=o.make_sweep_plan,
    sites=o.make_sites,
    form=o.make_form,
)
def paper(
    items: Annotated[
        list[str] | None,
        typer.Argument(
            help="fig1 to fig13, table1 to table3, training, claims; all if left out. Or: list."
        ),
    ] = None,
    results: Annotated[
        Path | None,
        typer.Option(help="The folder for everything; ftax-paper, with --quick ftax-paper-quick."),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(help="cpu, cuda or cuda:N; a GPU if there is one, and on a cluster."),
    ] = None,
    dtype: Annotated[
        str | None, typer.Option(help="Separated by commas; fp16,fp32 on a GPU, else fp32.")
    ] = None,
    batch: Annotated[
        str | None, typer.Option(help="Separated by commas; 1 to 128 on a GPU, else 1 to 16.")
    ] = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Few sizes and rounds; on a CPU tiny models, few minutes."),
    ] = False,
    time_limit: Annotated[
        float | None, typer.Option(help="Seconds; the same command goes on from there.")
    ] = None,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Run again what failed.")
    ] = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="Say how much there is to run, and stop.")
    ] = False,
    measure: Annotated[
        bool, typer.Option("--measure/--no-measure", help="Or show what the folder has.")
    ] = True,
    draw: Annotated[
        bool, typer.Option("--draw/--no-draw", help="Or measure only; needs no matplotlib.")
    ] = True,
    *,
    setting: Setting,
    timing: o.PlanChanges,
    sites: o.Sites,
    form: o.Output,
) -> None:
    """Reproduce the paper: measure what is missing, draw it beside the paper's, test the claims."""
    from ftax.paper.study import choose_study, estimate, load_results, run_study
    from ftax.paper.study_setting import StudySetting
    from ftax.sweeps.results import read_times
    from ftax.sweeps.sweep import FULL, QUICK

    study_setting = StudySetting.choose(
        device=device or ("cuda" if sites["on"] != "local" else _find_device()),
        quick=quick,
        dtypes=tuple(o.parse_list(dtype)),
        batches=tuple(o.parse_numbers("--batch", batch)),
    )
    if items == ["list"]:
        _list_items(form)
        return
    folder = results or Path("ftax-paper-quick" if quick else "ftax-paper")
    study = choose_study(items or [], study_setting)
    known = load_results(folder)
    first = estimate(study, known, read_times(folder))
    say(
        f"{study_setting.describe()}: {first.describe() if measure else 'nothing is measured'}; "
        f"in {folder}"
    )
    if plan:
        return
    if draw and any(item.kind == "figure" for item in study.items):
        from ftax.paper.drawing import check_matplotlib

        check_matplotlib()  # before minutes of measuring
    complete = True
    if measure:
        with show_progress("paper") as progress:
            try:
                known, complete = run_study(
                    study, folder, time_limit_s=time_limit, retry_failed=retry_failed,
                    plan=replace(QUICK if quick else FULL, **timing),
                    seed=timing.get("seed", 0), threads=setting.threads, progress=progress,
                    **sites,
                )  # fmt: skip
            except KeyboardInterrupt:
                say("interrupted; give the same command again, and it goes on")
                raise typer.Exit(130) from None
        for problem in known.problems:
            say(f"! {problem}")
    if not complete:
        left = estimate(study, known, read_times(folder))
        say(
            f"the time is up: {left.describe()}; give the same command again, or show what there "
            "is with --no-measure"
        )
    elif draw:
        _write(study, folder, form)


def _write(study: Study, folder: Path, form: o.Output) -> None:
    from ftax.paper.study import load_results
    from ftax.paper.write import write_study

    for page in write_study(study, load_results(folder), folder):
        _show_page(page, study, form)
    if study.is_whole:
        say(f"all of it as one page: ftax report {folder} -o report.html")


def _show_page(page: Page, study: Study, form: o.Output) -> None:
    """The table that was asked for, if it was the only thing; then where everything is."""
    alone = len(study.items) + study.claims == 1
    from ftax.paper.claims.verdict_tables import make_claims_table
    from ftax.paper.study_setting import describe_missing
    from ftax.paper.write import count_outcomes

    tables = [item.table for item in page.shown if item.table is not None]
    if alone and page.verdicts:
        tables.append(make_claims_table(page.verdicts))
    if alone:
        for table in tables:
            show(table, form)
    for item in page.shown:
        if alone or not item.measured:
            what = "" if item.measured else ": nothing of it was measured"
            say(f"{item.item.name}{what}")
            for line in describe_missing(item.missing):
                say(f"  {line}")
        elif item.missing:
            lacking = sum(missing.count for missing in item.missing)
            say(f"{item.item.name}: {lacking} cells are missing or lack a part")
    if page.verdicts:
        say(count_outcomes(page.verdicts), error=False)
    elif page.views[0].tiny and not page.shown:
        say("no claim is tested on tiny models; leave --quick out, or take a GPU", error=False)
    for path in () if study.is_whole else page.files:
        say(str(path), error=False)
    place = page.folder / "today.md" if study.is_whole else page.folder
    say(f"{page.label}: {place}", error=False)


def _list_items(form: o.Output) -> None:
    from ftax.paper.items import list_items
    from ftax.reports.table import Rows

    table = Rows(
        title="Items of the paper",
        columns=("item", "title", "what it shows"),
        rows=(
            *((item.name, item.title, item.shows) for item in list_items()),
            ("claims", "the paper's claims", "Each of them tested on today's results."),
        ),
    )
    show(table, form)


def _find_device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"
