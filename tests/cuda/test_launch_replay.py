"""Launch replay: what is read from a graph, and that issuing it one by one computes the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from ftax import _core
from ftax.errors import InvalidArgumentError, UnsupportedError
from ftax.runtimes.cuda_graph import prepare_launch_replay
from ftax.runtimes.workspace import Workspace
from ftax.steps.load import load_model
from ftax.tape.capture import capture_calls
from support.small_models import Lambda, normal

pytestmark = pytest.mark.needs_cuda

CARVEOUT = "preferred shared-memory carve-out"


@pytest.fixture(scope="module")
def bert() -> Workspace:
    return Workspace(load_model("bert-base", tiny=True, dtype="fp16", device="cuda"))


def load_function(function: Any, *shape: int) -> Workspace:
    return Workspace(load_model(Lambda(function).cuda(), inputs=normal(*shape).cuda()))


def warm_up_and_capture(
    run: Callable[[], list[torch.Tensor]], stream: torch.cuda.Stream
) -> tuple[torch.cuda.CUDAGraph, list[torch.Tensor]]:
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        run()
    return capture_calls(run, stream)


def make_runner(workspace: Workspace, **options: Any) -> _core.LaunchReplayRunner:
    graph = workspace.graph
    return _core.LaunchReplayRunner(graph.graph.raw_cuda_graph(), "replay", graph, **options)


def test_kernels_are_described(bert: Workspace) -> None:
    runner = make_runner(bert)
    kernels = [node for node in runner.nodes if node["type"] == "kernel"]
    assert runner.launches == len(runner.nodes)
    assert len(kernels) > 100  # twelve layers
    for kernel in kernels:
        assert kernel["function"]
        assert min(*kernel["grid"], *kernel["block"]) >= 1
        assert kernel["dynamic_shared_bytes"] >= 0
    assert any("layer_norm" in kernel["function"] for kernel in kernels)


def test_preparing_counts_launches_and_name_attributes(bert: Workspace) -> None:
    launches = prepare_launch_replay(bert, "cpp").preparation.launches
    assert launches.is_chain is True
    assert launches.lost_programmatic_edges == 0
    assert sum(launches.types.values()) == launches.count
    assert CARVEOUT not in launches.attributes


def test_unset_carveout_is_not_passed_unless_asked_for(bert: Workspace) -> None:
    plain, forced = make_runner(bert).nodes, make_runner(bert, carveout="always").nodes
    for left, right in zip(plain, forced, strict=True):
        if left["type"] != "kernel":
            continue
        assert CARVEOUT not in left["attributes"]
        assert right["attributes"] == {**left["attributes"], CARVEOUT: "0"}


def test_launches_with_every_attribute_forced_still_compute_the_model(bert: Workspace) -> None:
    runner = make_runner(bert, carveout="always")
    with torch.inference_mode():
        inputs = [x.clone() for x in bert.loaded.flat_inputs()]
        outputs = bert.graph.run(runner.run_once, inputs, bert.loaded)
    assert all(map(torch.equal, outputs, bert.reference))


def test_carveout_is_one_of_two_words(bert: Workspace) -> None:
    with pytest.raises(InvalidArgumentError, match="carveout is 'maybe'"):
        make_runner(bert, carveout="maybe")


def test_copies_and_memsets_are_replayed() -> None:
    workspace = load_function(lambda x: (x.clone(), x.sum()), 2048, 2048)
    prepared = prepare_launch_replay(workspace, "cpp")
    copies = [node for node in prepared.runner.nodes if node["type"] == "memcpy"]
    assert [copy["bytes"] for copy in copies] == [2048 * 2048 * 4]
    # A sum over all of a large tensor counts finished blocks in memory that it zeroes first.
    assert prepared.preparation.launches.types["memset"] >= 1
    assert prepared.checks.second_input.bitwise


def test_order_of_a_graph_that_forks_is_one_that_it_allows() -> None:
    x = torch.ones(1000, device="cuda")
    stream, side = torch.cuda.Stream(), torch.cuda.Stream()

    def fork() -> list[torch.Tensor]:
        y = x * 2
        side.wait_stream(stream)
        with torch.cuda.stream(side):
            left = y + 1
        right = y * 3
        stream.wait_stream(side)
        return [left * right]

    graph, (output,) = warm_up_and_capture(fork, stream)
    runner = _core.LaunchReplayRunner(graph.raw_cuda_graph(), "fork", graph)
    assert not runner.is_chain
    assert runner.launches == 4
    output.untyped_storage().fill_(255)
    runner.run_once()
    assert torch.equal(output, torch.full_like(x, 18.0))


def test_node_that_cannot_be_issued_is_named() -> None:
    x = torch.ones(10, device="cuda")
    event = torch.cuda.Event(external=True)

    def record() -> list[torch.Tensor]:
        y = x * 2
        event.record()
        return [y]

    graph, _ = warm_up_and_capture(record, torch.cuda.Stream())
    with pytest.raises(UnsupportedError, match=r"the record of an event.*use cuda-graph"):
        _core.LaunchReplayRunner(graph.raw_cuda_graph(), "events", graph)


def test_runner_keeps_alive_what_its_launches_need() -> None:
    def make() -> tuple[_core.LaunchReplayRunner, torch.Tensor]:
        x = torch.ones(1000, device="cuda")
        graph, (output,) = warm_up_and_capture(lambda: [x * 2 + 1], torch.cuda.Stream())
        return _core.LaunchReplayRunner(graph.raw_cuda_graph(), "kept", (graph, x)), output

    runner, output = make()
    torch.full((1000,), 7.0, device="cuda")  # would take the place of x if it were free
    with torch.inference_mode():
        output.zero_()
    runner.run_once()
    assert torch.equal(output, torch.full_like(output, 3.0))
