"""`ftax models` and `ftax runtimes`: what there is, and what works here."""

from __future__ import annotations

from ftax.cli import options as o
from ftax.cli.show import show
from ftax.reports.table import Rows


@o.takes(form=o.make_form)
def models(*, form: o.Output) -> None:
    """The zoo; --csv and --markdown also say where each model is from and what to know of it.

    Besides these, bert-<layers>x<width> is a BERT of any size, and any local Hugging Face folder,
    and in Python any nn.Module, works too.
    """
    from ftax.reports.tables.models_table import draw_models

    show(draw_models(full=form.csv or form.markdown), form)


@o.takes(form=o.make_form)
def runtimes(device: o.Device = "cpu", *, form: o.Output) -> None:
    """Every runtime under each host: whether it works on this machine, and if not, why."""
    from ftax.runtimes.catalogue import list_runtimes
    from ftax.steps.setting import normalize_device

    device = normalize_device(device)
    rows = []
    for spec in list_runtimes():
        for host in ("python", "cpp"):
            obstacle = spec.find_obstacle(host=host, device=device)
            rows.append((spec.name, host, obstacle or "works here", spec.description))
    table = Rows(
        title=f"Runtimes on {device}",
        columns=("runtime", "host", "status", "description"),
        rows=tuple(rows),
    )
    show(table, form)
