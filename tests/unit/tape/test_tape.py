"""What a tape replays: the very calls, on any input, with the model's weights and no more memory.

Refusals and warnings are in test_tape_checks.py.
"""

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from ftax import _core
from ftax.errors import InvalidArgumentError, RunnerError
from ftax.runtimes.workspace import Workspace
from ftax.steps.load import load_model
from ftax.steps.loaded import LoadedModel
from ftax.tape.tape import make_tape
from support.small_models import load_function, log_operators, normal, run_seeded, same_bits


def fill_partly(x: torch.Tensor) -> torch.Tensor:
    rows = torch.empty(3, 4)
    rows[0] = x[2]
    rows[1:] = x[:2]
    return rows * 2


def fill_through_numpy(x: torch.Tensor) -> torch.Tensor:
    row = torch.empty(4)
    row.numpy()[:] = 5.0
    return x + row.view(1, 4)


def change_in_place(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y.add_(1)
    y[0] = 3
    y += x
    return y


def change_a_filled_tensor(x: torch.Tensor) -> torch.Tensor:
    return torch.tensor([1.0, 2.0, 3.0, 4.0]).mul_(x[0]) + x


class Twice(torch.autograd.Function):
    """Operators inside a function of autograd: a model may be one."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2


FUNCTIONS: dict[str, Callable[[torch.Tensor], Any]] = {
    "torch.tensor": lambda x: x + torch.tensor([1.0, 2.0, 3.0, 4.0]),
    "torch.tensor of a number": lambda x: x + torch.tensor(3),
    "torch.tensor that is changed": change_a_filled_tensor,
    "torch.as_tensor": lambda x: torch.as_tensor([[1.0, 2.0, 3.0]]) @ x,
    "torch.full and arange": lambda x: x + torch.full((4,), 2.5) + torch.arange(4),
    "memory that numpy fills": fill_through_numpy,
    "memory that indexing fills": fill_partly,
    "in place": change_in_place,
    "split": lambda x: torch.cat([part * 2 for part in x.split(2, dim=1)]),
    "chunk": lambda x: x.chunk(2, 1)[1] + 1,
    "unbind": lambda x: torch.stack(x.unbind(0)[::-1]),
    "an index of numbers": lambda x: x[[2, 0]],
    "an index after a colon": lambda x: x[:, torch.tensor([3, 1])],
    "an index that is a mask": lambda x: x[x > 0].sum(),
    "writing through a mask": lambda x: (x * 1).masked_fill_(x > 0, 0.5),
    "a mask of minus infinity": lambda x: x.masked_fill(x > 0, float("-inf")),
    "views": lambda x: x[::2, 1:4:2].transpose(0, 1).unsqueeze(0).expand(3, 2, 2),
    "numbers on the left": lambda x: 1 - x + 2 / x + 2**x,
    "dtypes": lambda x: x.to(torch.float16).double(),
    "random numbers": lambda x: x + torch.rand_like(x) + torch.randn(4),
    "its own input": lambda x: (x, x * 1),
    "one tensor twice": lambda x: [x.exp()] * 2,
    "a function of autograd": lambda x: Twice.apply(x) + 1,
    "several returns": lambda x: torch.sort(x, dim=1, descending=True),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_replay_gives_the_bits_of_eager_on_both_inputs(name: str) -> None:
    loaded = load_function(FUNCTIONS[name])
    tape = make_tape(loaded).tape
    for inputs in (loaded.flat_check_inputs(), loaded.flat_inputs()):
        expected = run_seeded(lambda inputs=inputs: loaded.module(*inputs))
        tape.bind_inputs(inputs)
        replayed = run_seeded(tape.run)
        assert len(replayed) == len(expected)
        assert all(map(same_bits, replayed, expected))


def test_tape_holds_the_calls_of_the_model_in_order(mlp: LoadedModel) -> None:
    tape = make_tape(mlp).tape
    assert tape.operators == ["aten::linear", "aten::relu", "aten::linear"]
    assert len(tape) == 3
    assert [call["module"] for call in tape.calls] == ["first", "between", "second"]


def test_calls_of_the_outermost_forward_have_an_empty_module_path() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Tanh()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x + 1).neg()

    calls = make_tape(load_model(Block(), inputs=normal(3, 4))).tape.calls
    assert [(call["operator"], call["module"]) for call in calls] == [
        ("aten::add.Tensor", ""),
        ("aten::linear", "inner.0"),
        ("aten::tanh", "inner.1.0"),
        ("aten::neg", ""),
    ]


def test_zoo_models_are_taped_as_a_dispatch_mode_sees_them(tiny_zoo: Workspace) -> None:
    loaded, taped = tiny_zoo.loaded, tiny_zoo.taped
    assert taped.tape.visible_operators == log_operators(loaded.call)
    taped.tape.bind_inputs(loaded.flat_check_inputs())
    replayed, expected = run_seeded(taped.tape.run), run_seeded(loaded.call_check)
    assert len(replayed) == len(expected)
    assert all(map(same_bits, replayed, expected))
    assert taped.checks.details["operators"] == len(taped.tape.operators) > 100
    assert taped.checks.details["peak_memory_ratio"] <= 1.05


def test_memory_that_python_fills_becomes_a_step() -> None:
    tape = make_tape(load_function(lambda x: x + torch.tensor([1.0, 2.0, 3.0, 4.0]))).tape
    fills = [call["fill"] for call in tape.calls if call["fill"] is not None]
    assert [fill.tolist() for fill in fills] == [[1.0, 2.0, 3.0, 4.0]]
    # A TorchDispatchMode does not see how torch.tensor comes by its memory; a tape repeats it.
    assert tape.visible_operators == ["aten::lift_fresh", "aten::detach_", "aten::add.Tensor"]
    assert tape.operators[0] == "aten::empty.memory_format"


def test_memory_that_indexing_fills_is_computed_and_not_baked() -> None:
    tape = make_tape(load_function(fill_partly)).tape
    assert all(call["fill"] is None for call in tape.calls)


def test_nested_outputs_come_back_in_order(nest: LoadedModel) -> None:
    (x,) = nest.args
    outputs = make_tape(nest).tape.run()
    expected = [x + x, x.neg(), x.exp(), x.abs(), x]
    assert len(outputs) == 5
    assert all(map(same_bits, outputs, expected))


def test_dropout_draws_what_eager_draws() -> None:
    loaded = load_function(lambda x: F.dropout(x, 0.5, training=True), normal(64, 64))
    tape = make_tape(loaded).tape
    first, second = run_seeded(tape.run, seed=1), run_seeded(tape.run, seed=2)
    assert same_bits(first[0], run_seeded(loaded.call, seed=1)[0])
    assert not same_bits(first[0], second[0])


def test_weights_are_shared_and_not_copied(mlp: LoadedModel) -> None:
    tape = make_tape(mlp).tape
    weights = {tensor.data_ptr() for tensor in mlp.module.parameters()}
    assert {tensor.data_ptr() for _, tensor in tape.constants} == weights
    before = tape.run()[0]
    mlp.module.second.weight.mul_(2.0)
    after = tape.run()[0]
    assert same_bits(after, run_seeded(mlp.call)[0])
    assert not same_bits(after, before)


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ([], ["has 1 inputs", "0 were given"]),
        ([torch.ones(2, 4), torch.ones(2, 4)], ["2 were given"]),
        ([torch.ones(2, 5)], ["input 0", "[2, 5]", "[2, 4]"]),
        ([torch.ones(2, 4, dtype=torch.float64)], ["input 0", "Double", "Float"]),
        ([torch.ones(2, 4, device="meta")], ["input 0", "on meta", "on cpu"]),
    ],
)
def test_inputs_that_do_not_fit_are_refused(
    mlp: LoadedModel, inputs: list[torch.Tensor], words: list[str]
) -> None:
    tape = make_tape(mlp).tape
    with pytest.raises(InvalidArgumentError) as caught:
        tape.bind_inputs(inputs)
    for word in words:
        assert word in str(caught.value)


def test_replay_needs_no_more_memory_than_eager() -> None:
    loaded = load_function(lambda x: x.neg().exp().abs().sqrt(), normal(256, 256))
    tape = make_tape(loaded).tape
    with torch.inference_mode():
        replayed = _core.measure_peak_bytes(tape.run, "cpu")
    assert replayed == 2 * 256 * 256 * 4  # an operator's argument and its result


def test_nothing_lives_on_after_a_run(mlp: LoadedModel) -> None:
    tape = make_tape(mlp).tape
    # A tensor that C++ still holds keeps its Python object, so the reference shows who holds it.
    with torch.inference_mode():
        for index in range(len(tape)):
            tape.run_call(index)
    held = weakref.ref(tape.outputs()[0])
    assert held() is not None
    tape.release_outputs()
    assert held() is None
    outputs = tape.run()
    held = weakref.ref(outputs[0])
    del outputs
    assert held() is None
    kept = {*tape.input_slots, *(slot for slot, _ in tape.constants)}
    empty = [slot for slot in range(tape.slot_count) if tape.slot(slot) is None]
    assert set(empty) == set(range(tape.slot_count)) - kept
    assert len(empty) == 3


def test_runner_leaves_no_output_behind(mlp: LoadedModel) -> None:
    tape = make_tape(mlp).tape
    runner = _core.TapeRunner(tape, "tape", device="cpu", grad_mode=_core.GradMode.inference)
    runner.run_once()
    assert tape.slot(tape.output_slots[0]) is None
    with pytest.raises(InvalidArgumentError, match="run it first"):
        tape.outputs()


def test_steps_in_order_are_a_run(mlp: LoadedModel) -> None:
    tape = make_tape(mlp).tape
    with torch.inference_mode():
        for index in range(len(tape)):
            tape.run_call(index)
    assert same_bits(tape.outputs()[0], run_seeded(mlp.call)[0])
    with pytest.raises(InvalidArgumentError, match="3 calls; there is no call 3"):
        tape.run_call(3)


def test_profile_has_a_cost_for_each_step(mlp: LoadedModel) -> None:
    costs = make_tape(mlp).tape.profile(5)
    assert len(costs) == 3
    for cost in costs:
        assert cost.build_ns >= 0
        assert cost.call_ns > 0
        assert cost.release_ns >= 0


@pytest.mark.parametrize("repetitions", [0, -1])
def test_profile_refuses_no_repetitions(mlp: LoadedModel, repetitions: int) -> None:
    with pytest.raises(InvalidArgumentError, match=f"repetitions is {repetitions}"):
        make_tape(mlp).tape.profile(repetitions)


@pytest.mark.parametrize("method", ["run", "profile"])
def test_failing_operator_is_named_and_the_tape_recovers(method: str) -> None:
    model = nn.Sequential()
    model.add_module("table", nn.Embedding(5, 2))
    loaded = load_model(model, inputs=torch.tensor([0, 4]), check_inputs=torch.tensor([1, 2]))
    tape = make_tape(loaded).tape
    tape.bind_inputs([torch.tensor([0, 5])])
    with pytest.raises(RunnerError, match=r"aten::embedding of module table.*out of range"):
        tape.run() if method == "run" else tape.profile(1)
    tape.bind_inputs(loaded.flat_inputs())
    assert same_bits(run_seeded(tape.run)[0], run_seeded(loaded.call)[0])
