"""`ftax models` and `ftax runtimes`: what there is, and what works here."""

from __future__ import annotations

from ftax.cli import options as o
from ftax.cli.show import show
from ftax.report.table import Rows


def models(csv: o.Csv = False, markdown: o.Markdown = False) -> None:
    """The zoo. Any local Hugging Face folder, and in Python any nn.Module, works too."""
    from ftax.models import list_models

    table = Rows(
        title="Models",
        columns=("name", "family", "parameters", "sequence", "description", "source"),
        numeric=("parameters", "sequence"),
        rows=tuple(
            (
                spec.name,
                spec.family,
                f"{spec.parameter_count / 1e6:.2f} M",
                str(spec.size) if spec.family == "text" else "-",
                spec.description,
                spec.source,
            )
            for spec in list_models()
        ),
    )
    show(table.to_rich(), [table], csv=csv, markdown=markdown)


def runtimes(device: o.Device = "cpu", csv: o.Csv = False, markdown: o.Markdown = False) -> None:
    """Every runtime under each host: whether it works on this machine, and if not, why."""
    from ftax.runtimes import list_runtimes

    rows = []
    for spec in list_runtimes():
        for host in ("python", "cpp"):
            obstacle = spec.find_obstacle(host=host, device=device)
            rows.append((spec.name, host, obstacle or "works here", spec.description))
    table = Rows(
        title=f"Runtimes on {device}",
        columns=("runtime", "host", "status", "description"),
        numeric=(),
        rows=tuple(rows),
    )
    show(table.to_rich(), [table], csv=csv, markdown=markdown)
