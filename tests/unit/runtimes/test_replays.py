"""A replay is believed only if it computes the outputs, from the inputs, and touches nothing else.

The replays here are functions on the CPU that work on fixed memory, as a graph does on a GPU.
"""

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch

import ftax
from ftax import _core
from ftax.errors import UnsupportedError
from ftax.runtimes.candidates import check_on_both_inputs
from ftax.runtimes.cuda_graph import check_graph, drive_graph
from ftax.runtimes.workspace import Workspace
from ftax.steps.load import load_model
from ftax.steps.loaded import LoadedModel
from ftax.steps.outputs import flatten_outputs
from ftax.tape.capture import CapturedGraph
from ftax.timing.candidate import Buffers
from ftax.timing.checks import Checks
from support.small_models import load_function, normal

Replay = Callable[[LoadedModel, Buffers], None]


def replay_honestly(loaded: LoadedModel, buffers: Buffers) -> None:
    for buffer, value in zip(buffers.outputs, [loaded.call()], strict=True):
        buffer.copy_(value)


def do_nothing(loaded: LoadedModel, buffers: Buffers) -> None:
    pass


def replay_a_baked_answer(loaded: LoadedModel, buffers: Buffers) -> None:
    buffers.outputs[0].copy_(normal(2, 4) @ loaded.module.weight.T)


def replay_and_spoil_a_weight(loaded: LoadedModel, buffers: Buffers) -> None:
    replay_honestly(loaded, buffers)
    loaded.module.weight[0, 0] += 1


def replay_and_spoil_an_input(loaded: LoadedModel, buffers: Buffers) -> None:
    replay_honestly(loaded, buffers)
    buffers.inputs[0].zero_()


@pytest.fixture
def linear() -> LoadedModel:
    """One linear layer without bias; input (2, 4)."""
    return load_model(torch.nn.Linear(4, 3, bias=False), inputs=normal(2, 4))


def check(loaded: LoadedModel, replay: Replay, mutated: bool = False) -> Checks:
    workspace = Workspace(loaded)
    buffers = Buffers(
        inputs=tuple(loaded.flat_inputs()),
        outputs=tuple(
            tensor.clone() for tensor in workspace.reference
        ),  # right, until something poisons it
        constants=tuple(loaded.module.parameters()),
        mutated=mutated,
    )
    return check_on_both_inputs(
        workspace,
        lambda inputs: buffers.run(lambda: replay(loaded, buffers), inputs),
        name="the replay",
    )


def test_replay_that_computes_the_model_passes_on_both_inputs(linear: LoadedModel) -> None:
    checks = check(linear, replay_honestly)
    assert checks.outputs.bitwise and checks.second_input.bitwise


def test_replay_that_does_nothing_is_caught(linear: LoadedModel) -> None:
    with pytest.raises(UnsupportedError, match="the replay is not the model: on the recorded"):
        check(linear, do_nothing)


def test_replay_that_ignores_its_inputs_is_caught_by_the_second(linear: LoadedModel) -> None:
    assert torch.equal(linear.flat_inputs()[0], normal(2, 4))
    with pytest.raises(UnsupportedError, match="on a second input"):
        check(linear, replay_a_baked_answer)


@pytest.mark.parametrize("replay", [replay_and_spoil_a_weight, replay_and_spoil_an_input])
def test_replay_that_writes_where_it_should_read_is_caught(
    linear: LoadedModel, replay: Replay
) -> None:
    with pytest.raises(UnsupportedError, match="writes into the model's weights, buffers or inp"):
        check(linear, replay)


def test_model_that_writes_into_its_input_may(linear: LoadedModel) -> None:
    assert check(linear, replay_and_spoil_an_input, mutated=True).judge_outputs().equal


def test_inputs_and_weights_are_as_before_the_checks(linear: LoadedModel) -> None:
    tensors = [*linear.flat_inputs(), *linear.flat_check_inputs(), *linear.module.parameters()]
    before = [tensor.clone() for tensor in tensors]
    check(linear, replay_honestly)
    assert all(map(torch.equal, tensors, before))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int32])
def test_poison_is_nan_or_minus_one_in_every_dtype(dtype: torch.dtype) -> None:
    output = torch.ones(3, dtype=dtype)
    buffers = Buffers(inputs=(), outputs=(output,), constants=())
    buffers.run(lambda: None, [])
    assert bool(torch.isnan(output).all()) if dtype.is_floating_point else output.eq(-1).all()


def test_poison_reaches_all_of_an_expanded_output() -> None:
    output = torch.ones(3, 1).expand(3, 4)
    Buffers(inputs=(), outputs=(output,), constants=()).run(lambda: None, [])
    assert bool(torch.isnan(output).all())


def test_output_that_is_an_input_or_a_weight_is_not_poisoned() -> None:
    x, weight = torch.ones(3), torch.ones(4)
    buffers = Buffers(inputs=(x,), outputs=(x.view(3, 1), weight[:2]), constants=(weight,))
    buffers.run(lambda: None, [torch.full((3,), 2.0)])
    assert torch.equal(x, torch.full((3,), 2.0))
    assert torch.equal(weight, torch.ones(4))


def test_checks_are_seeded_as_eager_was() -> None:
    loaded = load_function(lambda x: torch.nn.functional.dropout(x, 0.5, training=True))
    checks = check_on_both_inputs(
        Workspace(loaded),
        lambda inputs: [loaded.module(*inputs)],
        name="the replay",
    )
    assert checks.outputs.bitwise and checks.second_input.bitwise


def test_the_replay_that_sets_random_numbers_trains_nothing():
    """A graph that draws is replayed once more, through torch, before it is looked at."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = torch.randn(8, 4)
    loaded = load_model(
        ftax.train(model, lambda module, x: module(x).square().mean(), optimizer, batch)
    )
    workspace = Workspace(loaded)
    outputs = tuple(tensor.clone() for tensor in workspace.reference)

    def replay() -> None:
        with loaded.guard():
            made = flatten_outputs(loaded.call())
        with torch.inference_mode():
            for output, now in zip(outputs, made, strict=True):
                output.copy_(now)

    captured = CapturedGraph(
        pieces=(SimpleNamespace(replay=replay),),  # type: ignore[arg-type]
        owner=None,
        buffers=Buffers(inputs=tuple(loaded.flat_inputs()), outputs=outputs, constants=()),
        draws_random=True,
        host_reads=(),
    )
    checks = check_on_both_inputs(
        workspace, lambda given: captured.run(replay, given, loaded), name="a graph"
    )
    assert checks.judge_outputs().words == "bitwise equal"


def drive_from_python(linear: LoadedModel, replay: Replay) -> tuple[_core.Runner, CapturedGraph]:
    """As a request from Python is made of a graph, which here runs on the CPU."""
    workspace = Workspace(linear)
    buffers = Buffers(
        inputs=tuple(linear.flat_inputs()),
        outputs=tuple(tensor.clone() for tensor in workspace.reference),
        constants=tuple(linear.module.parameters()),
    )
    captured = CapturedGraph(
        pieces=(SimpleNamespace(replay=lambda: replay(linear, buffers)),),  # type: ignore[arg-type]
        owner=None,
        buffers=buffers,
        draws_random=False,
        host_reads=(),
    )
    return drive_graph(workspace, captured, "python")


def test_a_request_from_python_brings_its_inputs_to_the_graph(linear: LoadedModel) -> None:
    runner, captured = drive_from_python(linear, replay_honestly)
    (x,), (memory,) = captured.buffers.inputs, linear.flat_inputs()
    assert x is not memory and torch.equal(x, memory)
    x.copy_(normal(2, 4, seed=5))
    runner.run_once()
    assert torch.equal(captured.buffers.outputs[0], linear.module(x))
    assert torch.equal(memory, x)
    linear.flat_inputs()[0].copy_(normal(2, 4))
    checks = check_graph(Workspace(linear), captured, runner, "cuda-graph")
    assert checks.outputs.bitwise and checks.second_input.bitwise
    runner.run_once()
    assert torch.equal(memory, normal(2, 4))  # others read it too


def test_a_graph_that_python_drives_may_not_write_where_it_reads(linear: LoadedModel) -> None:
    runner, captured = drive_from_python(linear, replay_and_spoil_an_input)
    with pytest.raises(UnsupportedError, match="writes into the model's weights, buffers or inp"):
        captured.run(runner.run_once, linear.flat_check_inputs(), linear)
