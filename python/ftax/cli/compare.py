"""`ftax compare A B ...`: is the difference real, and in which line is it?

The first side is what the others are compared with, however many there are. One file is enough if
its records have labels, and with --base one name is enough.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ftax.cli import options as o
from ftax.cli.ending import UNSURE
from ftax.cli.show import leave_short, saved, show
from ftax.errors import InvalidArgumentError, ResultsError, check_number, say_count
from ftax.reports.progress import show_progress
from ftax.reports.terminal import say
from ftax.steps.setting import Setting
from ftax.timing.interrupts import hold, interruptible

if TYPE_CHECKING:
    from ftax.ladders.pairs import PairSide
    from ftax.ladders.receipt import Receipt
    from ftax.ladders.runs import Run
    from ftax.timing.comparison import Comparison
    from ftax.timing.measurement import Measurement

    Item = Receipt | Measurement | Run

Sides = Annotated[
    list[str],
    typer.Argument(
        metavar="A B...",
        help="Results files of receipts, measurements or runs; records of one file with several "
        "labels are as many results. Or folders of sweeps, or one with several machines. Or cells "
        "to measure now: MODEL[:RUNTIME[:HOST]], such as bert-base:torchscript:cpp, or of your own "
        "my_package.model:make:torchscript:cpp; left out, they are eager and python. The first one "
        "is what the others are compared with.",
    ),
]


@o.takes(
    setting=o.make_setting,
    plan=o.some_of(o.make_plan, duration="45", rounds="80"),
    output=o.make_output,
)
def compare(
    sides: Sides,
    base: Annotated[
        str,
        typer.Option(
            metavar="REF",
            help="The first side is this code at a git revision, such as origin/main, in a "
            "temporary worktree.",
        ),
    ] = "",
    setup: Annotated[
        str,
        typer.Option(
            help="With --base: a command to run in the worktree; what its pip installs goes to a "
            "temporary folder that comes first on the path."
        ),
    ] = "",
    base_python: Annotated[
        str, typer.Option(help="With --base: the Python of that side, which has ftax too.")
    ] = "",
    label: Annotated[
        list[str] | None,
        typer.Option(help="What to call the sides; once for each, in their order."),
    ] = None,
    margin: Annotated[float, typer.Option(help="The ratio that matters: 0.05 is 5 %.")] = 0.05,
    confidence: Annotated[
        float, typer.Option(help="Of the interval, over all looks together.")
    ] = 0.99,
    fail_on: Annotated[
        Literal["slower", "unsure"],
        typer.Option(
            help="slower: exit code 1 if a side is slower by more than the margin for certain. "
            "unsure: also 5 if that cannot be told."
        ),
    ] = "slower",
    allow_different: Annotated[
        bool,
        typer.Option("--allow-different", help="Results of different machines, torches, threads."),
    ] = False,
    allow_different_inputs: Annotated[
        bool, typer.Option("--allow-different-inputs", help="Calls on inputs that differ.")
    ] = False,
    *,
    setting: Setting,
    plan: o.PlanChanges,
    output: o.Output,
) -> None:
    """Answer faster, slower, equal or cannot tell: of code, measured by turns, or of results."""
    check_number("--margin", margin, can_be_0=True)
    check_number("--confidence", confidence, most=1)
    choices: dict[str, Any] = {
        "margin": margin,
        "confidence": confidence,
        "allow_different": allow_different,
        "allow_different_inputs": allow_different_inputs,
    }
    if (setup or base_python) and not base:
        raise InvalidArgumentError(
            f"{'--setup' if setup else '--base-python'} is given without --base: leave it out, or "
            "give the revision to compare with"
        )
    are_sweeps = [_is_sweep(side) for side in sides]
    are_files = [_is_file(side) for side in sides]
    if any(are_sweeps) or all(are_files):
        _refuse_choices([*(["base"] if base else []), *setting.chosen, *plan])
    if any(are_sweeps):
        if not all(are_sweeps):
            odd = sides[are_sweeps.index(False)]
            raise InvalidArgumentError(
                f"{odd} is no folder of a sweep, and {sides[are_sweeps.index(True)]} is one; give "
                "folders of sweeps alone, or none"
            )
        results = _compare_sweeps([*map(Path, sides)], label or [], output, **choices)
    elif all(are_files):
        results = _compare_files([*map(Path, sides)], label or [], output, **choices)
    elif any(are_files):
        raise InvalidArgumentError("give results files or cells, not some of each")
    else:
        with hold(), ExitStack() as stack:
            made = [_make_side(side, setting) for side in sides]
            if base:
                made = _add_base(made, stack, base, setup, base_python)
            results = _compare_code(_name_sides(made, label or []), plan, output, **choices)
    _end(results, fail_on)


def _compare_code(
    sides: list[PairSide],
    plan: o.PlanChanges,
    output: o.Output,
    **choices: Any,
) -> list[Comparison]:
    """Measured by turns, in pairs of processes."""
    from ftax.ladders.pairs import DURATION_S, make_pair_plan
    from ftax.ladders.verdict import compare_by_turns
    from ftax.reports.tables.comparison_table import draw_comparisons
    from ftax.reports.tables.measurement_table import draw_measurements

    duration_s = plan.get("duration_s", DURATION_S)
    own_plan = make_pair_plan(plan)
    with show_progress("comparing", limit_s=duration_s) as progress:
        runs, results = compare_by_turns(
            sides, plan=own_plan, duration_s=duration_s, progress=progress, **choices
        )
    measured = [item for side in runs.sides for item in side]
    with saved(output.json, [*measured, *results]):
        show(draw_comparisons(*results) if results else draw_measurements(*measured), output)
        leave_short(runs.ended, say_count(len(runs.sides[0]), "pair"))
    return results


def _compare_files(
    paths: list[Path], labels: list[str], output: o.Output, **choices: Any
) -> list[Comparison]:
    from ftax.ladders.compare_results import compare_results
    from ftax.reports.tables.comparison_table import draw_comparisons

    with hold():
        sides = interruptible(_read_sides, paths)
        names = _choose_names([name for name, _ in sides], labels)
        (first, of_first), *others = zip(names, [items for _, items in sides], strict=True)
        results = [
            compare_results(of_first, items, names=(first, name), **choices)
            for name, items in others
        ]
        with saved(output.json, results):
            show(draw_comparisons(*results), output)
    return results


def _end(results: Sequence[Comparison], fail_on: str) -> None:
    """With the exit code of what fails: 1 before 5."""
    if any(item.is_slower_by_margin for item in results):
        raise typer.Exit(1)
    unsure = [item for item in results if not item.is_within_margin]
    if unsure and fail_on == "unsure":
        names = ", ".join(dict.fromkeys(item.name_b for item in unsure))
        hint = "; a longer --duration or a quieter machine may tell"
        say(
            f"{names}: it cannot be told whether it is slower by more than "
            f"{unsure[0].margin:.0%}{hint if unsure[0].unit == 'pair' else ''}"
        )
        raise typer.Exit(UNSURE)


def _refuse_choices(given: list[str]) -> None:
    if given:
        raise InvalidArgumentError(
            f"--{given[0].replace('_', '-')} is given, but the sides are results files, which were "
            "measured already: leave it out"
        )


def _is_sweep(side: str) -> bool:
    """A folder of a sweep, or the file with its cells. Raises ResultsError for another folder,
    unless it may hold a model."""
    from ftax.records.store import find_results
    from ftax.steps.zoo.registry import list_models
    from ftax.sweeps.results import CELLS_FILE, find_file, is_cells_file

    path = Path(side)
    if not path.is_dir() or find_results(path / CELLS_FILE) is not None:
        return path.is_dir() or (is_cells_file(path) and path.is_file())
    is_model = (path / "config.json").exists() or side in (spec.name for spec in list_models())
    if not is_model:
        find_file(path)
    return False


def _compare_sweeps(
    paths: list[Path], labels: list[str], output: o.Output, **choices: Any
) -> list[Comparison]:
    """Sweeps with the first of them, or the machines of one."""
    from ftax.reports.tables.comparison_table import draw_sweep_comparisons
    from ftax.sweeps.comparison import compare_machines, compare_sweeps
    from ftax.sweeps.results import SweepResults

    folders = _tell_apart([path.resolve().name for path in paths], [str(path) for path in paths])
    names = _choose_names(folders, labels)
    loaded = [SweepResults.load(path) for path in paths]
    if len(paths) == 1:
        found = compare_machines(
            loaded[0], margin=choices["margin"], confidence=choices["confidence"]
        )
    else:
        found = tuple(
            compare_sweeps(loaded[0], results, names=(names[0], name), **choices)
            for results, name in zip(loaded[1:], names[1:], strict=True)
        )
    results = [change.result for item in found for change in item.changes]
    with saved(output.json, results):
        show(draw_sweep_comparisons(found, is_whole=output.markdown), output)
    return results


def _tell_apart(names: list[str], long: list[str]) -> list[str]:
    """The names, if each is another, or the long ones; with a number where one is there twice."""
    if len(set(names)) < len(names):
        names = long
    if len(set(names)) < len(names):
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


def _make_side(side: str, setting: Setting) -> PairSide:
    from ftax.ladders.pairs import PairSide

    model, runtime, host = _parse_cell(side)
    return PairSide(model=model, runtime=runtime, host=host, label=side, setting=setting)


def _add_base(
    sides: list[PairSide], stack: ExitStack, base: str, setup: str, python: str
) -> list[PairSide]:
    """The side at the revision, and the one that there is. Raises InvalidArgumentError unless that
    is one of the user's code."""
    from ftax.steps.load_code import is_code
    from ftax.steps.revision import check_out, list_own_path

    if len(sides) != 1 or not is_code(sides[0].model):
        raise InvalidArgumentError(
            f"--base compares one model of your code with itself at {base}, such as "
            f"model.py:make; here are {', '.join(side.label for side in sides)}"
        )
    found = shutil.which(python)
    if python and found is None:
        raise InvalidArgumentError(f"--base-python {python} is no program: give a Python with ftax")
    interpreter = os.path.abspath(found) if found else ""
    revision = stack.enter_context(check_out(base, setup))
    (now,) = sides
    file, _, _ = now.model.rpartition(":")
    if file.endswith(".py") and not Path(revision.folder, file).exists():
        raise InvalidArgumentError(f"--base {base}: that revision has no {file} to compare with")
    path = tuple(sys.path)
    return [
        replace(
            now, label=base, revision=revision,
            path=revision.path if interpreter else (*revision.path, *path),
            python=interpreter,
        ),
        replace(now, label="now", path=(*list_own_path(revision), *path)),
    ]  # fmt: skip


def _name_sides(sides: list[PairSide], labels: list[str]) -> list[PairSide]:
    """By labels, if there are some, or as they were given, with letters where that is the same."""
    if len(sides) < 2:
        raise InvalidArgumentError(
            f"{sides[0].label} is one cell; give another to compare with it, or --base REF"
        )
    names = _choose_names([side.label for side in sides], labels)
    if len(set(names)) < len(names):
        names = [chr(ord("a") + place) for place in range(len(names))]
    return [replace(side, label=name) for side, name in zip(sides, names, strict=True)]


def _choose_names(names: list[str], labels: list[str]) -> list[str]:
    """The labels, if there are some. Raises InvalidArgumentError unless each side has another."""
    if labels and (len(labels) != len(names) or len(set(labels)) < len(labels)):
        raise InvalidArgumentError(
            f"--label is given as {', '.join(labels)}, and there are {len(names)} sides: give "
            "another one for each, or none"
        )
    return labels or names


def _parse_cell(text: str) -> tuple[str, str, str]:
    from ftax.runtimes.catalogue import is_library
    from ftax.steps.load_code import find_code

    code = find_code(text)  # which has a colon of its own
    model, *parts = [code, *text[len(code) :].split(":")[1:]] if code else text.split(":")
    if len(parts) > 2:
        raise InvalidArgumentError(f"{text!r} is no cell; write MODEL[:RUNTIME[:HOST]]")
    runtime, host = [*parts, "", ""][:2]
    return model, runtime, host or ("cpp" if is_library(runtime) else "python")


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
    short = [label or paths[place].stem for place, label in sides]
    long = [" ".join(filter(None, (str(paths[place]), label))) for place, label in sides]
    names = _tell_apart(short, long)
    return list(zip(names, sides.values(), strict=True))


def _read(path: Path) -> list[Item]:
    """The receipts of a file, its measurements, or its runs."""
    from ftax.ladders.receipt import Receipt
    from ftax.ladders.runs import Run
    from ftax.records.store import read_records
    from ftax.sweeps.sweep_records import SweepCell
    from ftax.timing.measurement import Measurement

    records = read_records(path).records
    receipts = [record for record in records if isinstance(record, Receipt)]
    measurements = [record for record in records if isinstance(record, Measurement)]
    runs = [record for record in records if isinstance(record, Run)]
    if not receipts and not measurements and not runs:
        cells = sum(isinstance(record, SweepCell) for record in records)
        hint = "save some with --json"
        if cells:
            hint = f"its {cells} cells of a sweep are compared by their folder, with cells.jsonl"
        raise ResultsError(f"{path} has no receipt, no measurement and no run; {hint}")
    if sum(map(bool, (receipts, measurements, runs))) > 1:
        raise ResultsError(
            f"{path} has receipts, measurements or runs side by side; write each kind to another "
            "file"
        )
    return [*receipts, *measurements, *runs]
