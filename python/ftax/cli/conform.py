"""`ftax conform LIBRARY`: whether a shared library keeps the promises of ftax/runner.h."""

from __future__ import annotations

from typing import Annotated

import typer

from ftax.cli import options as o
from ftax.cli.show import saved, show
from ftax.reports.progress import show_progress
from ftax.reports.terminal import say
from ftax.steps.setting import Setting


@o.takes(
    setting=o.some_of(
        o.make_setting,
        without=(
            *("step", "tokens", "cache", "sample", "optimizer"),
            *("threads", "no_grad", "cold", "transfers", "settings"),
        ),
    ),
    output=o.make_output,
)
def conform(
    library: Annotated[str, typer.Argument(help="Its path, or path?config.")],
    model: Annotated[
        str | None, typer.Option(help="What it runs; left out, a two-layer perceptron.")
    ] = None,
    limit: Annotated[float, typer.Option(help="Seconds that one check may take.")] = 60.0,
    *,
    setting: Setting,
    output: o.Output,
) -> None:
    """Try a runtime that implements the C interface; exit code 1 if a check fails."""
    from ftax.runtimes.plugins.conform import conform as run_checks
    from ftax.runtimes.plugins.conform import explain_perceptron

    with show_progress(library) as progress:
        found = run_checks(library, model, limit_s=limit, progress=progress, setting=setting)
    with saved(output.json, [found]):
        show(found, output)
    if not found.conforms:
        if model is None:
            tried = explain_perceptron(setting.dtype or "fp32", setting.device or "cpu")
            say(f"{found.plugin} {tried}")
        raise typer.Exit(1)
