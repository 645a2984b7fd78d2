"""A graph captured from the tape: the model's outputs in one launch, and torch unharmed when there
is nothing to capture."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from ftax import _core
from ftax.errors import InvalidArgumentError, UnsupportedError
from ftax.runtimes.candidates import check_on_both_inputs
from ftax.runtimes.catalogue import find_runtime
from ftax.runtimes.workspace import Workspace
from ftax.steps.load import load_model
from ftax.steps.loaded import LoadedModel
from ftax.steps.tensors import same_bytes
from ftax.tape.capture import capture_calls
from ftax.tape.tape import run_eager
from ftax.timing.candidate import Candidate
from support.small_models import Lambda, normal

pytestmark = pytest.mark.needs_cuda

RUNTIMES = [("cuda-graph", "python"), ("cuda-graph", "cpp"), ("launch-replay", "cpp")]
MODELS = [("bert-base", "fp32"), ("bert-base", "fp16"), ("resnet-50", "fp16"), ("gpt2", "fp16")]


def load_on_gpu(function: Callable[..., Any], *shape: int) -> LoadedModel:
    """`function` in a submodule called gate; its input has the given shape, or is (3, 4)."""
    model = nn.Sequential()
    model.add_module("gate", Lambda(function))
    return load_model(model.cuda(), inputs=normal(*(shape or (3, 4))).cuda())


def prepare(workspace: Workspace, runtime: str, host: Any = "cpp") -> Candidate:
    return find_runtime(runtime).prepare(workspace, host)


def check_that_torch_is_unharmed() -> None:
    """What a failed capture may break: streams, allocator, generator, and the next capture."""
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    assert not torch.cuda.is_current_stream_capturing()
    assert torch.cuda.get_sync_debug_mode() == 0
    torch.rand(1000, device="cuda").sum().item()
    torch.cuda.empty_cache()
    loaded = load_on_gpu(lambda x: F.dropout(x.exp(), 0.5, training=True))
    for runtime, host in RUNTIMES:
        prepare(Workspace(loaded), runtime, host)


@pytest.fixture(scope="module", params=MODELS, ids=lambda model: "-".join(model))
def tiny(request: pytest.FixtureRequest) -> Workspace:
    name, dtype = request.param
    return Workspace(load_model(name, tiny=True, dtype=dtype, device="cuda"))


@pytest.mark.parametrize(("runtime", "host"), RUNTIMES)
def test_outputs_are_eagers_bit_for_bit(runtime: str, host: str, tiny: Workspace) -> None:
    prepared = prepare(tiny, runtime, host)
    assert prepared.checks.outputs.bitwise
    assert prepared.checks.second_input.bitwise
    assert all(map(same_bytes, prepared.run(), tiny.reference))
    assert (prepared.runner.host, prepared.runner.needs_gil) == (host, host == "python")


@pytest.mark.parametrize(("runtime", "host"), RUNTIMES)
def test_runner_reads_the_models_inputs(runtime: str, host: str) -> None:
    loaded = load_on_gpu(lambda x: x.exp() * 2)
    prepared = prepare(Workspace(loaded), runtime, host)
    assert prepared.buffers is not None
    (x,) = prepared.buffers.inputs
    assert (x is loaded.flat_inputs()[0]) is (host == "cpp")  # Python copies them there
    x.copy_(normal(3, 4, seed=9))
    (output,) = prepared.run()
    assert same_bytes(loaded.flat_inputs()[0], x)
    assert same_bytes(output, run_eager(loaded.call, loaded)[0])


def test_outputs_of_a_run_survive_the_next_one() -> None:
    loaded = load_on_gpu(lambda x: x.exp())
    prepared = prepare(Workspace(loaded), "cuda-graph")
    (first,) = prepared.run()
    kept = first.clone()
    loaded.flat_inputs()[0].zero_()
    prepared.run()
    assert same_bytes(first, kept)


def test_replay_that_does_nothing_is_caught(tiny: Workspace) -> None:
    graph = tiny.graph
    graph.graph.replay()
    with pytest.raises(UnsupportedError, match="nothing is not the model: on the recorded input"):
        check_on_both_inputs(
            tiny,
            lambda inputs: graph.run(lambda: None, inputs, tiny.loaded),
            name="nothing",
        )


def test_capture_is_made_once_and_its_refusal_too() -> None:
    workspace = Workspace(load_on_gpu(lambda x: x.exp()))
    assert workspace.graph is workspace.graph
    refused = Workspace(load_on_gpu(lambda x: x.cpu().cuda()))
    errors = []
    for _ in range(2):
        with pytest.raises(UnsupportedError) as caught:
            _ = refused.graph
        errors.append(caught.value)
    assert errors[0] is errors[1]


@pytest.mark.parametrize(("runtime", "host"), RUNTIMES)
def test_host_reads_are_left_out_and_said(runtime: str, host: str) -> None:
    workspace = Workspace(load_on_gpu(lambda x: x.exp() + 0 * x.sum().item()))
    prepared = prepare(workspace, runtime, host)
    assert prepared.preparation.details["host_reads_left_out"] == 1
    assert any("leaves out 1 value" in w and "aten::item in gate" in w for w in prepared.warnings)
    assert prepared.checks.second_input.bitwise


def test_synchronise_of_the_model_itself_is_not_in_the_tape() -> None:
    def wait(x: torch.Tensor) -> torch.Tensor:
        y = x.exp()
        torch.cuda.synchronize()
        return y * 2

    assert prepare(Workspace(load_on_gpu(wait)), "cuda-graph").checks.second_input.bitwise


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + x.cpu().sum().cuda(),
        lambda x: x + torch.tensor([1.0, 2.0, 3.0, 4.0]).cuda(),
        lambda x: x + torch.tensor([1.0, 2.0, 3.0, 4.0]).to("cuda", non_blocking=True),
        lambda x: x + x[x > -10].sum(),
    ],
    ids=["to the host", "to the device", "to the device, not waiting", "size that depends on data"],
)
def test_model_that_cannot_be_captured_is_refused_with_its_place(function: Any) -> None:
    loaded = load_on_gpu(function)
    with pytest.raises(UnsupportedError, match=r"cannot capture this model: .*aten::\S+ .*gate"):
        prepare(Workspace(loaded), "cuda-graph")
    assert torch.equal(loaded.call(), function(*loaded.flat_inputs()))
    check_that_torch_is_unharmed()


def test_output_on_the_host_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="its output 1 is on cpu"):
        prepare(Workspace(load_on_gpu(lambda x: (x.exp(), torch.ones(2)))), "cuda-graph")
    check_that_torch_is_unharmed()


def test_capture_that_fails_half_way_leaves_torch_usable() -> None:
    x = torch.ones(1000, device="cuda")
    stream = torch.cuda.Stream()

    def wait_in_the_middle() -> list[torch.Tensor]:
        y = torch.rand_like(x) + x
        return [y * y.sum().item()]

    for _ in range(2):
        with pytest.raises(RuntimeError, match="captur"):
            capture_calls(wait_in_the_middle, stream)
        check_that_torch_is_unharmed()


def test_exception_of_the_captured_code_is_passed_on() -> None:
    def fail() -> list[torch.Tensor]:
        torch.ones(3, device="cuda")
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        capture_calls(fail, torch.cuda.Stream())
    check_that_torch_is_unharmed()


def test_random_numbers_are_eagers_and_go_on_only_where_torch_replays() -> None:
    workspace = Workspace(load_on_gpu(lambda x: F.dropout(x, 0.5, training=True), 64, 64))
    by_python, by_cpp = prepare(workspace, "cuda-graph", "python"), prepare(workspace, "cuda-graph")
    for prepared in (by_python, by_cpp):
        assert prepared.checks.second_input.bitwise
    assert not same_bytes(by_python.run()[0], by_python.run()[0])
    assert same_bytes(by_cpp.run()[0], by_cpp.run()[0])
    assert any("draws random numbers" in warning for warning in by_cpp.warnings)
    assert not any("draws random numbers" in warning for warning in by_python.warnings)


def test_model_that_launches_nothing_is_captured_without_a_word() -> None:
    loaded = load_on_gpu(lambda x: x.view(-1))
    for runtime, host in RUNTIMES:
        prepared = prepare(Workspace(loaded), runtime, host)
        assert same_bytes(prepared.run()[0], loaded.flat_inputs()[0].view(-1))


def test_capture_under_inference_mode_leaves_the_generator_usable_outside() -> None:
    workspace = Workspace(load_on_gpu(lambda x: F.dropout(x, 0.5, training=True)))
    assert workspace.taped
    with torch.inference_mode():
        assert workspace.graph.draws_random
    check_that_torch_is_unharmed()


# --- runners -------------------------------------------------------------------------------------


def in_stream(inner: Any, stream: torch.cuda.Stream) -> _core.StreamRunner:
    return _core.StreamRunner(inner, stream.stream_id, stream.device_index, stream.device_type)


def test_stream_runner_runs_on_its_stream_and_leaves_it() -> None:
    seen = []
    inner = _core.PythonRunner(
        lambda: seen.append((torch.cuda.current_stream(), torch.is_inference_mode_enabled())),
        "look",
        device="cuda:0",
        grad_mode=_core.GradMode.inference,
    )
    stream = torch.cuda.Stream()
    runner = in_stream(inner, stream)
    runner.run_once()
    assert seen == [(stream, True)]
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    assert (runner.name, runner.host, runner.needs_gil) == ("look", "python", True)


@pytest.mark.parametrize(("runtime", "host"), RUNTIMES)
def test_rungs_run_in_a_stream_of_their_own(runtime: str, host: str) -> None:
    workspace = Workspace(load_on_gpu(lambda x: x.exp()))
    prepared = prepare(workspace, runtime, host)
    (output,) = workspace.graph.buffers.outputs
    with torch.inference_mode():
        output.zero_()
    torch.cuda.synchronize()
    in_stream(prepared.runner, torch.cuda.Stream()).run_once()
    assert same_bytes(output, workspace.reference[0])


def test_stream_runner_needs_a_runner() -> None:
    with pytest.raises(InvalidArgumentError, match="inner runner is None"):
        in_stream(None, torch.cuda.Stream())


def test_graph_runner_needs_a_graph() -> None:
    with pytest.raises(InvalidArgumentError, match="the graph of mine is null"):
        _core.GraphRunner([0], "mine", None)


def test_runner_keeps_its_owner_alive_through_another_runner() -> None:
    class Owner:
        pass

    owner = Owner()
    held = weakref.ref(owner)
    outer = _core.DelayRunner(_core.GraphRunner([1], "never launched", owner), delay_ns=0)
    del owner
    gc.collect()
    assert held() is not None
    del outer
    gc.collect()
    assert held() is None


def test_a_graph_has_a_cublas_workspace_that_nobody_else_can_free() -> None:
    """torch keeps one for each stream, and frees all of them when it compiles graphs of its own."""
    x, y = (normal(64, 64, seed=seed).cuda().half() for seed in (1, 2))
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())  # on which x and y are made
    torch._C._cuda_clearCublasWorkspaces()
    with torch.cuda.stream(stream), torch.inference_mode():
        expected = x @ y  # now the stream has one, outside of any graph
    graph, (product,) = capture_calls(lambda: [x @ y], stream)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch._C._cuda_clearCublasWorkspaces()
    assert torch.cuda.memory_allocated() == before
    pool_bytes = sum(
        segment["total_size"]
        for segment in torch.cuda.memory_snapshot()
        if segment["segment_pool_id"] == graph.pool()
    )
    assert pool_bytes >= 1 << 20  # far more than the product: the workspace is there
    torch.cuda.empty_cache()
    with torch.inference_mode():
        product.zero_()
    graph.replay()
    torch.cuda.synchronize()
    assert same_bytes(product, expected)
