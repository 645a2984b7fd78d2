"""Flat Python makes the tape's calls, with the tape's results, and nothing but bindings where there
are any.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import library as operator_library

from ftax import _core
from ftax.errors import UnsupportedError
from ftax.runtimes.eager.eager import prepare_flat
from ftax.runtimes.workspace import Workspace
from ftax.steps.loaded import LoadedModel
from support.small_models import load_function, log_operators, normal, run_seeded, same_bits

Function = Callable[[torch.Tensor], Any]


def check_flat(workspace: Workspace) -> Workspace:
    """The flat program against the model, by this file's own instruments."""
    loaded = workspace.loaded
    function = workspace.flat.function
    inputs, others = loaded.flat_inputs(), loaded.flat_check_inputs()
    assert log_operators(lambda: function(*inputs)) == workspace.taped.tape.operators
    for values in (inputs, others):
        got = run_seeded(lambda values=values: function(*values))
        expected = run_seeded(lambda values=values: loaded.module(*values))
        assert len(got) == len(expected)
        assert all(map(same_bits, got, expected))
    return workspace


def body(workspace: Workspace) -> list[str]:
    """The lines of the flat function, without those that only free memory."""
    lines = [line.strip() for line in workspace.flat.source.splitlines()]
    start = next(place for place, line in enumerate(lines) if line.startswith("def flat("))
    return [line for line in lines[start + 1 : -1] if not line.startswith("del ")]


def test_mlp_is_written_as_a_person_would(mlp: LoadedModel) -> None:
    source = check_flat(Workspace(mlp)).flat.source.splitlines()
    assert [line.strip() for line in source] == [
        "def build(torch, F, fill, constants):",
        "(c0, c1, c2, c3, ) = constants",
        "def flat(in0):",
        "v3 = F.linear(in0, c0, c1)",
        "v4 = v3.relu()",
        "del v3",
        "v7 = F.linear(v4, c2, c3)",
        "del v4",
        "return (v7, )",
        "return flat",
    ]


def test_zoo_models_go_through_bindings_only(tiny_zoo: Workspace) -> None:
    workspace = check_flat(tiny_zoo)
    # Older torch makes a call of each colon: no index slices a dimension in the middle alone.
    left = {"aten::slice.Tensor"} if torch.__version__ < "2.9" else set()
    assert set(workspace.flat.via_ops) <= left
    assert ("torch.ops" in workspace.flat.source) == bool(workspace.flat.via_ops)


def test_prepared_flat_reports_its_checks(mlp: LoadedModel) -> None:
    prepared = prepare_flat(Workspace(mlp), "python")
    assert prepared.checks.details["operators"] == 3
    assert prepared.checks.outputs.bitwise
    assert prepared.checks.second_input.bitwise
    assert prepared.preparation.details == {"via_torch_ops": {}}
    assert prepared.warnings == ()


def write_a_row(x: torch.Tensor) -> torch.Tensor:
    y = x * 1
    y[1] = x[0]
    y += 1
    return y


def make_noise(x: torch.Tensor) -> torch.Tensor:
    return x + torch.rand_like(x) + torch.randn(4) + torch.full((4,), 0.5).bernoulli()


SPELLINGS: dict[str, tuple[Function, list[str]]] = {
    "a slice with a step": (lambda x: x[::2, 1:4:2], ["v1 = in0[::2]", ", 1:4:2]"]),
    "a row from the end": (lambda x: x[-1], ["v1 = in0[-1]"]),
    "a mask as index": (lambda x: x[x > 0], ["v1 = in0 > 0", "v2 = in0[v1]"]),
    "writing a row": (
        write_a_row,
        ["v2 = in0 * 1", "v3 = in0[0]", "v4 = v2[1]", "v4 = v4.copy_(v3)", "v2 = v2.add_(1)"],
    ),
    "a number on the left": (lambda x: 2**x, ["v1 = 2 ** in0"]),
    "attributes": (lambda x: x.T.mT, ["v1 = in0.T", "v2 = v1.mT"]),
    "signs of bits": (
        lambda x: (x > 0) & ~(x > 1),
        ["v1 = in0 > 0", "v2 = in0 > 1", "v3 = ~v2", "v4 = v1 & v3"],
    ),
    "a function where a sign makes another call": (
        lambda x: torch.bitwise_and(x > 0, x < 1),
        ["v3 = v1.bitwise_and(v2)"],
    ),
    "a dtype": (lambda x: x.to(torch.float16), ["v1 = in0.to(torch.float16)"]),
    "a device": (lambda x: x.to("cpu"), ["in0.to(device=c0)"]),
    "a keyword": (lambda x: x.cumsum(1, dtype=torch.float64), ["dtype=torch.float64"]),
    "arange on a device": (
        lambda x: x + torch.arange(4, device=x.device),
        ["v1 = torch.arange(4, device=c0, pin_memory=False)", "v2 = in0 + v1"],
    ),
    "list outputs": (
        lambda x: torch.cat(x.split([1, 3], 1)[::-1], 1),
        ["(v1, v2, ) = in0.split_with_sizes([1, 3], 1)", "v3 = torch.cat([v2, v1], 1)"],
    ),
    "outputs that are not used": (lambda x: x.chunk(2, 1)[1], ["(v1, v2, ) = in0.chunk(2, 1)"]),
    "two returns": (lambda x: torch.sort(x, stable=True), ["v1, v2 = in0.sort(stable=True)"]),
    "random numbers": (make_noise, ["torch.rand_like(in0", ".bernoulli()"]),
    "dropout": (lambda x: F.dropout(x, training=True), ["v1 = torch.dropout(in0, 0.5, True)"]),
    "infinity as number": (lambda x: x + float("inf"), ["v2 = in0 + c0"]),
    "infinity as argument": (
        lambda x: x.masked_fill(x > 0, float("-inf")),
        ["v2 = in0.masked_fill(v1, c0)"],
    ),
    "a namespace": (lambda x: torch.linalg.vector_norm(x), ["v1 = torch.linalg.vector_norm(in0)"]),
    "a host read": (lambda x: x + 0 * x.sum().item(), ["v1.item()"]),
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_calls_are_spelled_with_bindings(name: str) -> None:
    function, expected = SPELLINGS[name]
    workspace = check_flat(Workspace(load_function(function)))
    lines = body(workspace)
    for text in expected:
        assert any(text in line for line in lines), lines
    assert workspace.flat.via_ops == {}


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + torch.tensor([1.0, 2.0, 3.0, 4.0]),
        lambda x: x[[2, 0]],
        lambda x: torch.tensor([1.0, 2.0, 3.0, 4.0]).mul_(x[0]) + x,
    ],
)
def test_memory_that_python_fills_is_filled_without_a_call(function: Function) -> None:
    workspace = check_flat(Workspace(load_function(function)))
    assert sum(line.startswith("fill(") for line in body(workspace)) == 1
    assert workspace.flat.via_ops == {"aten::lift_fresh": 1}


def test_constant_that_a_call_returns_is_not_rebound() -> None:
    def write_three(x: torch.Tensor) -> torch.Tensor:
        y = x * 1
        y[0] = 3
        return y

    # The number is lifted in place. Were the constant assigned to, it would be an unset local.
    lines = body(check_flat(Workspace(load_function(write_three))))
    assert "torch.ops.aten.lift_fresh.default(c0)" in lines


def test_spelling_that_passes_other_arguments_is_not_taken() -> None:
    # `x.to(device)` makes the same call, but for the dtype.
    to = torch.ops.aten.to.dtype_layout
    loaded = load_function(lambda x: to(x, dtype=torch.float64, device=torch.device("cpu")))
    assert check_flat(Workspace(loaded)).flat.via_ops == {"aten::to.dtype_layout": 1}


@pytest.fixture
def custom_operator() -> Iterator[Any]:
    with operator_library._scoped_library("ftax_test", "DEF") as scope:
        scope.define("twice(Tensor x, *, int times=2) -> Tensor")
        scope.impl("twice", lambda x, times=2: x * times, "CompositeExplicitAutograd")
        yield torch.ops.ftax_test.twice


def test_custom_operator_goes_through_torch_ops_and_is_counted(custom_operator: Any) -> None:
    loaded = load_function(lambda x: custom_operator(custom_operator(x), times=3))
    workspace = check_flat(Workspace(loaded))
    assert workspace.flat.via_ops == {"ftax_test::twice": 2}
    assert body(workspace)[:2] == [
        "v1 = torch.ops.ftax_test.twice.default(in0)",
        "v2 = torch.ops.ftax_test.twice.default(v1, times=3)",
    ]
    (warning,) = prepare_flat(workspace, "python").warnings
    assert "2 x ftax_test::twice" in warning


def test_flat_program_with_other_calls_is_refused(mlp: LoadedModel) -> None:
    workspace = Workspace(mlp)
    honest = workspace.flat.function
    workspace.flat = replace(workspace.flat, function=lambda x: (honest(x)[0].neg().neg(),))
    with pytest.raises(UnsupportedError, match=r"makes 5 operator calls that are not the tape's 3"):
        prepare_flat(workspace, "python")


def test_flat_program_with_other_outputs_is_refused(mlp: LoadedModel) -> None:
    workspace = Workspace(mlp)
    honest, wrong = workspace.flat.function, (workspace.reference[0] * 2,)
    workspace.flat = replace(workspace.flat, function=lambda x: (honest(x), wrong)[1])
    with pytest.raises(UnsupportedError, match="outputs differ"):
        prepare_flat(workspace, "python")


def test_flat_frees_what_the_tape_frees() -> None:
    loaded = load_function(lambda x: x.neg().exp().abs().sqrt(), normal(256, 256))
    function = Workspace(loaded).flat.function
    with torch.inference_mode():
        peak = _core.measure_peak_bytes(lambda: function(*loaded.args), "cpu")
    assert peak == 2 * 256 * 256 * 4
