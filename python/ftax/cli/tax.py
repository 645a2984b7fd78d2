"""`ftax tax MODEL`: the receipt."""

from __future__ import annotations

from typing import Annotated

import typer

from ftax.cli import options as o
from ftax.cli.show import keep_rounds, leave_interrupted, saved, show, write_traces
from ftax.reports.progress import show_progress
from ftax.reports.terminal import say


def tax(
    model: o.ModelName,
    dtype: o.Dtype = "fp32",
    device: o.Device = "cpu",
    batch: o.Batch = 1,
    sequence: o.Sequence = None,
    tiny: o.Tiny = False,
    attention: o.Attention = None,
    use_cache: o.UseCache = False,
    runtimes: Annotated[
        str,
        typer.Option(
            help="quick: ready in seconds; available: all that run here; all: with the reasons why "
            "others do not; none; or names separated by commas."
        ),
    ] = "quick",
    threads: o.Threads = None,
    no_grad: o.NoGrad = False,
    transfers: o.Transfers = False,
    warmup: o.Warmup = None,
    rounds: o.Rounds = None,
    duration: Annotated[
        float | None,
        typer.Option(help=f"{o.DURATION}; 25 on a CPU, 10 on a GPU."),
    ] = None,
    precision: o.Precision = 0.01,
    seed: o.Seed = 0,
    cpus: o.Cpus = None,
    patience: o.Patience = 0.0,
    trace: o.TraceOutput = None,
    energy: Annotated[
        bool,
        typer.Option("--energy", help="GPU: also energy, utilisation, memory; 5 s a runtime."),
    ] = False,
    throughput: Annotated[
        bool, typer.Option("--throughput", help="Also time requests back to back.")
    ] = False,
    cold: Annotated[
        bool, typer.Option("--cold", help="GPU: flush L2 before each request, outside its time.")
    ] = False,
    rehearse: Annotated[
        bool,
        typer.Option(
            "--rehearse",
            help="Try each alternative in a process of its own first; leave out what crashes.",
        ),
    ] = False,
    label: o.Label = "",
    json: o.Json = None,
    csv: o.Csv = False,
    markdown: o.Markdown = False,
) -> None:
    """Where one inference's microseconds go, and what other runtimes would give back."""
    from ftax.ladders.choice import CHOICES, list_slower
    from ftax.ladders.tax import tax_with_traces

    if duration is None:
        duration = 25.0 if device == "cpu" else 10.0
    plan = o.make_plan(
        warmup=warmup,
        rounds=rounds,
        duration=duration,
        precision=precision,
        seed=seed,
        cpus=cpus,
        patience=patience,
    )
    names = runtimes if runtimes in CHOICES else runtimes.split(",")
    with show_progress(model, limit_s=duration) as progress, keep_rounds(json) as keep:
        progress("building the model", 0, 1)
        receipt, traces = tax_with_traces(
            model,
            dtype=dtype,
            device=device,
            batch=batch,
            sequence=sequence,
            tiny=tiny,
            attention=attention,
            use_cache=use_cache,
            runtimes=names,
            plan=plan,
            threads=threads,
            no_grad=no_grad,
            transfers=transfers,
            trace="here",  # this process ends with the command
            energy=energy,
            throughput=throughput,
            cold=cold,
            rehearse=rehearse,
            progress=progress,
            label=label,
            keep=keep,
        )
    with saved(json, [receipt]):
        show(receipt, json=json, csv=csv, markdown=markdown)
    if runtimes == "quick":
        say(f"--runtimes available adds {', '.join(list_slower(device))}.")
    if trace is not None:
        write_traces(traces, trace)
    if receipt.interrupted:
        leave_interrupted(json, "the receipt is of what was measured until then")
