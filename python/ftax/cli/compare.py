"""`ftax compare A B`: is the difference real?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ftax.cli import options as o
from ftax.cli.show import leave_if_ended, progress_bar, saved, show
from ftax.errors import InvalidArgumentError, ResultsError
from ftax.steps.setting import Setting
from ftax.timing.measurement import Measurement

Side = Annotated[
    str,
    typer.Argument(
        help="A results file, or a cell to measure now: MODEL[:RUNTIME[:HOST]], "
        "such as bert-base:torchscript:cpp."
    ),
]


def compare(
    a: Side,
    b: Side,
    processes: Annotated[
        int, typer.Option(help="Cells: measure each in so many fresh processes, by turns.")
    ] = 1,
    margin: Annotated[float, typer.Option(help="Within this ratio of each other is equal.")] = 0.05,
    confidence: Annotated[float, typer.Option(help="Of the interval.")] = 0.95,
    dtype: o.Dtype = "fp32",
    device: o.Device = "cpu",
    batch: o.Batch = 1,
    sequence: o.Sequence = None,
    tiny: o.Tiny = False,
    threads: o.Threads = None,
    rounds: o.Rounds = None,
    duration: o.Duration = 10.0,
    precision: o.Precision = 0.01,
    seed: o.Seed = 0,
    cpus: o.Cpus = None,
    patience: o.Patience = 10.0,
    json: o.Json = None,
) -> None:
    """Answer faster, slower, equal or cannot tell; exit code 1 if b is slower, for CI."""
    from ftax.sweeps.processes import BenchJob, JobRuns, run_jobs
    from ftax.timing.comparison import compare as compare_measurements

    are_files = [_is_file(side) for side in (a, b)]
    runs: JobRuns | None = None
    if all(are_files):
        sides = [_read(Path(side)) for side in (a, b)]
    elif any(are_files):
        raise InvalidArgumentError("give two results files or two cells, not one of each")
    else:
        plan = o.make_plan(
            warmup=None,
            rounds=rounds,
            duration=duration,
            precision=precision,
            seed=seed,
            cpus=cpus,
            patience=patience,
        )
        setting = Setting(
            dtype=dtype,  # type: ignore[arg-type]  # checked by Setting
            device=device,
            batch=batch,
            sequence=sequence,
            tiny=tiny,
            threads=threads,
        )
        jobs = []
        for side in (a, b):
            model, runtime, host = _parse_cell(side)
            jobs.append(
                BenchJob(
                    model=model,
                    runtime=runtime,
                    hosts=(host,),
                    plan=plan,
                    setting=setting,
                )
            )
        with progress_bar("comparing") as progress:
            runs = run_jobs(jobs, processes=processes, progress=progress)
        sides = runs.sides
    measured = [] if runs is None else [item for side in runs.sides for item in side]
    with saved(json, measured):
        result = compare_measurements(sides[0], sides[1], margin=margin, confidence=confidence)
        with saved(json, [result]):
            show(result, [], csv=False, markdown=False)
    if runs is not None:
        leave_if_ended(runs, processes)
    if result.verdict == "slower":
        raise typer.Exit(1)


def _is_file(side: str) -> bool:
    return side.endswith((".json", ".jsonl")) or Path(side).is_file()


def _parse_cell(text: str) -> tuple[str, str, str]:
    parts = [*text.split(":"), "", ""]
    if len(parts) > 5:
        raise InvalidArgumentError(f"{text!r} is no cell; write MODEL[:RUNTIME[:HOST]]")
    return parts[0], parts[1] or "eager", parts[2] or "cpp"


def _read(path: Path) -> list[Measurement]:
    """The measurements of one cell: a file with several is ambiguous."""
    measurements = list(Measurement.load(path))
    keys = {measurement.cell.key() for measurement in measurements}
    if len(keys) != 1:
        labels = ", ".join(sorted({m.cell.label() for m in measurements})) or "none"
        raise ResultsError(
            f"{path} has measurements of {len(keys)} cells ({labels}); a side of a comparison is "
            "one cell: write each to a file of its own with --json"
        )
    return measurements
