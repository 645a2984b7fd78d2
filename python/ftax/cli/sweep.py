"""`ftax sweep grid.toml -o FOLDER`: every cell of a grid, each kept as soon as it is measured.

Without a file the options are the grid. Ctrl-C ends with what there is, and --resume goes on.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ftax.cli import options as o
from ftax.cli.show import show
from ftax.errors import InvalidArgumentError
from ftax.reports.progress import show_progress
from ftax.reports.terminal import say
from ftax.steps.setting import Setting
from ftax.timing.interrupts import hold, interruptible, take

if TYPE_CHECKING:
    from ftax.sweeps.grid import Grid
    from ftax.sweeps.results import SweepResults

_MANY = "Several: separated by commas, or repeated."


@o.takes(
    setting=o.some_of(o.make_setting, without=("dtype", "device", "batch", "sequence")),
    plan=o.make_sweep_plan,
    sites=o.make_sites,
    form=o.make_form,
)
def sweep(
    grid: Annotated[
        Path | None, typer.Argument(help="A TOML file (docs/sweep.md); left out, the options.")
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder for results.")] = Path(
        "sweep"
    ),
    model: Annotated[list[str] | None, typer.Option(help=f"See `ftax models`. {_MANY}")] = None,
    runtime: Annotated[
        list[str] | None, typer.Option(help=f"A name, or name/host. {_MANY}")
    ] = None,
    host: Annotated[
        list[str] | None, typer.Option(help=f"For runtimes without one: python, cpp. {_MANY}")
    ] = None,
    dtype: Annotated[list[str] | None, typer.Option(help=f"fp32, fp16, bf16. {_MANY}")] = None,
    batch: Annotated[list[str] | None, typer.Option(help=f"Requests in one call. {_MANY}")] = None,
    sequence: Annotated[
        list[str] | None, typer.Option("--sequence", "--seq", help=f"Tokens of a request. {_MANY}")
    ] = None,
    device: Annotated[
        list[str] | None,
        typer.Option(help=f"cpu, cuda (any of --gpus), cuda:N, or a GPU's name. {_MANY}"),
    ] = None,
    utilisation: Annotated[
        bool, typer.Option("--utilisation", help="GPU: read its counters, a second a cell.")
    ] = False,
    allow_libraries: Annotated[
        bool,
        typer.Option("--allow-libraries", help="The file may name shared libraries as runtimes."),
    ] = False,
    memory: Annotated[
        bool, typer.Option("--memory", help="GPU: what each runtime takes of it, seconds a cell.")
    ] = False,
    every_machine: Annotated[
        bool, typer.Option("--every-machine", help="Of a cluster, each measures each cell.")
    ] = False,
    repetitions: Annotated[
        int | None,
        typer.Option(help="Times more that each cell is measured, over the whole sweep."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Run only what the folder lacks.")
    ] = False,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="With --resume: what failed is missing.")
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Few, short rounds: a first look.")
    ] = False,
    limit: Annotated[
        float, typer.Option(help="Seconds that one step of a worker may take.")
    ] = 300.0,
    time_limit: Annotated[
        float | None, typer.Option(help="Seconds for all; --resume goes on from there.")
    ] = None,
    trace: Annotated[
        bool, typer.Option("--trace/--no-trace", help="GPU: trace kernels after the rounds.")
    ] = True,
    exporters: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Workers that export before anything is timed; 0: each cell when it is timed.",
            show_default="as many as there is room for",
        ),
    ] = None,
    *,
    setting: Setting,
    plan: o.PlanChanges,
    sites: o.Sites,
    form: o.Output,
) -> None:
    """Measure the product of models, runtimes, hosts, dtypes, batches, sequences and devices."""
    from ftax.sweeps.results import CELLS_FILE, SweepResults
    from ftax.sweeps.sweep import FULL, QUICK, run_sweep

    axes = {
        "models": o.parse_list(model), "runtimes": o.parse_list(runtime),
        "hosts": o.parse_list(host), "dtypes": o.parse_list(dtype),
        "batches": _parse_sizes("--batch", batch),
        "sequences": _parse_sizes("--sequence", sequence), "devices": o.parse_list(device),
        **replace(setting, threads=None).chosen,
        "utilisation": utilisation or None, "memory": memory or None,
        "every_machine": every_machine or None, "repetitions": repetitions,
    }  # fmt: skip
    chosen = {name: value for name, value in axes.items() if value not in (None, [])}
    grids = _choose_grids(grid, chosen, allow_libraries)
    interrupted = False
    with hold():
        with show_progress("sweep") as progress:
            try:
                results = interruptible(
                    run_sweep, grids, output, resume=resume, retry_failed=retry_failed,
                    quick=quick, plan=replace(QUICK if quick else FULL, **plan),
                    seed=plan.get("seed", 0), limit_s=limit, time_limit_s=time_limit, trace=trace,
                    exporters=exporters, threads=setting.threads, progress=progress, **sites,
                )  # fmt: skip
            except KeyboardInterrupt:
                if not (output / CELLS_FILE).exists():
                    raise
                interrupted, results = True, SweepResults.load(output)
        _show(results, output, form)
        if take() or interrupted:
            say(f"interrupted; go on with --resume -o {output}")
            raise typer.Exit(130)
    if results.is_late:
        say(f"the time is up; go on with --resume -o {output}")
        return
    found = {cell.status for cell in results.cells}
    if "measured" not in found:
        say("no cell was measured")
        raise typer.Exit(4 if "failed" in found else 3)


def _show(results: SweepResults, output: Path, form: o.Output) -> None:
    from ftax.reports.tables.sweep_table import draw_sweep

    show(draw_sweep(results, is_whole=form.csv or form.markdown), form)
    say(f"{results.describe()}; in {output}")
    for problem in results.problems:
        say(f"! {problem}")


def _choose_grids(
    path: Path | None, axes: dict[str, Any], allow_libraries: bool
) -> tuple[Grid, ...]:
    from ftax.steps.load_code import is_code
    from ftax.sweeps.grid import make_grid, read_grids

    if path is None:
        if "models" not in axes:
            raise InvalidArgumentError("there is nothing to sweep; give a grid file, or --model")
        return (make_grid(axes),)
    if axes:
        raise InvalidArgumentError(
            f"{next(iter(axes))} is given beside {path}, which says it for each grid; change it "
            "there, or leave the file out"
        )
    if is_code(str(path)) and not path.exists():
        raise InvalidArgumentError(
            f"{path} is code, and a sweep takes names of `ftax models` and Hugging Face folders: "
            "measure code with `ftax tax` or `ftax bench`"
        )
    return read_grids(path, allow_libraries=allow_libraries)


def _parse_sizes(option: str, texts: list[str] | None) -> list[int | str]:
    parts = o.parse_list(texts)
    return [part if part == "default" else o.parse_numbers(option, part)[0] for part in parts]
