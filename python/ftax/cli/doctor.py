"""`ftax doctor`: what this machine is good for, and what the smallest things cost on it."""

from __future__ import annotations

from ftax.cli import options as o
from ftax.cli.show import show
from ftax.reports.columns import Scalar
from ftax.reports.numbers import Numbers
from ftax.reports.table import Printout, Rows


@o.takes(form=o.make_form)
def doctor(device: o.Device = "cpu", *, form: o.Output) -> None:
    """What this machine is good for, what the smallest things cost on it, and what to know before
    trusting its numbers."""
    from ftax.ladders.floors import measure_floors
    from ftax.machines.concerns import find_concerns
    from ftax.machines.environment import collect_environment
    from ftax.steps.setting import normalize_device
    from ftax.timing.team import measure_team

    device = normalize_device(device)
    environment = collect_environment(device=device)
    team = measure_team()
    measured = measure_floors(device=device)
    floors = Rows(
        title="Floors",
        columns=("what", "time", "what it is"),
        numeric=("time",),
        rows=tuple(
            (floor.name, f"{floor.time_ns:,.1f} ns", floor.description) for floor in measured
        ),
    )
    host, software = environment.host, environment.software
    machine = Rows(
        title="Machine",
        columns=("what", "value"),
        numeric=(),
        rows=(
            ("CPU", f"{host.cpu_model}, {host.usable_cpus} usable CPUs"),
            ("governor", host.governor or "unknown"),
            ("virtualised", (host.hypervisor or "yes") if host.virtualised else "no"),
            ("Python", software.python),
            ("torch", software.torch),
            ("threads", str(environment.settings.num_threads)),
            ("GPU", environment.gpu.name if environment.gpu else "not used"),
        ),
    )
    facts: list[dict[str, Scalar]] = [
        {"part": "floor", "name": item.name, "time_ns": item.time_ns, "value": item.description}
        for item in measured
    ]
    facts += [{"part": "good for", "value": advice} for advice in team.advise()]
    concerns = tuple(find_concerns(environment))
    facts += [{"part": "machine", "name": name, "value": value} for name, value in machine.rows]
    facts += [{"part": "concern", "value": concern} for concern in concerns]
    drawn = Printout(
        head=tuple(f"Good for {advice}." for advice in team.advise()),
        tables=(floors, machine),
        warnings=concerns,
        numbers=lambda: Numbers.join(("part", "name", "time_ns", "value"), facts),
    )
    show(drawn, form)
