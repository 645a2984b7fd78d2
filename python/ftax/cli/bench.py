"""`ftax bench MODEL`: one runtime under one or both hosts."""

from __future__ import annotations

from typing import Annotated

import typer

from ftax.cli import options as o
from ftax.cli.show import leave_if_ended, leave_interrupted, saved, show
from ftax.errors import InvalidArgumentError
from ftax.reports.progress import show_progress
from ftax.reports.terminal import say
from ftax.steps.setting import Setting


def bench(
    model: o.ModelName,
    runtime: Annotated[str, typer.Option(help="See `ftax runtimes`.")] = "eager",
    host: Annotated[str, typer.Option(help="python, cpp, or both that the runtime has.")] = "both",
    dtype: o.Dtype = "fp32",
    device: o.Device = "cpu",
    batch: o.Batch = 1,
    sequence: o.Sequence = None,
    tiny: o.Tiny = False,
    attention: o.Attention = None,
    use_cache: o.UseCache = False,
    mode: o.Mode = "latency",
    threads: o.Threads = None,
    no_grad: o.NoGrad = False,
    transfers: o.Transfers = False,
    settings: o.Settings = None,
    processes: Annotated[
        int, typer.Option(help="Repeat in so many fresh processes, one record each.")
    ] = 1,
    warmup: o.Warmup = None,
    rounds: o.Rounds = None,
    duration: o.Duration = 30.0,
    precision: o.Precision = 0.01,
    seed: o.Seed = 0,
    cpus: o.Cpus = None,
    patience: o.Patience = 0.0,
    label: o.Label = "",
    json: o.Json = None,
    csv: o.Csv = False,
    markdown: o.Markdown = False,
) -> None:
    """Latency or throughput of one runtime, driven from Python, from C++, or both, interleaved."""
    from ftax.reports.tables.comparison_table import draw_hosts
    from ftax.reports.tables.measurement_table import draw_measurements
    from ftax.runtimes.catalogue import find_runtime
    from ftax.sweeps.processes import BenchJob, run_jobs
    from ftax.timing.host_comparison import HostComparison
    from ftax.timing.measurement import describe_doubts

    hosts = find_runtime(runtime).hosts if host == "both" else (host,)
    plan = o.make_plan(
        mode=mode,
        warmup=warmup,
        rounds=rounds,
        duration=duration,
        precision=precision,
        seed=seed,
        cpus=cpus,
        patience=patience,
    )
    if processes < 1:
        raise InvalidArgumentError(f"processes is {processes}; give 1 or more")
    job = BenchJob(
        model=model,
        runtime=runtime,
        hosts=hosts,
        plan=plan,
        setting=Setting(
            dtype=dtype,  # type: ignore[arg-type]  # checked by Setting
            device=device,
            batch=batch,
            sequence=sequence,
            tiny=tiny,
            attention=attention,  # type: ignore[arg-type]
            use_cache=use_cache,
            threads=threads,
            grad_mode="no_grad" if no_grad else "inference",
            runtime_options=o.parse_settings(settings),
            transfers=transfers,
        ),
    )
    with show_progress(model, limit_s=duration) as progress:
        runs = run_jobs([job], processes=processes, progress=progress)
    measurements = [item.with_label(label) for item in runs.sides[0]]
    with saved(json, measurements):
        drawn = draw_measurements(measurements)
        if len(hosts) == 2 and processes == 1 and mode == "latency":
            drawn = draw_hosts(HostComparison(python=measurements[0], cpp=measurements[1]))
        show(drawn, json=json, csv=csv, markdown=markdown)
        warnings = [warning for item in measurements for warning in item.warnings]
        for warning in dict.fromkeys([*warnings, *describe_doubts(measurements)]):
            say(f"! {warning}")
    leave_if_ended(runs, processes)
    if any(m.stop_reason == "interrupted" for m in measurements):
        leave_interrupted(json, "the table is of the rounds until then")
