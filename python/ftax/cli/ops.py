"""`ftax ops MODEL`: host time per operator."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from ftax.cli import options as o
from ftax.cli.show import leave_interrupted, saved, show
from ftax.errors import check_count
from ftax.reports.progress import show_progress
from ftax.steps.setting import Setting
from ftax.timing.interrupts import hold
from ftax.timing.plan import Plan

_PLAN = Plan(max_rounds=10, duration_s=10.0)


@o.takes(
    setting=o.make_setting,
    plan=o.some_of(o.make_plan, without=("mode",), duration="10"),
    output=o.make_output,
)
def ops(
    model: o.ModelName,
    limit: Annotated[int, typer.Option(help="Rows to print.")] = 25,
    calls: Annotated[
        bool, typer.Option("--calls", help="One row a call with its module, not one an operator.")
    ] = False,
    label: o.Label = "",
    *,
    setting: Setting,
    plan: o.PlanChanges,
    output: o.Output,
) -> None:
    """Which operator? Host time of each call, from the tape: arguments, call, release."""
    from ftax.errors import UnsupportedError
    from ftax.ladders.tax import tax
    from ftax.reports.tables.operator_table import draw_operators

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
            if receipt.operator_costs:
                show(draw_operators(receipt, limit=limit, by_kind=not calls), output)
            if receipt.interrupted:
                leave_interrupted(output.json, "the receipt is of what was measured until then")
            if not receipt.operator_costs:
                tape = receipt.ladder.without_python
                reasons = [item.reason for item in receipt.unavailable if item.place == tape]
                raise UnsupportedError(reasons[0] if reasons else f"{model} has no tape")
