"""`ftax trace MODEL`: kernels of one runtime, and where the time of a traced inference went."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import typer

from ftax.cli import options as o
from ftax.cli.show import saved, show, write_traces
from ftax.errors import check_count
from ftax.reports.progress import show_progress
from ftax.reports.terminal import say
from ftax.steps.setting import Setting


@o.takes(
    setting=o.some_of(o.make_setting, dtype="fp16; what a module is in", device="cuda"),
    output=o.make_output,
)
def trace(
    model: o.ModelName,
    runtime: Annotated[str, typer.Option(help="See `ftax runtimes`.")] = "eager",
    host: Annotated[str, typer.Option(help="python or cpp.")] = "python",
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
    *,
    setting: Setting,
    output: o.Output,
) -> None:
    """Kernels of one runtime on a GPU, and where the time of a traced inference went."""
    from ftax.instruments.trace.integrity import judge
    from ftax.ladders.trace import profile_once as run_once
    from ftax.ladders.trace import trace as run_trace
    from ftax.reports.tables.trace_table import draw_trace
    from ftax.runtimes.catalogue import check_host
    from ftax.steps.load_code import is_code

    check_count("--limit", limit)
    with show_progress(model) as progress:
        progress("building the model", 0, 1)
        if not is_code(model):  # whose module is where and what it is
            setting = replace(
                setting, dtype=setting.dtype or "fp16", device=setting.device or "cuda"
            )
        what: dict[str, Any] = {
            "setting": setting, "runtime": runtime, "host": check_host(host),
        }  # fmt: skip
        if profile_once:
            run_once(model, **what)
            return
        found = run_trace(model, iterations=iterations, **what)
    with saved(output.json, [found]):
        try:
            if chrome is not None:
                write_traces([found], chrome)
        finally:
            verdict = judge(found)
            if not verdict.ok:
                say(f"! the trace is {verdict.describe()}")
                raise typer.Exit(1)
            show(draw_trace(found, limit=limit), output)
