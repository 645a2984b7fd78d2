"""`ftax compare A B ...`: is the difference real, and in which line is it?

The surprising choice: the first result is what the others are compared with, however many there
are, and one file is enough if its records have labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ftax.cli import options as o
from ftax.cli.show import leave_if_ended, saved, show
from ftax.errors import InvalidArgumentError, ResultsError, check_number
from ftax.reports.progress import show_progress
from ftax.reports.terminal import say
from ftax.steps.setting import Setting
from ftax.timing.interrupts import hold, interruptible
from ftax.timing.session import Plan

if TYPE_CHECKING:
    from ftax.ladders.comparison import Item
    from ftax.ladders.receipt import Receipt
    from ftax.sweeps.processes import BenchJob
    from ftax.timing.comparison import Comparison
    from ftax.timing.measurement import Measurement

_FAILURES = {"slower": ("slower",), "unsure": ("slower", "cannot-tell")}

Sides = Annotated[
    list[str],
    typer.Argument(
        metavar="A B...",
        help="Results files of receipts or measurements; records of one file with several labels "
        "are as many results. Or folders of sweeps, or one with several machines. Or cells to "
        "measure now: MODEL[:RUNTIME[:HOST]], such as bert-base:torchscript:cpp, or of your own "
        "my_package.model:make:torchscript:cpp; left out, they are eager and python. The first one "
        "is what the others are compared with.",
    ),
]


_PLAN = Plan(duration_s=10.0, patience_s=10.0)


@o.takes(
    setting=o.make_setting,
    plan=o.some_of(o.make_plan, duration="10", patience="10"),
    output=o.make_output,
)
def compare(
    sides: Sides,
    processes: Annotated[
        int, typer.Option(help="Cells: measure each in so many fresh processes, by turns.")
    ] = 1,
    margin: Annotated[float, typer.Option(help="Within this ratio of each other is equal.")] = 0.05,
    confidence: Annotated[float, typer.Option(help="Of the interval.")] = 0.95,
    fail_on: Annotated[
        Literal["slower", "unsure"],
        typer.Option(
            help="What ends with exit code 1: slower for certain (between single processes: by "
            "more than the margin), or cannot tell too."
        ),
    ] = "slower",
    allow_different: Annotated[
        bool,
        typer.Option("--allow-different", help="Files of different machines, torches or threads."),
    ] = False,
    *,
    setting: Setting,
    plan: o.PlanChanges,
    output: o.Output,
) -> None:
    """Answer faster, slower, equal or cannot tell, for the whole and for each line of a receipt."""
    from ftax.ladders.comparison import compare as compare_items
    from ftax.reports.tables.comparison_table import draw_comparisons
    from ftax.reports.tables.measurement_table import draw_measurements
    from ftax.sweeps.processes import JobRuns, run_jobs

    check_number("--margin", margin, can_be_0=True)
    check_number("--confidence", confidence, most=1)
    are_sweeps = [_is_sweep(side) for side in sides]
    are_files = [_is_file(side) for side in sides]
    if any(are_sweeps):
        if not all(are_sweeps):
            odd = sides[are_sweeps.index(False)]
            raise InvalidArgumentError(
                f"{odd} is no folder of a sweep, and {sides[are_sweeps.index(True)]} is one; give "
                "folders of sweeps alone, or none"
            )
        _refuse_choices([*setting.chosen, *plan, *(["processes"] if processes != 1 else [])])
        _compare_sweeps(
            [*map(Path, sides)], output, margin=margin, confidence=confidence,
            fail_on=fail_on, allow_different=allow_different,
        )  # fmt: skip
        return
    with hold():
        runs: JobRuns | None = None
        found: list[tuple[str, list[Item]]]
        if all(are_files):
            _refuse_choices([*setting.chosen, *plan, *(["processes"] if processes != 1 else [])])
            found = interruptible(_read_sides, [Path(side) for side in sides])
        elif any(are_files):
            raise InvalidArgumentError("give results files or cells, not some of each")
        else:
            if len(sides) < 2:
                raise InvalidArgumentError(
                    f"{sides[0]} is one cell; give another to compare with it"
                )
            jobs = [_make_job(side, replace(_PLAN, **plan), setting) for side in sides]
            with show_progress("comparing", limit_s=jobs[0].plan.duration_s) as progress:
                runs = run_jobs(jobs, processes=processes, progress=progress)
            found = [(name, [*items]) for name, items in zip(_name(sides), runs.sides, strict=True)]
        measured = [] if runs is None else [item for side in runs.sides for item in side]
        with saved(output.json, measured):
            if runs is not None and not all(runs.sides):  # there is nothing to compare
                show(draw_measurements(*measured), output)
                leave_if_ended(runs, processes, output.json)
            (first, of_first), *others = found
            results = [
                compare_items(
                    of_first,
                    items,
                    margin=margin,
                    confidence=confidence,
                    names=(first, name),
                    allow_different=allow_different,
                )
                for name, items in others
            ]
            with saved(output.json, results):
                show(draw_comparisons(*results), output)
                if runs is not None:
                    leave_if_ended(runs, processes, output.json)
        _end(results, fail_on)


def _end(results: Sequence[Comparison], fail_on: str) -> None:
    """With exit code 1 if one of them is what fails.

    Two processes differ by some per cent although they run the same code, which rounds of one
    process a side do not know: such a side fails as slower if it is so by more than the margin.
    """
    found = [result for result in results if result.verdict in _FAILURES[fail_on]]
    close = [
        result
        for result in found
        if fail_on == "slower"
        and result.unit == "round"
        and result.ratio_interval[0] <= 1 + result.margin
    ]
    if close:
        names = ", ".join(result.name_b for result in close)
        say(
            f"{names}: no failure, since it is not slower by more than {close[0].margin:.0%} for "
            "certain, and two processes that run the same code may differ by as much; --processes "
            "5, or five receipts a side in their files, tell less than that"
        )
    if len(found) > len(close):
        raise typer.Exit(1)


def _refuse_choices(given: list[str]) -> None:
    if given:
        raise InvalidArgumentError(
            f"{given[0]} is given, but the sides are results files, which were measured "
            "already: leave it out"
        )


def _is_sweep(side: str) -> bool:
    """A folder of a sweep, or the file with its cells. Raises ResultsError for another folder,
    unless it may hold a model."""
    from ftax.steps.zoo.registry import list_models
    from ftax.sweeps.results import CELLS_FILE, find_file

    path = Path(side)
    if not path.is_dir() or (path / CELLS_FILE).is_file():
        return path.is_dir() or (path.name == CELLS_FILE and path.is_file())
    is_model = (path / "config.json").exists() or side in (spec.name for spec in list_models())
    if not is_model:
        find_file(path)
    return False


def _compare_sweeps(
    paths: list[Path],
    output: o.Output,
    *,
    margin: float,
    confidence: float,
    fail_on: str,
    allow_different: bool,
) -> None:
    """Sweeps with the first of them, or the machines of one."""
    from ftax.reports.tables.sweep_comparison_table import draw_sweep_comparisons
    from ftax.sweeps.comparison import compare_machines, compare_sweeps
    from ftax.sweeps.results import SweepResults

    loaded = [SweepResults.load(path) for path in paths]
    if len(paths) == 1:
        found = compare_machines(loaded[0], margin=margin, confidence=confidence)
    else:
        names = _name_folders(paths)
        found = tuple(
            compare_sweeps(
                loaded[0],
                results,
                names=(names[0], name),
                margin=margin,
                confidence=confidence,
                allow_different=allow_different,
            )
            for results, name in zip(loaded[1:], names[1:], strict=True)
        )
    results = [change.result for item in found for change in item.changes]
    with saved(output.json, results):
        show(draw_sweep_comparisons(found, is_whole=output.markdown), output)
    _end(results, fail_on)


def _name_folders(paths: list[Path]) -> list[str]:
    """By their own names, if that tells them apart, or as they were given."""
    names = [path.resolve().name for path in paths]
    if len(set(names)) < len(names):
        names = [str(path) for path in paths]
    if len(set(names)) < len(names):  # a folder with itself
        names = [f"{name} ({place})" for place, name in enumerate(names, start=1)]
    return names


def _is_file(side: str) -> bool:
    """Raises InvalidArgumentError for code without a name in it."""
    if side.endswith(".py") and Path(side).is_file():
        raise InvalidArgumentError(
            f"{side} is code and holds no results: give {side}:NAME to measure what it defines, or "
            "the file that --json wrote"
        )
    return side.endswith((".json", ".jsonl")) or Path(side).is_file()


def _name(sides: list[str]) -> list[str]:
    """As they were given, if that tells them apart."""
    if len(set(sides)) == len(sides):
        return sides
    return [chr(ord("a") + place) for place in range(len(sides))]


def _make_job(side: str, plan: Plan, setting: Setting) -> BenchJob:
    from ftax.sweeps.processes import BenchJob

    model, runtime, host = _parse_cell(side)
    return BenchJob(model=model, runtime=runtime, hosts=(host,), plan=plan, setting=setting)


def _parse_cell(text: str) -> tuple[str, str, str]:
    from ftax.runtimes.catalogue import is_library
    from ftax.steps.load_code import find_code

    code = find_code(text)  # which has a colon of its own
    model, *parts = [code, *text[len(code) :].split(":")[1:]] if code else text.split(":")
    if len(parts) > 2:
        raise InvalidArgumentError(f"{text!r} is no cell; write MODEL[:RUNTIME[:HOST]]")
    runtime, host = [*parts, "", ""][:2]
    return model, runtime or "eager", host or ("cpp" if is_library(runtime) else "python")


def _read_sides(paths: list[Path]) -> list[tuple[str, list[Item]]]:
    """What the files hold, by label: at least two results. Those without a label go by the names of
    their files."""
    sides: dict[tuple[int, str], list[Item]] = {}
    for place, path in enumerate(paths):
        for item in _read(path):
            sides.setdefault((place, item.label), []).append(item)
    if len(sides) < 2:
        raise InvalidArgumentError(
            f"{paths[0]} holds one result; give another file to compare with it, or measure both "
            "into this one with --label before and --label after"
        )
    names = [label or paths[place].stem for place, label in sides]
    if len(set(names)) < len(names):
        names = [" ".join(filter(None, (str(paths[place]), label))) for place, label in sides]
    if len(set(names)) < len(names):  # a file with itself
        names = [f"{name} ({place})" for place, name in enumerate(names, start=1)]
    return list(zip(names, sides.values(), strict=True))


def _read(path: Path) -> list[Receipt | Measurement]:
    """The receipts of a file, or its measurements."""
    from ftax.ladders.mix_receipt import MixReceipt
    from ftax.ladders.receipt import Receipt
    from ftax.records.store import read_records
    from ftax.sweeps.record import SweepCell
    from ftax.timing.measurement import Measurement

    records = read_records(path).records
    receipts = [record for record in records if isinstance(record, Receipt)]
    measurements = [record for record in records if isinstance(record, Measurement)]
    if not receipts and not measurements:
        cells = sum(isinstance(record, SweepCell) for record in records)
        hint = "save some with --json"
        if any(isinstance(record, MixReceipt) for record in records):
            hint = "it has mixes, whose parts Python compares: ftax.compare(a.parts[0], b.parts[0])"
        if cells:
            hint = f"its {cells} cells of a sweep are compared by their folder, with cells.jsonl"
        raise ResultsError(f"{path} has no receipt and no measurement; {hint}")
    if receipts and measurements:
        raise ResultsError(
            f"{path} has receipts and measurements; write each to a file of its own with --json"
        )
    return [*receipts, *measurements]
