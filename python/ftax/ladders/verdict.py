"""`ftax.compare`: one answer for two results, or for two models to measure now.

Models that another process can build are measured by turns, in pairs of processes: those that can
be read there from a file. A notebook's class, a closure, and code that was changed since cannot.
"""

from __future__ import annotations

import importlib.util
import os
import pickletools
import sys
import tempfile
import time
import zipfile
from _compat_pickle import IMPORT_MAPPING
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Unpack

import torch
from torch import nn

from ftax.captures.captured import Captured
from ftax.captures.entry import find_options
from ftax.captures.options import Options
from ftax.errors import InvalidArgumentError, name_type
from ftax.ladders.compare_results import Item, check_names, compare_results
from ftax.ladders.pairs import DURATION_S, PairRuns, PairSide, make_pair_plan, run_pairs
from ftax.ladders.receipt import Receipt
from ftax.runtimes.prepare import open_capture, prepare
from ftax.steps.given import Model, as_step, measuring
from ftax.steps.loaded import LoadedModel
from ftax.steps.setting import Setting, SettingOptions, read_setting
from ftax.steps.step import Step
from ftax.timing.comparison import DEFAULT_CONFIDENCE, DEFAULT_MARGIN, Comparison
from ftax.timing.differences import HostComparison
from ftax.timing.interrupts import hold, interruptible
from ftax.timing.measurement import Measurement
from ftax.timing.plan import Plan, Progress, choose_plan
from ftax.timing.session import measure_together, require
from ftax.timing.watched import ProgressChoice, watched

_RESULTS = (Measurement, Receipt, HostComparison)
_IMPORTED_S = time.time()  # code that was changed later may not be what this process runs

Given = Item | Model | Captured | Sequence[Item] | tuple[nn.Module, Any]


def compare(
    a: Given,
    b: Given,
    inputs: Any = None,
    *,
    margin: float = DEFAULT_MARGIN,
    confidence: float = DEFAULT_CONFIDENCE,
    names: tuple[str, str] | None = None,
    allow_different: bool = False,
    allow_different_inputs: bool = False,
    runtime: str = "",
    plan: Plan | None = None,
    progress: ProgressChoice = None,
    **options: Unpack[SettingOptions],
) -> Comparison:
    """Compare b with a: is the difference real, and in which line is it?

    Give two models or captures, as `ftax.tax` takes them, or two pairs of a module and its inputs:
    they are measured by turns, in pairs of processes, five at least, until the answer is settled or
    55 s are over. What another process cannot build (a class of a notebook, a closure) is measured
    in this one, by rounds, and has a verdict from a difference of 5 % on.

    Or give results, receipts or measurements, one a side, or one for each process that ran it.
    They have a verdict from 5 % on too, unless they took turns, since two processes of the same
    code differ by as much. Of receipts the first rungs decide, and beside them every runtime and
    every line that both have. With two or more a side the error is that between processes, with
    one it is that of its rounds.

    Args:
        a, b: models, or results.
        inputs: of both models, in the forms of `ftax.tax`; without it each brings its own.
        margin: a ratio that matters: 0.05 is 5 %.
        confidence: of the interval; 1 minus the rate of false alarms, over all looks together.
        names: what the sides are called; left out, by their labels, or "a" and "b".
        allow_different: compare numbers of different machines, torches or threads all the same.
        allow_different_inputs: compare calls on inputs that differ all the same.
        runtime, plan, progress, options: of models, as for `ftax.py_bench`; ``plan.duration_s`` is
            that of all pairs.

    Raises:
        InvalidArgumentError: a side is empty, or of several cells of one runtime; the modes differ;
            the sides have no runtime in common; machine, torch, threads or inputs differ.
        RunnerError: a model failed while it was measured.
    """
    setting = read_setting(options, compare.__kwdefaults__)
    check_names(names)
    are_models = [_is_model(each) for each in (a, b)]
    if any(are_models) and not all(are_models):
        raise InvalidArgumentError(
            f"{name_type(a)} is compared with {name_type(b)}: give two models, or results of both"
        )
    if not all(are_models):
        if inputs is not None or plan is not None or options:
            raise InvalidArgumentError(
                "inputs, a plan or a setting is given, but a side is a result, which was measured "
                "already: leave it out, or give two models"
            )
        return compare_results(
            a,  # type: ignore[arg-type]  # looked at there
            b,  # type: ignore[arg-type]
            margin=margin, confidence=confidence, names=names, allow_different=allow_different,
            allow_different_inputs=allow_different_inputs,
        )  # fmt: skip
    choices: dict[str, Any] = {
        "margin": margin,
        "confidence": confidence,
        "allow_different_inputs": allow_different_inputs,
    }
    named = names or ("a", "b")
    models = [open_capture(*_split(each, inputs), runtime) for each in (a, b)]
    with hold(), watched(progress, "comparing", plan) as tell, ExitStack() as stack:
        sides = [
            stack.enter_context(_describe_side(*model, name, setting))
            for model, name in zip(models, named, strict=True)
        ]
        built = [side for side in sides if side is not None]
        if len(built) < len(sides):
            return _compare_by_rounds(models, named, setting, plan, tell, choices)
        runs, results = compare_by_turns(
            built,
            plan=_make_plan(plan),
            duration_s=DURATION_S if plan is None else plan.duration_s,
            progress=tell,
            **choices,
        )
        if not results:
            raise runs.ended or KeyboardInterrupt
        if runs.ended is None:
            return results[0]
        reason = str(runs.ended) or "interrupted"
        note = f"{reason}; this is the answer of the pairs before that"
        return replace(results[0], notes=(*results[0].notes, note))


def compare_by_turns(
    sides: Sequence[PairSide],
    *,
    plan: Plan,
    duration_s: float = DURATION_S,
    margin: float = DEFAULT_MARGIN,
    confidence: float = DEFAULT_CONFIDENCE,
    allow_different: bool = False,
    allow_different_inputs: bool = False,
    progress: Progress | None = None,
) -> tuple[PairRuns, list[Comparison]]:
    """Measure pairs until all comparisons with the first side are settled; the comparisons too, but
    none of fewer than two pairs. Raises what `run_pairs` raises."""

    def compare_all(found: Sequence[Sequence[Measurement]], at: float) -> list[Comparison]:
        return [
            compare_results(
                found[0], found[place], margin=margin, confidence=at,
                names=(sides[0].label, sides[place].label), allow_different=allow_different,
                allow_different_inputs=allow_different_inputs,
            )
            for place in range(1, len(sides))
        ]  # fmt: skip

    runs = run_pairs(
        sides,
        lambda found, at: all(item.is_settled for item in compare_all(found, at)),
        plan=plan,
        confidence=confidence,
        duration_s=duration_s,
        allow_different_inputs=allow_different_inputs,
        progress=progress,
    )
    if len(runs.sides[0]) < 2:
        return runs, []
    # The interval of a look is the wider for it, and holds together with those of all others.
    results = compare_all(runs.sides, runs.confidence)
    return runs, [replace(item, confidence=confidence) for item in results]


def _is_model(given: object) -> bool:
    """Whether it is to be measured. A tuple may be a side of several results. Raises
    InvalidArgumentError for a results file."""
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], nn.Module):
        return True
    if isinstance(given, _RESULTS):
        return False
    if isinstance(given, (str, os.PathLike)) and os.fspath(given).endswith((".json", ".jsonl")):
        raise InvalidArgumentError(
            f"{given} is a results file: give what is in it, ftax.read_records({given!r}).records"
        )
    return isinstance(given, (str, os.PathLike, nn.Module, Step, LoadedModel)) or callable(given)


def _split(given: Any, inputs: Any) -> tuple[Any, Any]:
    if not isinstance(given, tuple):
        return given, inputs
    if inputs is not None:
        raise InvalidArgumentError("a side brings its inputs, and inputs= is given: leave one out")
    return given


def _make_plan(plan: Plan | None) -> Plan:
    given = choose_plan(plan)
    changes = {
        item.name: getattr(given, item.name)
        for item in fields(Plan)
        if getattr(given, item.name) != item.default
    }
    return make_pair_plan(changes)


@contextmanager
def _describe_side(
    model: Any, inputs: Any, runtime: str, name: str, setting: Setting
) -> Iterator[PairSide | None]:
    """How another process builds it; None if none can."""
    function = model.function if isinstance(model, Step) else model
    if runtime == "capture" and find_options(function) != Options():
        yield None  # they may be of this process: a function to reset by
        return
    side = PairSide(label=name, runtime=runtime, setting=setting, path=tuple(sys.path))
    if isinstance(model, (str, os.PathLike)) and inputs is None:
        yield replace(side, model=os.fspath(model))
        return
    with tempfile.TemporaryDirectory(prefix="ftax-compare-") as folder:
        path = Path(folder, "side.pt")
        yield replace(side, pickled=str(path)) if _pickle((model, inputs), path) else None


def _pickle(what: object, path: Path) -> bool:
    """Write it where another process can read it; whether that process builds the same of it."""
    try:
        torch.save(what, path)
        with zipfile.ZipFile(path) as archive:
            name = next(name for name in archive.namelist() if name.endswith("data.pkl"))
            operations = list(pickletools.genops(archive.read(name)))
    except Exception:  # any: the object may run code
        return False
    modules = {str(told).split(" ")[0] for code, told, _ in operations if code.name == "GLOBAL"}
    return all(_is_as_written(IMPORT_MAPPING.get(name, name)) for name in modules)


def _is_as_written(module: str) -> bool:
    """Whether a module is found by its name, and its file is what this process imported."""
    if module == "__main__":
        return False
    with suppress(ImportError, ValueError, AttributeError):
        found = importlib.util.find_spec(module)
        if found is None:
            return False
        if not found.has_location or found.origin is None:
            return True  # built into Python
        return Path(found.origin).stat().st_mtime <= _IMPORTED_S
    return False


def _compare_by_rounds(
    models: Sequence[tuple[Any, Any, str]],
    names: tuple[str, str],
    setting: Setting,
    plan: Plan | None,
    progress: Progress | None,
    choices: dict[str, Any],
) -> Comparison:
    """Both in this process and in the same rounds; built before either is measured."""
    with ExitStack() as stack:
        parts = []
        for model, inputs, runtime in models:
            stack.enter_context(measuring(model, setting, inputs))
            made, given, _ = as_step(model, inputs, None, setting)
            parts.append(
                interruptible(
                    prepare, made, given, None, setting, runtime=runtime, hosts=("python",)
                )
            )
        sessions = measure_together(parts, choose_plan(plan), progress)
        found = [require(session)[0] for session in sessions]
    return compare_results(found[0], found[1], names=names, **choices)
