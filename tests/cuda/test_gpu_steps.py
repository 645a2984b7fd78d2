"""Steps on a GPU: the whole ladder of a decoded token and of a training step, the same work on each
rung, and state that is put back between samples."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import ftax
from ftax.ladders.receipt import Receipt
from ftax.runtimes.catalogue import find_runtime
from ftax.runtimes.workspace import Workspace
from ftax.steps.load import load_model
from ftax.steps.loaded import LoadedModel
from ftax.tape.tape import preserve_state, seed_checks
from ftax.timing.checks import Checks

pytestmark = pytest.mark.needs_cuda
PLAN = ftax.Plan(rounds=5, warmup=5, round_ms=10.0)
BELOW = ["launch-replay/cpp", "cuda-graph/cpp"]
_STEPS = 20


def measure(step: ftax.Step | LoadedModel) -> Receipt:
    return ftax.tax(step, plan=PLAN, runtimes="none", operators=False, trace="here", progress=False)


def list_rungs(receipt: Receipt) -> list[str]:
    assert not receipt.unavailable, receipt.unavailable
    return [str(rung.place) for rung in receipt.rungs]


def list_outputs(receipt: Receipt) -> set[str]:
    return {Checks.of(rung.checks).judge_outputs().words for rung in receipt.rungs}


def make_train(make_optimizer: Callable[..., torch.optim.Optimizer]) -> ftax.Step:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(32, 64), nn.LayerNorm(64), nn.GELU(), nn.Dropout(0.1), nn.Linear(64, 8)
    ).cuda()
    batch = (torch.randn(16, 32, device="cuda"), torch.randint(0, 8, (16,), device="cuda"))
    return ftax.train(
        model,
        lambda module, x, target: F.cross_entropy(module(x), target),
        make_optimizer(model.parameters()),
        batch,
    )


def make_capturable(weights):
    return torch.optim.AdamW(weights, lr=1e-3, fused=True, capturable=True)


def test_a_training_step_has_the_whole_ladder_with_the_same_kernels():
    receipt = measure(make_train(make_capturable))
    assert list_rungs(receipt) == ["eager/python", "tape-with-autograd/cpp", "eager/cpp", *BELOW]
    assert list_outputs(receipt) == {"bitwise equal"}
    assert [item.same_kernels for item in receipt.evidence[1:]] == [True] * 4
    assert sum(line.time_ns for line in receipt.lines) == pytest.approx(receipt.latency_ns)
    assert {"Python and bindings", "autograd"} <= {line.name for line in receipt.lines}


@pytest.mark.parametrize("runtime", ["eager", "launch-replay", "cuda-graph"])
def test_twenty_steps_of_each_rung_are_those_of_eager_with_dropout(runtime: str):
    loaded = load_model(make_train(make_capturable))
    workspace = Workspace(loaded)
    prepared = find_runtime(runtime).prepare(workspace, "cpp")

    def run_eager() -> None:
        with loaded.guard():
            loaded.call()

    found = []
    for run in (run_eager, prepared.run):
        with preserve_state(loaded):
            for _ in range(_STEPS):
                seed_checks()  # a graph that C++ launches draws the same numbers each time
                run()
            torch.cuda.synchronize()
            found.append([tensor.clone() for tensor in loaded.returned])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_a_step_count_on_the_host_is_said_and_does_not_wait():
    receipt = measure(make_train(lambda weights: torch.optim.AdamW(weights, lr=1e-3)))
    assert any(
        warning.startswith("timing only") for rung in receipt.rungs for warning in rung.warnings
    )
    assert "cuda-graph/cpp" in [str(rung.place) for rung in receipt.rungs]


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_decoding_has_the_whole_ladder_and_the_same_tokens(cache: str):
    loaded = load_model(
        "llama", tiny=True, step="decode", cache=cache, sequence=16, tokens=4, device="cuda"
    )
    receipt = measure(loaded)
    places = [str(rung.place) for rung in receipt.rungs]
    assert places[:2] == ["library/python", "eager/python"]
    assert places[-1] == "cuda-graph/cpp"
    assert list_outputs(receipt) <= {"bitwise equal"}


def test_a_position_on_the_device_is_put_back_before_each_sample():
    position = torch.zeros(1, dtype=torch.int64, device="cuda")
    memory = torch.zeros(4, 2, device="cuda")

    def run(x: torch.Tensor) -> torch.Tensor:
        memory.index_copy_(0, position, x)  # would run past the end at the fifth run
        position.add_(1)
        return memory.sum(0)

    receipt = measure(ftax.step(run, (torch.ones(1, 2, device="cuda"),)))
    assert "cuda-graph/cpp" in [str(rung.place) for rung in receipt.rungs]
    assert int(position) == 0


def test_a_branch_of_the_backward_pass_on_another_thread_is_recorded():
    loaded = load_model(make_train(make_capturable))
    operators = Workspace(loaded).taped.tape.operators
    assert "aten::native_layer_norm_backward" in operators
    assert operators[-1] == "aten::_fused_adamw_"


def test_each_wait_is_counted_and_has_its_line():
    def run(x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = x * 0.5
            x.sum().item()  # waits; what it read decides nothing, so that there is a graph
        return x

    receipt = measure(ftax.step(run, (torch.ones(4, device="cuda") / 4,)))
    assert [wait.count for wait in receipt.waits] == [3]
    assert receipt.waits[0].place.startswith("test_gpu_steps.py:")
    eager = receipt.evidence[0].waits
    assert eager is not None and set(eager.counts) == {3}
    graph = next(item for item in receipt.evidence if item.runtime == "cuda-graph")
    assert graph.waits is not None and set(graph.waits.counts) == {0}
