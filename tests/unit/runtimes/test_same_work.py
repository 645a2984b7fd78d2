"""Work that changes from call to call is seen while it is timed, and no tax is made of it."""

import pytest
import torch
from torch import nn

import ftax
from ftax.runtimes.catalogue import find_runtime
from ftax.runtimes.same_work import WorkWatch
from ftax.runtimes.workspace import Workspace
from ftax.timing.session import measure, require
from support.small_models import Grows, Lambda, load_function, normal

SHORT = ftax.Plan(rounds=4, warmup=2, round_ms=1.0)


class Cache(nn.Module):
    """Keys of all calls so far, in a tensor that is replaced."""

    def __init__(self) -> None:
        super().__init__()
        self.keys = torch.zeros(0, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.keys = torch.cat([self.keys, x])
        return x @ self.keys.t()


class Later(nn.Module):
    """More layers from the thirtieth call on."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x.relu().neg() if self.calls > 30 else x.relu()


class Sometimes(Later):
    """More at every hundredth call."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x.relu().neg() if self.calls % 100 == 0 else x.relu()


@pytest.mark.parametrize("make", [Grows, Cache, Later, Sometimes])
def test_work_that_changes_has_one_line_a_sentence_and_no_tax(make) -> None:
    receipt = ftax.tax(make(), (normal(3, 4),), runtimes="none", operators=False, plan=SHORT)
    assert receipt.work_problem
    (line,) = receipt.lines
    assert line.time_ns == receipt.latency_ns
    assert line.problem.startswith("not the same work: ")
    assert not line.resolved
    assert receipt.python_tax_ns is None
    assert receipt.recommendation.startswith("Not the same work: ")
    assert all(row.excluded for row in receipt.runtimes)
    text = str(receipt.details)
    assert "not the same work" in text
    assert "is tax" not in text and "gives back" not in text
    again = type(receipt).from_dict(receipt.to_dict())
    assert again.work_problem == receipt.work_problem


@pytest.mark.parametrize("bench", [ftax.py_bench, ftax.cpp_bench])
def test_a_single_number_says_so_too(bench) -> None:
    found = bench(Later(), (normal(3, 4),), plan=SHORT)
    assert any(
        text.startswith("not the same work: a later call makes 2") for text in found.warnings
    )


def test_the_same_work_is_observed_once_a_round_and_in_a_row() -> None:
    receipt = ftax.tax(
        Lambda(lambda x: x.relu()), (normal(3, 4),), runtimes="none", operators=False, plan=SHORT
    )
    watched = dict(receipt.rungs[0].checks["same_work"])
    assert 1 <= watched.pop("observed") - 128 <= 3  # a slow look waits for a later round
    assert watched == {"in_a_row": 128, "calls": 1, "problem": ""}
    assert receipt.work_problem == ""
    assert len(receipt.lines) == 3


def test_shapes_count_where_names_are_the_same() -> None:
    sizes = iter([3, 3, 2])
    watch = WorkWatch(load_function(lambda x: x[: next(sizes)] + 1), None)
    for _ in range(3):
        watch.look_in_a_row(0.0)
    assert watch.judge().problem == (
        "operator call 0 of a later call is aten::slice.Tensor on (3, 4), 0, 0, 2 where the first "
        "made aten::slice.Tensor on (3, 4), 0, 0, 3"
    )


def test_sizes_that_no_tensor_has_yet_count_too() -> None:
    sizes = iter([3, 3, 3000])
    watch = WorkWatch(load_function(lambda x: x + torch.arange(next(sizes))[:1]), None)
    for _ in range(3):
        watch.look_in_a_row(0.0)
    assert "aten::arange on 3000" in watch.judge().problem


def test_a_call_that_fails_later_is_a_difference() -> None:
    calls = []

    def forward(x: torch.Tensor) -> torch.Tensor:
        calls.append(None)
        if len(calls) > 3:
            raise ValueError("enough")
        return x + 1

    watch = WorkWatch(load_function(forward), None)
    watch.look_in_a_row(10.0)
    assert watch.judge().problem.startswith("a later call failed: the model raised ValueError")
    assert watch.judge().observed == 3


def test_a_long_list_of_shapes_is_cut() -> None:
    watch = WorkWatch(Workspace(load_grown(50)).loaded, None)
    watch.look_in_a_row(0.0)
    problem = watch.judge().problem
    assert "more" in problem and len(problem) < 300


def load_grown(calls: int):
    module = Grows()
    for _ in range(calls):
        module(normal(3, 4))
    return ftax.load_model(module, inputs=normal(3, 4))


def test_no_eager_no_observation() -> None:
    workspace = Workspace(load_function(lambda x: x + 1))
    prepared = find_runtime("torchscript").prepare(workspace, "cpp")
    (found,) = require(measure(workspace.loaded, [prepared], SHORT))
    assert "same_work" not in found.checks
