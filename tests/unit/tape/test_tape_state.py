"""What a tape depends on beside its inputs' values: switches of torch, layouts, grad mode, and
memory that something filled without a call."""

import sys
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import library

from ftax import _core
from ftax.errors import InvalidArgumentError, UnsupportedError
from ftax.runtimes.catalogue import find_runtime
from ftax.runtimes.workspace import Workspace
from ftax.tape.tape import make_tape
from support.small_models import load_function, normal


def set_default(dtype: torch.dtype) -> Callable[[], None]:
    return lambda: torch.set_default_dtype(dtype)


def set_autocast(dtype: torch.dtype) -> Callable[[], None]:
    return lambda: torch.set_autocast_dtype("cpu", dtype)


def set_cudnn(**flags: bool) -> Callable[[], None]:
    def change() -> None:
        for name, value in flags.items():
            setattr(torch.backends.cudnn, name, value)

    return change


@pytest.fixture
def _switches_put_back():
    dtype, autocast = torch.get_default_dtype(), torch.get_autocast_dtype("cpu")
    cudnn = {name: getattr(torch.backends.cudnn, name) for name in ("benchmark", "deterministic")}
    precision = torch.get_float32_matmul_precision()
    yield
    torch.set_default_dtype(dtype)
    torch.set_autocast_dtype("cpu", autocast)
    set_cudnn(**cudnn)()
    torch.set_float32_matmul_precision(precision)


@pytest.mark.usefixtures("_switches_put_back")
@pytest.mark.parametrize(
    ("before", "change", "name"),
    [
        (set_default(torch.float32), set_default(torch.float64), "the default dtype"),
        (
            set_autocast(torch.bfloat16),
            set_autocast(torch.float16),
            "the dtype of autocast on the CPU",
        ),
        (set_cudnn(benchmark=False), set_cudnn(benchmark=True), "the switches of cuDNN"),
        (set_cudnn(deterministic=False), set_cudnn(deterministic=True), "the switches of cuDNN"),
        (
            lambda: torch.set_float32_matmul_precision("highest"),
            lambda: torch.set_float32_matmul_precision("high"),
            "the precision of fp32 products (TF32)",
        ),
    ],
)
def test_a_switch_that_the_forward_changes_is_named(before, change, name) -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        before()
        y = x + 1
        change()
        return y * 2

    before()
    with pytest.raises(UnsupportedError) as caught:
        make_tape(load_function(forward))
    assert f"its forward changes {name}" in str(caught.value)


def test_inputs_of_another_layout_are_refused_with_both_strides() -> None:
    x = normal(2, 3, 4, 4)
    tape = make_tape(load_function(lambda x: x + 1, x)).tape
    other = x.contiguous(memory_format=torch.channels_last)
    with pytest.raises(InvalidArgumentError) as caught:
        tape.bind_inputs([other])
    assert "strides [48, 1, 12, 3]" in str(caught.value)
    assert "recorded with" in str(caught.value) and "strides [48, 16, 4, 1]" in str(caught.value)


def test_strides_of_dimensions_of_one_element_do_not_matter() -> None:
    tape = make_tape(load_function(lambda x: x + 1, normal(1, 4))).tape
    other = normal(1, 4, seed=1).as_strided((1, 4), (99, 1))
    tape.bind_inputs([other])
    with torch.inference_mode():
        assert torch.equal(tape.run()[0], other + 1)


def test_no_grad_is_no_grad_inside_the_callers_inference_mode() -> None:
    seen = []

    def call() -> None:
        seen.append((torch.is_inference_mode_enabled(), torch.is_grad_enabled()))

    for mode in (_core.GradMode.no_grad, _core.GradMode.inference):
        runner = _core.PythonRunner(call, "x", device="cpu", grad_mode=mode)
        runner.run_once()
        with torch.inference_mode():
            runner.run_once()
    assert seen == [(False, False), (False, False), (True, False), (True, False)]


@pytest.mark.parametrize("name", ["tolist", "numpy", "data_ptr", "untyped_storage", "__array__"])
def test_reads_that_are_no_calls_are_listed_with_their_place(name: str) -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        getattr(x, name)()
        return x + 1

    taped = make_tape(load_function(forward))
    assert taped.checks.details["host_reads"] == [f"Tensor.{name} in the model itself"]
    assert any(f"reads 1 value on the host (Tensor.{name}" in text for text in taped.warnings)


def test_dlpack_is_a_read_too() -> None:
    taped = make_tape(load_function(lambda x: (torch.from_dlpack(x), x + 1)[1]))
    assert "Tensor.__dlpack__ in the model itself" in taped.checks.details["host_reads"]


@pytest.mark.parametrize(
    "write",
    [
        lambda x, weight: x[0].add_(1),
        lambda x, weight: x.view(-1).mul_(2),
        lambda x, weight: weight[:2].add_(0),
        lambda x, weight: weight.view(2, 2).t().mul_(1),
    ],
)
def test_writes_through_views_are_mutations(write: Callable[..., Any]) -> None:
    weight = torch.ones(4)
    loaded = load_function(lambda x: (write(x, weight), x + weight)[1])
    taped = make_tape(loaded)
    assert taped.tape.mutations
    assert any("writes into its inputs or weights" in text for text in taped.warnings)


def test_writes_into_what_the_model_made_are_none() -> None:
    taped = make_tape(load_function(lambda x: (x + 1)[0].add_(1)))
    assert taped.tape.mutations == []


class JITFunction:
    """As much of Triton as a launch needs."""

    __name__ = "doubles"

    def run(self, x: torch.Tensor, y: torch.Tensor) -> None:
        torch.from_numpy(y.numpy())[:] = 2 * x


@pytest.fixture
def triton(monkeypatch: pytest.MonkeyPatch) -> type[JITFunction]:
    module = types.ModuleType("triton.runtime.jit")
    module.JITFunction = JITFunction  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "triton.runtime.jit", module)
    return JITFunction


def test_a_triton_kernel_that_is_launched_directly_is_refused_by_name(triton) -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        y = torch.zeros_like(x)
        triton().run(x, y)
        return y + 1

    run = JITFunction.run
    with pytest.raises(UnsupportedError, match=r"Triton kernel doubles by itself.*triton_op"):
        make_tape(load_function(forward))
    assert JITFunction.run is run  # Triton is as it was
    with pytest.raises(UnsupportedError):
        find_runtime("eager").prepare(Workspace(load_function(forward)), "cpp")


def test_a_triton_kernel_inside_an_operator_is_the_operators(triton) -> None:
    @library.custom_op("ftax_test::doubled", mutates_args=())
    def doubled(x: torch.Tensor) -> torch.Tensor:
        y = torch.zeros_like(x)
        triton().run(x, y)
        return y

    taped = make_tape(load_function(lambda x: doubled(x) + 1))
    assert taped.tape.operators == ["ftax_test::doubled", "aten::add.Tensor"]


def test_an_output_that_no_call_wrote_is_refused() -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty(3)
        y.numpy()[:] = 1.0
        return y

    with pytest.raises(UnsupportedError, match="no operator call wrote its output 0"):
        make_tape(load_function(forward))
