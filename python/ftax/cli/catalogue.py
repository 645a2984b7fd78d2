"""`ftax models`, `ftax runtimes` and `ftax doctor`: what there is, what works here, and what this
machine is good for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ftax.cli import options as o
from ftax.cli.show import show
from ftax.reports.columns import Column, Numbers, Scalar, read_all
from ftax.reports.table import Printout, Rows

if TYPE_CHECKING:
    from ftax.machines.environment import Environment


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


@o.takes(form=o.make_form)
def doctor(device: o.Device = "cpu", *, form: o.Output) -> None:
    """What this machine is good for, what the smallest things cost on it, and what to know before
    trusting its numbers."""
    from ftax.ladders.floors import measure_floors
    from ftax.machines.environment import collect_environment, find_concerns
    from ftax.steps.setting import normalize_device
    from ftax.timing.team import measure_team

    device = normalize_device(device)
    environment = collect_environment(device=device)
    advice, measured = measure_team().advise(), measure_floors(device=device)
    facts, concerns = _list_facts(environment), tuple(find_concerns(environment))

    def list_rows() -> Iterator[Mapping[str, Scalar]]:
        yield from ({"part": "floor", **read_all(floor, _FLOOR)} for floor in measured)
        yield from ({"part": "good for", "value": text} for text in advice)
        yield from ({"part": "machine", **read_all(fact, _FACT)} for fact in facts)
        yield from ({"part": "concern", "value": text} for text in concerns)

    drawn = Printout(
        head=tuple(f"Good for {text}." for text in advice),
        tables=(
            Rows.of_columns("Floors", measured, _FLOOR),
            Rows.of_columns("Machine", facts, _FACT),
        ),
        warnings=concerns,
        numbers=lambda: Numbers.join(("part", "name", "time_ns", "value"), list_rows()),
    )
    show(drawn, form)


_FLOOR = (
    Column("what", "name", "name", is_text=True),
    Column("time", ("time_ns", "{:,.1f} ns".format), "time_ns"),
    Column("what it is", "description", "value", is_text=True),
)
_FACT = (
    Column("what", "0", "name", is_text=True),
    Column("value", "1", "value", is_text=True),
)


def _list_facts(environment: Environment) -> list[tuple[str, str]]:
    host, software = environment.host, environment.software
    return [
        ("CPU", f"{host.cpu_model}, {host.usable_cpus} usable CPUs"),
        ("governor", host.governor or "unknown"),
        ("virtualised", (host.hypervisor or "yes") if host.virtualised else "no"),
        ("Python", software.python),
        ("torch", software.torch),
        ("threads", str(environment.settings.num_threads)),
        ("GPU", environment.gpu.name if environment.gpu else "not used"),
    ]
