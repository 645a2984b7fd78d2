"""`ftax knee MODEL`: the size at which latency leaves its plateau, one row a runtime.

The model is built once. Each row is saved and kept as soon as it is done: a runtime that fails says
why and the next one goes on, and Ctrl-C ends with the rows that there are.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ftax.cli import options as o
from ftax.cli.show import leave_interrupted, saved, show
from ftax.errors import FtaxError, InvalidArgumentError, describe, release
from ftax.reports.progress import show_progress
from ftax.reports.table import Rows
from ftax.steps.setting import Setting
from ftax.timing.interrupts import hold, interruptible

if TYPE_CHECKING:
    from ftax.sweeps.knee_record import Knee
    from ftax.timing.candidate import Host

Failures = list[tuple[str, str, FtaxError]]  # runtime, host, why


@o.takes(
    setting=o.make_setting,
    plan=o.some_of(
        o.make_plan, without=("mode", "precision"), duration="45 on a CPU, 180 on a GPU, a runtime"
    ),
    output=o.make_output,
)
def knee(
    model: o.ModelName,
    over: Annotated[str, typer.Option(help="batch or sequence.")] = "batch",
    runtime: Annotated[
        str, typer.Option(help="A name, several separated by commas, or all that work here.")
    ] = "eager",
    host: Annotated[
        str, typer.Option(help="python, cpp or both; all: where a runtime has it, else its own.")
    ] = "python",
    low: Annotated[int, typer.Option(help="The size that is the plateau.")] = 1,
    high: Annotated[
        int | None, typer.Option(help="The largest size; 1024, or as many tokens as it takes.")
    ] = None,
    margin: Annotated[float, typer.Option(help="On the plateau: within this share of it.")] = 0.1,
    resolution: Annotated[
        float, typer.Option(help="Stop when the ends are within this share of each other.")
    ] = 0.1,
    *,
    setting: Setting,
    plan: o.PlanChanges,
    output: o.Output,
) -> None:
    """The largest size whose latency is still that of the smallest one, with an interval."""
    from ftax.reports.tables.knee_table import draw_knees
    from ftax.steps.load import load_model
    from ftax.sweeps.knee import KNEE_PLAN, check_search

    check_search(low, high, margin=margin, resolution=resolution)
    if {"batch": setting.batch, "sequence": setting.sequence}.get(over) is not None:
        raise InvalidArgumentError(
            f"--{over} is given, but the knee is looked for over {over}; give --low instead"
        )
    # A row that cannot be saved is shown before that is said.
    with hold(), ExitStack() as saving:

        def keep(found: Knee) -> None:
            saving.enter_context(saved(output.json, [found]))

        with show_progress(model) as progress:
            progress("building the model", 0, 1)
            loaded = interruptible(load_model, model, setting=setting)
            usual = replace(KNEE_PLAN, duration_s=45.0 if loaded.device == "cpu" else 180.0)
            knees, failures, interrupted = find_knees(
                loaded,
                choose_runtimes(runtime, host, loaded.device),
                {"over": over, "low": low, "high": high, "margin": margin, "resolution": resolution,
                 "plan": replace(usual, **plan)},
                progress=progress,
                keep=keep,
            )  # fmt: skip
        if not knees:
            raise failures[0][2]  # there is no row to show
        drawn = draw_knees(*knees)
        if failures:
            missing = Rows(
                title="Not measured",
                columns=("runtime", "called from", "why"),
                rows=tuple((name, side, describe(error)) for name, side, error in failures),
            )
            drawn = replace(drawn, tables=(*drawn.tables, missing))
        show(drawn, output)
        if interrupted:
            leave_interrupted(output.json, "the tables are of the sizes and runtimes until then")


def find_knees(
    loaded: Any,
    wanted: list[tuple[str, Host]],
    settings: dict[str, Any],
    *,
    progress: Any,
    keep: Callable[[Knee], None],
) -> tuple[list[Knee], Failures, bool]:
    """The knees of ``wanted`` one after the other, why others failed, and whether Ctrl-C came."""
    from ftax.sweeps.knee import knee as find_knee

    knees: list[Knee] = []
    failures: Failures = []
    for runtime, host in wanted:

        def tell(phase: str, done: int, total: int, *, name: str = f"{runtime}/{host}") -> None:
            progress(f"{name}: {phase}", done, total)

        try:
            found = find_knee(loaded, runtime=runtime, host=host, progress=tell, **settings)
        except FtaxError as error:
            if isinstance(error, InvalidArgumentError) and not knees:
                raise  # wrong for every runtime
            release(error)  # kept, it would hold on to the memory of what failed
            failures.append((runtime, host, error))
            continue
        except KeyboardInterrupt:
            if not knees:
                raise
            return knees, failures, True
        knees.append(found)
        keep(found)
        if found.stop_reason == "interrupted":
            return knees, failures, True
    return knees, failures, False


def choose_runtimes(runtime: str, host: str, device: str) -> list[tuple[str, Host]]:
    """(runtime, host) pairs. "all" is every runtime that works on this machine, under the host that
    is asked for or, where it has not got that one, under its own."""
    from ftax.runtimes.catalogue import check_host, find_runtime, list_runtimes

    hosts = [check_host(name) for name in (("python", "cpp") if host == "both" else (host,))]
    if runtime != "all":
        return [(find_runtime(name).name, side) for name in runtime.split(",") for side in hosts]
    return [
        (spec.name, side)
        for spec in list_runtimes()
        for side in ([side for side in hosts if side in spec.hosts] or list(spec.hosts))
        if spec.find_obstacle(host=side, device=device) is None
    ]
