"""Every runtime is held against eager on both inputs, and whoever prints a number reads the worse.

The branch here goes one way on the inputs that are recorded and the other on those that are
checked: what traces it gives bitwise equal outputs on the first, and wrong ones on the second.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

import ftax
from ftax.runtimes.candidates import check_both_inputs, check_later
from ftax.runtimes.catalogue import find_runtime
from ftax.runtimes.plugins.entry_points import prepare_entry_point
from ftax.runtimes.spec import RuntimeSpec
from ftax.runtimes.workspace import Workspace
from ftax.steps.loaded import LoadedModel
from ftax.timing.checks import Checks, Equality
from ftax.timing.session import measure
from support.records import make_measurement
from support.small_models import load_function, normal

SHORT = ftax.Plan(rounds=3, warmup=2, round_ms=1.0)
POSITIVE = normal(3, 4).abs()
WRONG = {"bitwise": False, "within_tolerance": False, "difference": 1.0, "tolerance": 1e-4,
         "problem": "outputs differ by 1.0e+00 (limit 1e-04)", "has_nan": False}  # fmt: skip
EQUAL = {**WRONG, "bitwise": True, "within_tolerance": True, "difference": 0.0, "problem": None}
CLOSE = {**EQUAL, "bitwise": False, "difference": 3e-5}


def load_branch() -> LoadedModel:
    return load_function(
        lambda x: x + 1 if float(x.sum()) > 0 else x - 1, POSITIVE, check_inputs=-POSITIVE
    )


@pytest.mark.parametrize("runtime", ["torchscript", "torchscript-frozen"])
@pytest.mark.parametrize("host", ["python", "cpp"])
def test_a_traced_branch_is_found_out_on_the_second_input(runtime, host) -> None:
    prepared = find_runtime(runtime).prepare(Workspace(load_branch()), host)
    assert prepared.checks.outputs.bitwise
    assert not prepared.checks.second_input.within_tolerance
    assert torch.equal(prepared.run()[0], POSITIVE + 1)  # the main inputs are back


@pytest.mark.slow
def test_a_compiler_that_guards_the_branch_is_right_on_both() -> None:
    prepared = find_runtime("compile").prepare(Workspace(load_branch()), "python")
    assert prepared.checks.judge_outputs().equal
    assert prepared.judge() == []  # the branch of the second input was compiled before the rounds


class EntryPointTo:
    """An entry point that needs no installed package."""

    name = "baked"
    value = "baked"
    dist = None

    def __init__(self, function) -> None:
        self._function = function

    def load(self):
        return self._function


def test_an_installed_runtime_that_bakes_its_outputs_in_is_found_out() -> None:
    workspace = Workspace(load_function(lambda x: x * 2))
    baked = workspace.loaded.call().clone()
    point: Any = EntryPointTo(lambda loaded: lambda: baked)
    checks = check_both_inputs(workspace, prepare_entry_point(workspace, point))
    assert checks.outputs.bitwise
    assert not checks.second_input.within_tolerance


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (None, "after the rounds on a second input outputs differ by"),
        (RuntimeError("the pool is gone"), "after the rounds it fails: "),
    ],
)
def test_a_runtime_that_stops_computing_while_it_is_timed_is_found_out(fault, words) -> None:
    workspace = Workspace(load_function(lambda x: x * 2))
    calls = []

    def load(loaded: LoadedModel) -> Any:
        kept: list[torch.Tensor] = []

        def call() -> torch.Tensor:
            calls.append(None)
            if len(calls) <= 20:
                kept[:] = [loaded.call()]
            elif fault is not None and timed:
                raise fault
            return kept[0]

        return call

    timed: list[None] = []
    spec = RuntimeSpec(
        name="lazy",
        description="",
        hosts=("python",),
        function=lambda workspace, host: prepare_entry_point(workspace, point),
    )
    point: Any = EntryPointTo(load)
    prepared = spec.prepare(workspace, "python")
    assert prepared.checks.judge_outputs().equal
    again = prepared.check_again
    assert again is not None

    def check_again() -> Checks:
        timed.append(None)
        return again()

    session = measure(workspace.loaded, [replace(prepared, check_again=check_again)], SHORT)
    (measurement,) = session.measurements
    assert measurement is not None and len(calls) > 6
    assert words in Checks.of(measurement.checks).judge_outputs().problem
    assert any(words in text for text in measurement.warnings)


def test_want_of_memory_for_a_check_is_no_difference() -> None:
    def check() -> Checks:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")

    before = Checks(
        outputs=Equality(
            bitwise=True, within_tolerance=True, difference=0.0, tolerance=0.0, problem=None
        )
    )
    assert check_later(before, check) is before


def test_what_fails_on_the_second_input_says_how() -> None:
    workspace = Workspace(load_function(lambda x: x * 2))
    prepared = find_runtime("eager").prepare(workspace, "python")
    calls = []

    def run() -> Sequence[torch.Tensor]:
        calls.append(None)
        if len(calls) == 2:
            raise RuntimeError("shapes were baked in")
        return [workspace.loaded.call()]

    checks = check_both_inputs(workspace, replace(prepared, run=run))
    assert checks.judge_outputs().problem == "on a second input it fails: shapes were baked in"


def test_eager_is_checked_too_and_is_not_compared_with_itself() -> None:
    calls = []

    def forward(x: torch.Tensor) -> torch.Tensor:
        calls.append(None)
        return x * len(calls)

    prepared = find_runtime("eager").prepare(Workspace(load_function(forward)), "python")
    assert not prepared.checks.judge_outputs().equal


@pytest.mark.parametrize(
    ("first", "second", "equal", "words"),
    [
        (EQUAL, EQUAL, True, "bitwise equal"),
        (EQUAL, CLOSE, True, "equal within 3e-05"),
        (EQUAL, WRONG, False, "on a second input outputs differ by 1.0e+00 (limit 1e-04)"),
        (WRONG, EQUAL, False, "outputs differ by 1.0e+00 (limit 1e-04)"),
        (EQUAL, None, True, "bitwise equal, on one input"),
        (None, None, False, "not checked"),
    ],
)
def test_the_worst_of_all_inputs_is_what_is_read(first, second, equal, words) -> None:
    stored = {"outputs": first, "second_input": second}
    found = Checks.of({name: facts for name, facts in stored.items() if facts}).judge_outputs()
    assert (found.equal, found.words) == (equal, words)


def test_wrong_outputs_stand_beside_every_number_and_are_never_recommended() -> None:
    loaded = load_branch()
    receipt = ftax.tax(loaded, runtimes=["torchscript"], operators=False, plan=SHORT)
    rows = {row.label: row for row in receipt.runtimes}
    wrong = rows["torchscript/cpp"]
    assert not wrong.outputs_equal
    assert wrong.excluded.startswith("on a second input")
    assert "torchscript called from" not in receipt.recommendation
    assert "bitwise equal" not in str(receipt.details)
    measurement = ftax.cpp_bench(load_branch(), runtime="torchscript", plan=SHORT)
    assert any("gives other outputs than eager" in text for text in measurement.warnings)
    eager = ftax.py_bench(load_branch(), plan=SHORT)
    comparison = ftax.compare(eager, measurement)
    assert "not to be relied on" in comparison.describe()
    assert any("on a second input" in text for text in comparison.warnings)


@pytest.mark.parametrize("draws", [True, False])
def test_where_outputs_differ_random_numbers_are_named_if_any_are_drawn(draws) -> None:
    """As where torch.compile draws the numbers of a dropout in its own way."""

    def prepare(workspace: Workspace, host: Any) -> Any:
        eager = find_runtime("eager").prepare(workspace, "python")

        def draw_others() -> list[torch.Tensor]:
            torch.rand(3)
            return [output + (not draws) for output in eager.run()]

        return replace(eager, run=draw_others, checks=Checks(), warnings=())

    other = RuntimeSpec(name="other", description="", hosts=("python",), function=prepare)
    forward = torch.nn.functional.dropout if draws else torch.relu
    prepared = other.prepare(Workspace(load_function(forward, POSITIVE)), "python")
    assert not prepared.checks.judge_outputs().equal
    assert [("random numbers alone" in text) for text in prepared.warnings] == [True] * draws


def test_a_comparison_of_equal_outputs_says_nothing_of_them() -> None:
    a = make_measurement([100] * 5)
    comparison = ftax.compare(a, make_measurement([110] * 5, runtime="torchscript"))
    assert comparison.problems == ()
    assert "relied" not in comparison.describe()
