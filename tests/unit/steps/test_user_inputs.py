"""Modules and inputs of the user, the second input that is drawn like the first, and outputs.

Derived inputs are tested for what they keep (range, moments, entries per row, aliasing), since
their values are random.
"""

import dataclasses
import types
import warnings
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

from ftax.errors import FtaxError, InvalidArgumentError, UnsupportedError
from ftax.runtimes.workspace import Workspace
from ftax.steps.load import load_model
from ftax.steps.loaded import LoadedModel
from ftax.steps.outputs import flatten_outputs
from ftax.steps.user_inputs import derive_check_inputs, split_inputs

X = torch.arange(6.0).view(2, 3)


def frozen(module: nn.Module) -> nn.Module:
    return module.eval().requires_grad_(False)


def load_linear(**arguments: Any) -> LoadedModel:
    return load_model(frozen(nn.Linear(3, 4)), **{"inputs": X, **arguments})


def derive(*args: Any) -> tuple[tuple[Any, ...], tuple[str, ...]]:
    found = derive_check_inputs(args, {}, torch.Generator().manual_seed(0))
    return found.check_args, found.warnings


@pytest.mark.parametrize(
    ("inputs", "args", "kwargs"),
    [
        (X, (X,), {}),
        ((X, 2), (X, 2), {}),
        ([X], (X,), {}),
        ({"x": X}, (), {"x": X}),
        (((X,), {"n": 1}), (X,), {"n": 1}),
        (([X], {}), (X,), {}),
        # Two positional arguments, a list and a dict, need the explicit form.
        ((([X], {"n": 1}), {}), ([X], {"n": 1}), {}),
        ((X, {"n": 1}), (X, {"n": 1}), {}),
        ("a text", ("a text",), {}),
        (3, (3,), {}),
    ],
)
def test_inputs_split_into_arguments(inputs: Any, args: Any, kwargs: Any) -> None:
    assert split_inputs(inputs) == (args, kwargs)


@pytest.mark.parametrize("inputs", [None, {1: X}])
def test_other_forms_of_inputs_are_refused(inputs: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="pass a tensor, a tuple or list"):
        split_inputs(inputs)


def test_floats_get_fresh_values_of_the_same_moments() -> None:
    original = torch.randn(100, 100, generator=torch.Generator().manual_seed(1)) * 3 + 5
    (fresh,), notes = derive(original)
    assert notes == ()
    assert float(fresh.mean()) == pytest.approx(5, abs=0.2)
    assert float(fresh.std()) == pytest.approx(3, abs=0.2)
    assert not bool((fresh == original).any())


def test_integers_are_the_same_in_another_order() -> None:
    for shape in ((24,), (2, 12), (12, 2), (2, 3, 4)):
        original = torch.randint(9, shape, generator=torch.Generator().manual_seed(1))
        (fresh,), notes = derive(original)
        assert notes == () and not torch.equal(fresh, original)
        assert fresh.flatten().sort().values.tolist() == original.flatten().sort().values.tolist()


def test_pairs_of_indices_stay_in_their_tables() -> None:
    pairs = torch.stack((torch.randint(50, (20,)), torch.randint(3, (20,))))
    for original, rows in ((pairs, lambda item: item), (pairs.t().contiguous(), torch.t)):
        (fresh,), _ = derive(original)
        ranges = zip(rows(fresh), rows(original), strict=True)
        assert all(bool((row <= own.max()).all()) for row, own in ranges)


@pytest.mark.parametrize(
    "original",
    [
        torch.tensor([0, 3, 5, 11]),  # offsets
        torch.tensor([9, 7, 7, 2]),  # lengths
        torch.tensor([[0, 1, 4], [2, 5, 6]]),
        torch.tensor([0.0, 0.5, 4.0, 5.0]),
    ],
)
def test_what_is_sorted_stays_so_and_begins_and_ends_as_it_did(original: torch.Tensor) -> None:
    (fresh,), notes = derive(original)
    assert notes == () and not torch.equal(fresh, original)
    assert torch.equal(fresh[..., [0, -1]], original[..., [0, -1]])
    assert bool((fresh.diff(dim=-1).sign() == original.diff(dim=-1).sign()).all()) or bool(
        (fresh.diff(dim=-1) * (original[..., -1:] - original[..., :1]) >= 0).all()
    )


def test_permutations_and_rows_that_sum_to_one_stay_such() -> None:
    (order,), _ = derive(torch.tensor([4, 0, 2, 1, 3]))
    assert sorted(order.tolist()) == [0, 1, 2, 3, 4]
    original = torch.rand(3, 5, generator=torch.Generator().manual_seed(2)).softmax(-1)
    (fresh,), _ = derive(original)
    assert not torch.equal(fresh, original)
    assert bool((fresh >= 0).all()) and torch.allclose(fresh.sum(-1), torch.ones(3))


def test_symmetric_matrices_stay_positive() -> None:
    root = torch.randn(2, 4, 4, generator=torch.Generator().manual_seed(3))
    (fresh,), notes = derive(root @ root.mT + torch.eye(4))
    assert notes == () and torch.equal(fresh, fresh.mT)
    torch.linalg.cholesky(fresh)


def test_values_of_one_sign_or_in_a_range_stay_there() -> None:
    for original in (torch.rand(4, 6), -torch.rand(4, 6), torch.rand(4, 6) * 2 - 1):
        (fresh,), _ = derive(original)
        assert not torch.equal(fresh, original)
        assert bool((fresh >= original.min()).all()) and bool((fresh <= original.max()).all())


def test_largest_integer_does_not_overflow() -> None:
    original = torch.tensor([2**63 - 1, 0, 5])
    (fresh,), _ = derive(original)
    assert sorted(fresh.tolist()) == sorted(original.tolist())


def test_booleans_keep_their_count_in_each_row() -> None:
    original = torch.ones(64, 64, dtype=torch.bool).tril()
    (fresh,), _ = derive(original)
    assert fresh.sum(dim=1).tolist() == list(range(1, 65))
    assert not torch.equal(fresh, original)


@pytest.mark.parametrize(
    ("original", "reason"),
    [
        (torch.zeros(2, 2, dtype=torch.int64), "0 everywhere"),
        (torch.full((2, 2), 7), "7 everywhere"),
        (torch.tensor(-3), "-3 everywhere"),
        (torch.arange(5), "the same in each order that is sure to be valid"),
        (torch.eye(3), "the same in each order"),
        (torch.full((2,), float("-inf")), "constant and not finite"),
        (torch.empty(0), "empty"),
        (torch.eye(2).to_sparse(), "sparse"),
        (torch.randn(4, dtype=torch.complex64), "not a tensor of real numbers"),
        (torch.arange(6.0).as_strided((3, 3), (1, 1)), "elements share memory"),
    ],
)
def test_values_that_cannot_vary_stay_and_are_listed(original: Any, reason: str) -> None:
    (fresh,), notes = derive(original)
    assert fresh is original
    assert len(notes) == 2
    assert "checked on one input only" in notes[1]
    assert reason in notes[0]
    assert "argument 0" in notes[0]
    assert "check_inputs" in notes[0]


@pytest.mark.parametrize(
    "original",
    [
        torch.tensor([[7]]),
        torch.ones(6, dtype=torch.int64),
        torch.tensor(1.5),
        torch.zeros(4),
        torch.ones(4, dtype=torch.bool),
        torch.tensor([0.0, float("-inf")]),
        torch.ones(2, 1).expand(2, 3),
    ],
)
def test_what_is_constant_varies_too(original: torch.Tensor) -> None:
    found = derive_check_inputs((original,), {}, torch.Generator().manual_seed(0))
    (fresh,) = found.check_args
    assert found.warnings == ()
    assert not torch.equal(fresh, original)
    assert (fresh.dtype, fresh.shape, fresh.stride()) == (
        original.dtype, original.shape, original.stride()
    )  # fmt: skip
    if not original.is_floating_point():
        between = (fresh.long() - original.long()) * original.long().sign() <= 0
        assert bool(between.all())  # an index stays one


def test_constants_are_kept_where_they_are_asked_for() -> None:
    mask = torch.ones(2, 3, dtype=torch.int64)
    loaded = load_model(frozen(nn.Bilinear(3, 3, 1)), inputs=(X, mask.float()))
    assert loaded.pair.varied == ("argument 1 (torch.float32, shape (2, 3))",)
    steady = loaded.keep_constants()
    assert torch.equal(steady.check_args[1], mask.float())
    assert not torch.equal(steady.check_args[0], X)
    assert "is constant" in steady.warnings[-1]
    assert steady.keep_constants() is steady


def test_a_mask_that_the_model_leaves_out_is_kept_and_said() -> None:
    class Masked(nn.Module):
        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return x + 1 if bool(mask.all()) else x.masked_fill(mask == 0, 0) + 1

    loaded = load_model(Masked(), inputs=(X, torch.ones(2, 3, dtype=torch.int64)))
    assert not bool(loaded.check_args[1].all())
    workspace = Workspace(loaded)
    assert bool(workspace.loaded.check_args[1].all())
    assert "argument 1" in workspace.loaded.warnings[-1]
    assert workspace.taped.checks.second_input.bitwise


def test_check_inputs_that_are_the_inputs_check_nothing_and_say_so() -> None:
    assert "checked on one input only" in load_linear(check_inputs=X.clone()).warnings[-1]
    assert load_linear(check_inputs=X + 1).warnings == ()


def test_check_inputs_of_another_layout_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match=r"strides \[3, 1\].*memory layout"):
        load_linear(check_inputs=torch.randn(3, 2).t())


def test_script_modules_and_lazy_modules_are_refused_with_the_remedy() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated, and still around
        scripted = torch.jit.script(nn.Linear(3, 4))
    with pytest.raises(UnsupportedError, match=r"ScriptModule.*torch\.jit\.save"):
        load_model(scripted, inputs=X)
    with pytest.raises(UnsupportedError, match=r"'0' is lazy \(LazyLinear\).*call the module once"):
        load_model(nn.Sequential(nn.LazyLinear(4)), inputs=X)


def test_tensor_that_occurs_twice_still_occurs_twice() -> None:
    (first, nested), _ = derive(X, {"same": [X]})
    assert first is nested["same"][0]


def test_memory_format_and_dtype_are_kept() -> None:
    original = torch.randn(2, 3, 4, 5).to(torch.float16, memory_format=torch.channels_last)
    (fresh,), _ = derive(original)
    assert fresh.stride() == original.stride()
    assert fresh.dtype is torch.float16


def test_module_is_measured_as_it_is() -> None:
    module = frozen(nn.Linear(3, 4).to(torch.bfloat16))
    weight = module.weight.clone()
    model = load_model(module, inputs=X.to(torch.bfloat16))
    assert model.module is module
    assert torch.equal(module.weight, weight)
    assert (model.name, model.dtype, model.device, model.batch) == ("Linear", "bf16", "cpu", 2)
    assert (model.sequence, model.parameter_count, model.warnings) == (None, 16, ())
    assert model.source == "module torch.nn.modules.linear.Linear"
    assert (model.reproducible, model.recipe()) == (False, None)


def test_training_mode_and_gradients_are_switched_off_and_listed() -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.Dropout())
    model = load_model(module, inputs=X)
    assert [part.training for part in module.modules()] == [False] * 3
    assert not any(parameter.requires_grad for parameter in module.parameters())
    assert [note.split(" ", 3)[:3] for note in model.warnings] == [
        ["the", "module", "is"],
        ["2", "parameters", "require"],
    ]


def test_nested_and_keyword_inputs_reach_the_module() -> None:
    class Adds(nn.Module):
        def forward(self, pair: list[torch.Tensor], *, more: dict[str, torch.Tensor]) -> Any:
            return pair[0] + pair[1] + more["z"]

    model = load_model(Adds(), inputs=(([X, X + 1],), {"more": {"z": X + 2}}))
    assert torch.equal(model.call(), 3 * X + 3)
    assert torch.equal(model.bind()(), 3 * X + 3)
    assert [tensor[0, 0].item() for tensor in model.flat_inputs()] == [0, 1, 2]
    assert torch.equal(model.call_check(), sum(model.flat_check_inputs()))


def test_check_inputs_of_the_user_are_used() -> None:
    assert torch.equal(load_linear(check_inputs=X + 1).flat_check_inputs()[0], X + 1)


def test_order_of_keywords_does_not_matter() -> None:
    class Subtracts(nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return a - b

    model = load_model(
        Subtracts(), inputs={"a": X, "b": X + 1}, check_inputs={"b": X + 5, "a": X + 2}
    )
    assert [tensor[0, 0].item() for tensor in model.flat_check_inputs()] == [2, 5]


def test_zoo_model_takes_inputs_but_cannot_be_rebuilt() -> None:
    ids = torch.tensor([[1, 2, 3], [4, 5, 6]])
    model = load_model("bert-base", tiny=True, inputs={"input_ids": ids}, sequence=3)
    assert (model.batch, model.sequence, model.options["inputs"]) == (2, 3, "given")
    assert model.call()[0].shape == (2, 3, 32)
    assert model.recipe() is None


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex64])
def test_modules_of_other_dtypes_are_refused(dtype: torch.dtype) -> None:
    module = frozen(nn.Linear(3, 4, dtype=dtype))
    with pytest.raises(UnsupportedError, match=rf"in {dtype}.*fp32, fp16, bf16"):
        load_model(module, inputs=X.to(dtype))


META = torch.zeros(2, 3, device="meta")
WRONG: list[tuple[dict[str, Any], type[FtaxError], str]] = [
    ({"inputs": None}, InvalidArgumentError, r"Linear is not in the zoo.*inputs=torch.randn"),
    ({"inputs": (1, 2)}, InvalidArgumentError, r"inputs has no tensor"),
    ({"inputs": META}, InvalidArgumentError, r"argument 0 .*on meta.*\.to\('cpu'\)"),
    ({"inputs": (X, {"m": META})}, InvalidArgumentError, r"argument 1\['m'\].*on meta"),
    ({"dtype": "fp16"}, InvalidArgumentError, r"'fp16', but the module is in 'fp32'"),
    ({"batch": 5}, InvalidArgumentError, r"batch is 5.*\(2, 3\)"),
    ({"sequence": 7}, InvalidArgumentError, r"sequence is 7.*\(2, 3\)"),
    ({"tiny": True}, InvalidArgumentError, r"tiny is True.*already built"),
    ({"attention": "eager"}, InvalidArgumentError, r"attention is 'eager'.*already built"),
    ({"check_inputs": (X, X)}, InvalidArgumentError, r"another structure"),
    ({"check_inputs": X[:1]}, InvalidArgumentError, r"\(1, 3\).*inputs has \(2, 3\)"),
    ({"check_inputs": X.double()}, InvalidArgumentError, r"float64.*float32"),
    ({"inputs": (X, 1), "check_inputs": (X, 2)}, InvalidArgumentError, r"only tensors may"),
    ({"inputs": (X, 1), "check_inputs": (X, X)}, InvalidArgumentError, r"a Tensor at 1"),
]


@pytest.mark.parametrize(("arguments", "error", "message"), WRONG)
def test_what_does_not_fit_the_module_is_named(
    arguments: dict[str, Any], error: type[FtaxError], message: str
) -> None:
    with pytest.raises(error, match=message):
        load_linear(**arguments)


def test_module_without_weights_or_on_two_devices_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="meta device"):
        load_model(nn.Linear(3, 4, device="meta"), inputs=META)
    both = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 4, device="meta"))
    with pytest.raises(UnsupportedError, match="spread over cpu, meta"):
        load_model(both, inputs=X)


def test_device_of_the_module_must_be_the_one_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(InvalidArgumentError, match=r"'cuda:0', but the module is on cpu"):
        load_linear(device="cuda:0")


def test_module_without_tensors_takes_device_and_dtype_from_its_input() -> None:
    model = load_model(nn.ReLU().eval(), inputs=X.half())
    assert (model.dtype, model.device, model.parameter_count) == ("fp16", "cpu", 0)


class Pair(NamedTuple):
    first: torch.Tensor
    second: torch.Tensor | None


@dataclasses.dataclass
class Result:
    loss: float
    states: list[torch.Tensor]
    name: str = "x"


def scalars(output: Any) -> list[float]:
    return [float(tensor) for tensor in flatten_outputs(output)]


A, B, C = (torch.tensor(float(value)) for value in (1, 2, 3))


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (A, [1]),
        ((A, None, [B, "text", 3]), [1, 2]),
        ({"b": B, "a": {"n": A}}, [2, 1]),
        (Pair(first=C, second=None), [3]),
        (Result(loss=0.5, states=[B, A]), [2, 1]),
        (types.SimpleNamespace(layers=[types.SimpleNamespace(keys=A, values=B, size=8)]), [1, 2]),
        ((A, A), [1, 1]),
    ],
)
def test_tensors_of_outputs_come_in_the_order_of_their_containers(
    output: Any, expected: list[float]
) -> None:
    assert scalars(output) == expected


def test_output_that_contains_itself_ends() -> None:
    loop: dict[str, Any] = {"a": A}
    loop["self"] = loop
    assert scalars(loop) == [1]


@pytest.mark.parametrize("output", [None, 3, (), {"a": "text"}, torch.float32])
def test_output_without_tensors_is_refused(output: Any) -> None:
    with pytest.raises(UnsupportedError, match=r"it returns no tensor, .*: return"):
        flatten_outputs(output)


@pytest.mark.parametrize("opaque", [nn.Linear(1, 1), (x for x in [A]), {1.0}, len, lambda: A])
def test_opaque_part_of_an_output_is_refused_by_type_and_place(opaque: Any) -> None:
    with pytest.raises(UnsupportedError, match=rf"{type(opaque).__name__} at output\['x'\]\[1\]"):
        flatten_outputs({"x": (A, opaque)})
