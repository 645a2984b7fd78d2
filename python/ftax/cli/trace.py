"""`ftax trace MODEL`: kernels of one runtime, and where the time of a traced inference went."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ftax.cli import options as o
from ftax.cli.show import saved, show, write_traces
from ftax.reports.progress import show_progress
from ftax.reports.terminal import say


def trace(
    model: o.ModelName,
    runtime: Annotated[str, typer.Option(help="See `ftax runtimes`.")] = "eager",
    host: Annotated[str, typer.Option(help="python or cpp.")] = "python",
    dtype: o.Dtype = "fp16",
    device: o.Device = "cuda",
    batch: o.Batch = 1,
    sequence: o.Sequence = None,
    tiny: o.Tiny = False,
    attention: o.Attention = None,
    use_cache: o.UseCache = False,
    no_grad: o.NoGrad = False,
    iterations: Annotated[int, typer.Option(help="Inferences to trace.")] = 20,
    limit: Annotated[int, typer.Option(help="Kernels to show.")] = 15,
    profile_once: Annotated[
        bool,
        typer.Option(
            "--profile-once",
            help="Trace nothing: run one inference between profiler start and stop, for nsys "
            "(--capture-range=cudaProfilerApi) and ncu (--profile-from-start off).",
        ),
    ] = False,
    chrome: o.ChromeOutput = None,
    json: o.Json = None,
    csv: o.Csv = False,
    markdown: o.Markdown = False,
) -> None:
    """Kernels of one runtime on a GPU, and where the time of a traced inference went."""
    from ftax.instruments.trace.integrity import judge
    from ftax.ladders.trace import profile_once as run_once
    from ftax.ladders.trace import trace as run_trace
    from ftax.reports.tables.timeline_table import draw_trace
    from ftax.runtimes.catalogue import check_host

    options: dict[str, Any] = {
        "dtype": dtype,
        "device": device,
        "batch": batch,
        "sequence": sequence,
        "tiny": tiny,
        "attention": attention,
        "use_cache": use_cache,
    }
    with show_progress(model) as progress:
        progress("building the model", 0, 1)
        if profile_once:
            run_once(model, runtime=runtime, host=check_host(host), no_grad=no_grad, **options)
            return
        found = run_trace(
            model,
            runtime=runtime,
            host=check_host(host),
            iterations=iterations,
            no_grad=no_grad,
            **options,
        )
    with saved(json, [found]):
        try:
            if chrome is not None:
                write_traces([found], chrome)
        finally:
            verdict = judge(found)
            if not verdict.ok:
                say(f"! the trace is {verdict.describe()}")
                raise typer.Exit(1)
            show(draw_trace(found, limit=limit), json=json, csv=csv, markdown=markdown)
