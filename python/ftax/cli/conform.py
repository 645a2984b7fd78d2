"""`ftax conform LIBRARY`: whether a shared library keeps the promises of ftax/runner.h."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ftax.cli import options as o
from ftax.cli.show import saved, show
from ftax.reports.progress import show_progress
from ftax.reports.terminal import say


def conform(
    library: Annotated[str, typer.Argument(help="Its path, or path?config.")],
    model: Annotated[
        str | None, typer.Option(help="What it runs; left out, a two-layer perceptron.")
    ] = None,
    dtype: o.Dtype = "fp32",
    device: o.Device = "cpu",
    batch: Annotated[int | None, typer.Option(help="Requests in one call.")] = None,
    sequence: o.Sequence = None,
    tiny: o.Tiny = False,
    limit: Annotated[float, typer.Option(help="Seconds that one check may take.")] = 60.0,
    json: o.Json = None,
    csv: o.Csv = False,
    markdown: o.Markdown = False,
) -> None:
    """Try a runtime that implements the C interface; exit code 1 if a check fails."""
    from ftax.runtimes.plugins.conform.suite import conform as run_checks
    from ftax.runtimes.plugins.conform.suite import explain_perceptron

    given = {"batch": batch, "sequence": sequence, "tiny": tiny or None}
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    with show_progress(library) as progress:
        found = run_checks(
            library,
            model,
            limit_s=limit,
            progress=progress,
            dtype=dtype,  # type: ignore[arg-type]  # checked by Setting
            device=device,
            **options,
        )
    with saved(json, [found]):
        show(found, json=json, csv=csv, markdown=markdown)
    if not found.conforms:
        if model is None:
            tried = explain_perceptron(dtype, device)  # type: ignore[arg-type]  # conform checked it
            say(f"{found.plugin} {tried}")
        raise typer.Exit(1)
