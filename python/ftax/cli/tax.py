"""`ftax tax MODEL`: the receipt."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from ftax.cli import options as o
from ftax.cli.show import keep_rounds, leave_interrupted, saved, show_receipt, write_traces
from ftax.errors import UnavailableError
from ftax.reports.progress import show_progress
from ftax.reports.terminal import say
from ftax.steps.setting import Setting
from ftax.timing.interrupts import hold


@o.takes(
    setting=o.make_setting,
    plan=o.some_of(o.make_plan, without=("mode",), duration="25 on a CPU, 10 on a GPU"),
    output=o.make_output,
)
def tax(
    model: o.ModelName,
    runtimes: Annotated[
        str,
        typer.Option(
            help="quick: ready in seconds; available: all that run here; all: with the reasons why "
            "others do not; none; or names separated by commas."
        ),
    ] = "quick",
    ladder: Annotated[
        str,
        typer.Option(
            help="compile: take torch.compile apart, in place of the rungs below Python eager.",
        ),
    ] = "",
    trace: o.TraceOutput = None,
    energy: Annotated[
        bool,
        typer.Option("--energy", help="GPU: also energy, utilisation, memory; 5 s a runtime."),
    ] = False,
    throughput: Annotated[
        bool, typer.Option("--throughput", help="Also time requests back to back.")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Print all that was found, not one screen of it.")
    ] = False,
    label: o.Label = "",
    *,
    setting: Setting,
    plan: o.PlanChanges,
    output: o.Output,
) -> None:
    """Where one inference's microseconds go, and what other runtimes would give back."""
    import torch

    from ftax.ladders.choice import CHOICES, list_slower
    from ftax.ladders.tax import tax_with_traces, usual_plan

    if trace is not None and not torch.cuda.is_available():
        raise UnavailableError(
            f"--trace {trace} needs a GPU, whose work it shows, and torch finds none: leave it out"
        )
    names = runtimes if runtimes in CHOICES else runtimes.split(",")
    limit_s = plan.get("duration_s", usual_plan(setting.device or "cpu").duration_s)
    with hold():  # from the rounds to the screen
        with show_progress(model, limit_s=limit_s) as progress, keep_rounds(output.json) as keep:
            progress("building the model", 0, 1)
            receipt, traces = tax_with_traces(
                model,
                setting=setting,
                runtimes=names,
                ladder=ladder,
                plan=lambda device: replace(usual_plan(device), **plan),
                trace="here",  # this process ends with the command
                energy=energy,
                throughput=throughput,
                progress=progress,
                label=label,
                keep=keep,
            )
        everything = everything or energy or throughput  # which the first screen has not
        with saved(output.json, [receipt], quiet=not (everything or output.csv)) as is_saved:
            show_receipt(receipt, output, everything=everything, is_saved=is_saved)
            if runtimes == "quick" and not ladder:
                cell = receipt.rungs[0].cell
                slower = len(list_slower(cell.device, cell.step))
                say(f"--runtimes available tries {slower} more, which take minutes to get ready.")
            if trace is not None:
                write_traces(traces, trace)
            if receipt.interrupted:
                leave_interrupted(output.json, "the receipt is of what was measured until then")
