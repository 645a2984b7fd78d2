"""Capturing, as far as it shows without a GPU: what it refuses, and the tape that it starts from.

Tensors on the meta device stand for tensors on a GPU.
"""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from ftax import _core
from ftax.errors import UnavailableError, UnsupportedError
from ftax.runtimes.catalogue import find_runtime
from ftax.runtimes.graph.cuda_graph import prepare_cuda_graph, prepare_tape_without_host_reads
from ftax.runtimes.tape.capture import _moves_data
from ftax.runtimes.tape.tape import make_tape
from ftax.runtimes.workspace import Workspace
from ftax.steps.load import load_model
from ftax.steps.loaded import LoadedModel
from support.small_models import load_function, run_seeded, same_bits

HOST, NUMBER = torch.ones(2), torch.tensor(3.0)
DEVICE = torch.ones(2, device="meta")


@pytest.mark.parametrize(
    ("operator", "given", "made", "moves"),
    [
        ("aten::to.device", [DEVICE], [HOST], True),
        ("aten::to.device", [HOST], [DEVICE], True),
        ("aten::to.device", [NUMBER], [DEVICE], True),
        ("aten::to.dtype", [DEVICE], [DEVICE], False),
        ("aten::to.dtype", [HOST], [HOST], False),
        ("aten::copy_", [DEVICE, NUMBER], [DEVICE], True),
        ("aten::copy_", [DEVICE, DEVICE], [DEVICE], False),
        ("aten::add.Tensor", [DEVICE, NUMBER], [DEVICE], False),
        ("aten::index.Tensor", [DEVICE, HOST], [DEVICE], True),
        ("aten::zeros", [], [DEVICE], False),
        ("aten::item", [DEVICE], [], False),
        ("aten::to.device", [HOST[:0]], [DEVICE[:0]], False),
        ("aten::cat", [HOST[:0], DEVICE], [DEVICE], False),
    ],
)
def test_what_moves_data_between_host_and_device(
    operator: str, given: list[torch.Tensor], made: list[torch.Tensor], moves: bool
) -> None:
    assert _moves_data(operator, given, made) is moves


@pytest.mark.parametrize(
    ("runtime", "host"),
    [("cuda-graph", "python"), ("cuda-graph", "cpp"), ("launch-replay", "cpp")],
)
def test_rungs_of_a_graph_are_not_for_the_cpu(runtime: str, host: str, mlp: LoadedModel) -> None:
    spec = find_runtime(runtime)
    assert host in spec.hosts
    assert spec.find_obstacle(host=host, device="cuda:0") is None
    with pytest.raises(UnavailableError, match=f"{runtime} does not run on cpu"):
        spec.prepare(Workspace(mlp), host)


def test_launch_replay_has_no_python_host() -> None:
    assert "no python host" in str(find_runtime("launch-replay").find_obstacle(host="python"))


def test_build_without_cuda_parts_says_how_to_get_them(
    mlp: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(_core, "GraphRunner", raising=False)
    with pytest.raises(UnavailableError, match=r"without its CUDA parts.*CUDA_HOME"):
        prepare_cuda_graph(Workspace(mlp), "cpp")


# --- the tape without host reads -----------------------------------------------------------------


def read_twice(x: torch.Tensor) -> torch.Tensor:
    y = x.exp()
    if bool((y > 0).all()):
        y = y + 0 * y.sum().item()
    return y * 2


def test_steps_that_return_numbers_are_left_out_and_no_others() -> None:
    tape = make_tape(load_function(read_twice)).tape
    shorter = tape.without_host_reads()
    reads = {"aten::item", "aten::is_nonzero"}
    assert [tape.operators[index] for index in tape.host_reads] == [
        "aten::is_nonzero",
        "aten::item",
    ]
    assert shorter.operators == [name for name in tape.operators if name not in reads]
    assert shorter.host_reads == []
    assert len(tape.host_reads) == 2  # the tape itself is as it was


def test_tape_without_host_reads_gives_the_same_bits_and_frees_the_same_memory() -> None:
    loaded = load_function(read_twice)
    tape = make_tape(loaded).tape.without_host_reads()
    for inputs in (loaded.flat_inputs(), loaded.flat_check_inputs()):
        tape.bind_inputs(inputs)
        assert same_bits(run_seeded(tape.run)[0], run_seeded(lambda i=inputs: loaded.module(*i))[0])
    kept = {*tape.input_slots, *(slot for slot, _ in tape.constants)}
    assert all(tape.slot(slot) is None for slot in range(tape.slot_count) if slot not in kept)


def test_tapes_with_and_without_host_reads_have_inputs_of_their_own() -> None:
    loaded = load_function(read_twice)
    tape = make_tape(loaded).tape
    shorter = tape.without_host_reads()
    shorter.bind_inputs(loaded.flat_check_inputs())
    assert same_bits(run_seeded(tape.run)[0], run_seeded(loaded.call)[0])
    assert same_bits(run_seeded(shorter.run)[0], run_seeded(loaded.call_check)[0])


def test_mutations_keep_pointing_at_the_step_that_mutates() -> None:
    def mutate(x: torch.Tensor) -> torch.Tensor:
        y = x + 0 * x.sum().item()
        x.add_(1)
        return y * x

    tape = make_tape(load_function(mutate)).tape.without_host_reads()
    assert [tape.operators[index] for index in tape.mutations] == ["aten::add_.Tensor"]


def test_host_read_that_comes_first_is_left_out() -> None:
    model = load_function(lambda x: x + 1 if x.sum().item() < 1e9 and x[0, 0].item() < 1e9 else x)
    first = load_model(
        nn.Sequential(nn.Identity()), inputs=torch.ones(1), check_inputs=torch.full((1,), 2.0)
    )
    first.module.forward = lambda x: x.abs() if x.item() > 0 else x
    for loaded in (model, first):
        tape = make_tape(loaded).tape.without_host_reads()
        assert "aten::item" not in tape.operators
        assert same_bits(run_seeded(tape.run)[0], run_seeded(loaded.call)[0])


def test_runtime_without_host_reads_is_checked_on_both_inputs() -> None:
    workspace = Workspace(load_function(read_twice))
    prepared = prepare_tape_without_host_reads(workspace, "cpp")
    assert prepared.preparation.details == {"host_reads_left_out": 2}
    assert prepared.checks.outputs.bitwise
    assert prepared.checks.second_input.bitwise
    prepared.runner.run_once()
    assert same_bits(prepared.run()[0], workspace.reference[0])


def test_model_that_reads_nothing_has_no_such_runtime(mlp: LoadedModel) -> None:
    with pytest.raises(UnsupportedError, match="reads no value back to the host"):
        prepare_tape_without_host_reads(Workspace(mlp), "cpp")


def test_random_numbers_are_drawn_as_with_host_reads() -> None:
    def drop(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x + 0 * x.sum().item(), 0.5, training=True)

    prepared = prepare_tape_without_host_reads(Workspace(load_function(drop)), "cpp")
    assert prepared.checks.outputs.bitwise
