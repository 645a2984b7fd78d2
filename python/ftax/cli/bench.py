"""`ftax bench MODEL`: one runtime under one or both hosts."""

from __future__ import annotations

from typing import Annotated

import typer

from ftax.cli import options as o
from ftax.cli.show import leave_if_ended, saved, show
from ftax.errors import InvalidArgumentError
from ftax.reports.progress import show_progress
from ftax.reports.terminal import say
from ftax.steps.setting import Setting
from ftax.timing.interrupts import hold
from ftax.timing.plan import Plan


@o.takes(setting=o.make_setting, plan=o.some_of(o.make_plan, duration="30"), output=o.make_output)
def bench(
    model: o.ModelName,
    runtime: Annotated[str, typer.Option(help="See `ftax runtimes`.")] = "eager",
    host: Annotated[str, typer.Option(help="python, cpp, or both that the runtime has.")] = "both",
    processes: Annotated[
        int, typer.Option(help="Repeat in so many fresh processes, one record each.")
    ] = 1,
    label: o.Label = "",
    *,
    setting: Setting,
    plan: o.PlanChanges,
    output: o.Output,
) -> None:
    """Latency or throughput of one runtime, driven from Python, from C++, or both, interleaved."""
    from ftax.reports.tables.comparison_table import draw_hosts
    from ftax.reports.tables.measurement_table import draw_measurements
    from ftax.runtimes.catalogue import find_runtime
    from ftax.sweeps.processes import BenchJob, run_repeatedly
    from ftax.timing.differences import HostComparison
    from ftax.timing.measurement import describe_doubts

    if host not in ("python", "cpp", "both"):
        raise InvalidArgumentError(f"--host is {host!r}; give python, cpp or both")
    hosts = find_runtime(runtime).hosts if host == "both" else (host,)
    job = BenchJob(model=model, runtime=runtime, hosts=hosts, plan=Plan(**plan), setting=setting)
    with hold():
        with show_progress(model, limit_s=job.plan.duration_s) as progress:
            runs = run_repeatedly(job, processes=processes, progress=progress)
        measurements = [item.with_label(label) for item in runs.measurements]
        with saved(output.json, measurements):
            drawn = draw_measurements(*measurements)
            if len(hosts) == 2 and processes == 1 and job.plan.mode == "latency":
                drawn = draw_hosts(HostComparison(python=measurements[0], cpp=measurements[1]))
            show(drawn, output)
            warnings = [warning for item in measurements for warning in item.warnings]
            for warning in dict.fromkeys([*warnings, *describe_doubts(measurements)]):
                say(f"! {warning}")
            leave_if_ended(runs, processes, output.json)
