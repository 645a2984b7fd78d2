"""`ftax ops MODEL`: host time by operator; Python's time by module or line."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ftax.cli import options as o
from ftax.cli.show import leave_interrupted, saved, show
from ftax.errors import check_count
from ftax.reports.progress import show_progress
from ftax.steps.setting import Setting
from ftax.timing.interrupts import hold
from ftax.timing.plan import Plan

if TYPE_CHECKING:
    from ftax.ladders.receipt import Receipt
    from ftax.reports.table import Printout

_By = Literal["operator", "call", "module", "line"]
_PLAN = Plan(max_rounds=10, duration_s=10.0)


@o.takes(
    setting=o.make_setting,
    plan=o.some_of(o.make_plan, without=("mode",), duration="10"),
    output=o.make_output,
)
def ops(
    model: o.ModelName,
    limit: Annotated[int, typer.Option(help="Rows to print.")] = 25,
    by: Annotated[
        _By,
        typer.Option(
            help="operator, or call: of the tape; module, line: Python's time, of Python eager."
        ),
    ] = "operator",
    label: o.Label = "",
    *,
    setting: Setting,
    plan: o.PlanChanges,
    output: o.Output,
) -> None:
    """Which operator, which line? Host time by operator; Python's time by module or line."""
    from ftax.errors import UnsupportedError
    from ftax.ladders.tax import tax

    check_count("--limit", limit)
    whole = replace(_PLAN, **plan)
    with hold():
        with show_progress(model, limit_s=whole.duration_s) as progress:
            progress("building the model", 0, 1)
            receipt = tax(
                model,
                setting=setting,
                runtimes="none",
                plan=whole,
                progress=progress,
                label=label,
            )
        with saved(output.json, [receipt]):
            problem = _find_problem(receipt, by)
            if not problem:
                show(_draw(receipt, by, limit), output)
            if receipt.interrupted:
                leave_interrupted(output.json, "the receipt is of what was measured until then")
            if problem:
                raise UnsupportedError(problem)


def _find_problem(receipt: Receipt, by: _By) -> str:
    """Why there is nothing to show; "" if there is."""
    from ftax.ladders.python_time import find_problem

    if receipt.operator_costs:
        return find_problem(receipt) if by in ("module", "line") else ""
    tape = receipt.ladder.without_python
    reasons = [item.reason for item in receipt.unavailable if item.place == tape]
    return reasons[0] if reasons else f"{receipt.rungs[0].cell.model} has no tape"


def _draw(receipt: Receipt, by: _By, limit: int) -> Printout:
    from ftax.reports.tables.operator_table import draw_operators
    from ftax.reports.tables.python_table import draw_python

    if by == "module" or by == "line":
        return draw_python(receipt, by=by, limit=limit)
    return draw_operators(receipt, limit=limit, by_kind=by == "operator")
