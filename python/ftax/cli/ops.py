"""`ftax ops MODEL`: host time per operator."""

from __future__ import annotations

from typing import Annotated

import typer

from ftax.cli import options as o
from ftax.cli.show import saved, show
from ftax.reports.progress import show_progress
from ftax.steps.setting import Setting
from ftax.timing.session import Plan


def ops(
    model: o.ModelName,
    dtype: o.Dtype = "fp32",
    device: o.Device = "cpu",
    batch: o.Batch = 1,
    sequence: o.Sequence = None,
    tiny: o.Tiny = False,
    attention: o.Attention = None,
    use_cache: o.UseCache = False,
    threads: o.Threads = None,
    limit: Annotated[int, typer.Option(help="Rows to print.")] = 25,
    calls: Annotated[
        bool, typer.Option("--calls", help="One row a call with its module, not one an operator.")
    ] = False,
    duration: o.Duration = 10.0,
    json: o.Json = None,
    csv: o.Csv = False,
    markdown: o.Markdown = False,
) -> None:
    """Which operator? Host time of each call, from the tape: arguments, call, release."""
    from ftax.errors import UnsupportedError
    from ftax.ladders.tax import tax
    from ftax.reports.tables.receipt_table import draw_operators

    with show_progress(model, limit_s=duration) as progress:
        progress("building the model", 0, 1)
        receipt = tax(
            model,
            setting=Setting(
                dtype=dtype,  # type: ignore[arg-type]  # checked by Setting
                device=device,
                batch=batch,
                sequence=sequence,
                tiny=tiny,
                attention=attention,  # type: ignore[arg-type]
                use_cache=use_cache,
                threads=threads,
            ),
            runtimes="none",
            plan=Plan(max_rounds=10, duration_s=duration),
            progress=progress,
        )
    if not receipt.operator_costs:
        tape = receipt.ladder.without_python
        reasons = [item.reason for item in receipt.unavailable if item.place == tape]
        raise UnsupportedError(reasons[0] if reasons else f"{model} has no tape")
    with saved(json, [receipt]):
        drawn = draw_operators(receipt, limit=limit, by_kind=not calls)
        show(drawn, json=json, csv=csv, markdown=markdown)
