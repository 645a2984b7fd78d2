"""`ftax check`: the counts of steps, held to budgets."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ftax.cli import options as o
from ftax.cli.ending import UNSURE, choose_code
from ftax.cli.show import show
from ftax.errors import InvalidArgumentError
from ftax.reports.progress import show_progress
from ftax.timing.interrupts import hold, interruptible

if TYPE_CHECKING:
    from ftax.budgets.run_check import Checked


@o.takes(
    plan=o.some_of(o.make_plan, ("duration",), duration="55 for each step whose latency is held"),
    output=o.make_form,
)
def check(
    names: Annotated[
        list[str] | None, typer.Argument(help="Steps of the file; left out, all of them.")
    ] = None,
    file: Annotated[Path, typer.Option(help="Steps and their budgets.")] = Path("ftax.toml"),
    update: Annotated[
        bool,
        typer.Option("--update", help="Write what is counted as the baselines, beside the file."),
    ] = False,
    base: Annotated[
        str,
        typer.Option(
            metavar="REF",
            help="Hold the steps to what they do at a git revision, such as origin/main, in a "
            "temporary worktree, and not to baselines.",
        ),
    ] = "",
    setup: Annotated[str, typer.Option(help="With --base: a command to run in the worktree.")] = "",
    junit: Annotated[
        Path | None,
        typer.Option(help="Write JUnit XML here, a test case a count.", callback=o.check_output),
    ] = None,
    *,
    plan: o.PlanChanges,
    output: o.Output,
) -> None:
    """Count operators, host reads, allocations, ... of steps, and hold them to their budgets.

    A latency is measured where a budget names one, with --base alone.
    """
    from ftax.budgets.budget_file import read_budget_file
    from ftax.budgets.run_check import check as run_checks
    from ftax.records.whole_file import write_whole
    from ftax.reports.tables.budget_table import draw_check, write_junit
    from ftax.steps.revision import check_out

    if base and update:
        raise InvalidArgumentError(
            "--update writes baselines, and --base needs none: leave one out"
        )
    for option, given in (("setup", setup), ("duration", plan)):
        if given and not base:
            raise InvalidArgumentError(f"--{option} is given without --base: leave it out")
    budgets = read_budget_file(file)
    steps = budgets.choose(names or [])
    with hold():
        with (
            show_progress("counting") as progress,
            check_out(base, setup) if base else nullcontext() as revision,
        ):
            checked = interruptible(
                run_checks, budgets, steps, update=update, base=revision, progress=progress, **plan
            )
        if junit is not None:
            write_whole(junit, write_junit(checked))
        show(draw_check(checked), output)
    _end(checked)


def _end(checked: Sequence[Checked]) -> None:
    """With 1 for a breach; else with the code of the first step that failed, or 5 if anything could
    not be told."""
    if any(held.verdict == "breach" for item in checked for held in item.held):
        raise typer.Exit(1)
    for item in checked:
        if item.error is not None and not item.cannot_tell:
            raise typer.Exit(choose_code(item.error))
    if any(item.cannot_tell for item in checked):
        raise typer.Exit(UNSURE)
