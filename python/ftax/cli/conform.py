"""`ftax conform LIBRARY`: whether a shared library keeps the promises of ftax/runner.h."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ftax.cli import options as o
from ftax.cli.show import progress_bar, saved, show
from ftax.reports.table import Rows


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

    given = {"batch": batch, "sequence": sequence, "tiny": tiny or None}
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    with progress_bar(library) as progress:
        found = run_checks(
            library,
            model,
            limit_s=limit,
            progress=progress,
            dtype=dtype,  # type: ignore[arg-type]  # checked by Setting
            device=device,
            **options,
        )
    counts = {
        status: sum(finding.status == status for finding in found.findings)
        for status in ("passed", "failed", "skipped")
    }
    table = Rows(
        title=f"{found.plugin} on {found.model}, {found.device}: "
        + ", ".join(f"{count} {status}" for status, count in counts.items()),
        columns=("check", "result", "why"),
        numeric=(),
        rows=tuple((finding.name, finding.status, finding.reason) for finding in found.findings),
    )
    with saved(json, [found]):
        show(table.to_rich(), [table], csv=csv, markdown=markdown)
    if not found.conforms:
        raise typer.Exit(1)
