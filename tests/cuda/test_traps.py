"""Faults of measurements on a GPU that give no error: each test takes a guard away and sees the
damage, or makes the damage and sees it caught. docs/trust.md lists them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import ftax
from ftax import _core
from ftax.errors import UnsupportedError
from ftax.instruments.gate import measure_gate
from ftax.instruments.trace.integrity import judge
from ftax.instruments.trace.kernel_set import KernelSet, compare_durations, compare_kernel_sets
from ftax.instruments.trace.records import Trace
from ftax.instruments.trace.tracer import trace_prepared
from ftax.ladders.evidence import RungEvidence, compare_work
from ftax.runtimes.candidates import check_on_both_inputs, drive_python
from ftax.runtimes.catalogue import find_runtime
from ftax.runtimes.workspace import Workspace
from ftax.steps.load import load_model
from ftax.steps.outputs import flatten_outputs
from ftax.steps.tensors import same_bytes
from ftax.tape.capture import capture_calls
from ftax.timing.candidate import Candidate
from ftax.timing.plan import Plan
from support.small_models import Lambda, normal

pytestmark = pytest.mark.needs_cuda

CARVEOUT = "preferred shared-memory carve-out"
QUICK = Plan(rounds=3, round_ms=2.0)
EAGER, LAUNCHES, GRAPH = ("eager", "python"), ("launch-replay", "cpp"), ("cuda-graph", "cpp")
ITERATIONS = 5


def prepare(workspace: Workspace, place: tuple[str, str]) -> Candidate:
    return find_runtime(place[0]).prepare(workspace, place[1])  # type: ignore[arg-type]


def trace_it(workspace: Workspace, prepared: Candidate) -> Trace:
    return trace_prepared(workspace.loaded, prepared, iterations=ITERATIONS)


def load_on_gpu(module: nn.Module, *shape: int) -> Workspace:
    return Workspace(load_model(module.cuda(), inputs=normal(*shape).cuda()))


@pytest.fixture(scope="module")
def bert() -> Workspace:
    return Workspace(load_model("bert-base", tiny=True, dtype="fp16", device="cuda"))


@pytest.fixture(scope="module")
def traces(bert: Workspace) -> dict[tuple[str, str], Trace]:
    found = {place: trace_it(bert, prepare(bert, place)) for place in (EAGER, LAUNCHES, GRAPH)}
    assert [judge(trace).describe() for trace in found.values()] == ["reliable"] * 3
    return found


# --- the device's clock, records and kernels ---------------------------------------------------


def scale_times(trace: Trace, ratio: float, origin_ns: int) -> Trace:
    def move(items: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(
            replace(
                item,
                start_ns=origin_ns + round((item.start_ns - origin_ns) * ratio),
                end_ns=origin_ns + round((item.end_ns - origin_ns) * ratio),
            )
            for item in items
        )

    return replace(
        trace,
        kernels=move(trace.kernels),
        memcpys=move(trace.memcpys),
        memsets=move(trace.memsets),
    )


@pytest.mark.parametrize("ratio", [2.1, 0.5])
@pytest.mark.parametrize("origin", ["boot", "the first iteration"])
@pytest.mark.parametrize("place", [EAGER, GRAPH], ids="/".join)
def test_device_times_in_ticks_of_another_clock_are_refused(
    place: tuple[str, str], origin: str, ratio: float, traces: dict[tuple[str, str], Trace]
) -> None:
    trace = traces[place]
    origin_ns = 0 if origin == "boot" else trace.iterations[0].begin_ns
    assert judge(scale_times(trace, 1.0, origin_ns)).ok
    assert not judge(scale_times(trace, ratio, origin_ns)).ok


@pytest.mark.parametrize("place", [EAGER, LAUNCHES, GRAPH], ids="/".join)
def test_a_record_that_was_dropped_is_noticed(
    place: tuple[str, str], traces: dict[tuple[str, str], Trace]
) -> None:
    trace = traces[place]
    middle = len(trace.kernels) // 2
    fewer = trace.kernels[:middle] + trace.kernels[middle + 1 :]
    assert not judge(replace(trace, kernels=fewer)).ok
    assert not judge(replace(trace, dropped_records=1)).ok


def change_one_kernel(
    trace: Trace, index: int, change: Callable[[Any], Sequence[Any]]
) -> tuple[Any, ...]:
    """Kernels of the trace, that of this index changed in every iteration."""
    kernels: list[Any] = []
    for part in trace.split():
        ordered = list(part.kernels)
        kernels += [*ordered[:index], *change(ordered[index]), *ordered[index + 1 :]]
    return tuple(kernels)


def test_a_kernel_lost_in_every_iteration_is_noticed_by_the_nodes_of_the_graph(
    bert: Workspace, traces: dict[tuple[str, str], Trace]
) -> None:
    types = prepare(bert, LAUNCHES).preparation.launches.types
    nodes = {name: types.get(name, 0) for name in ("kernel", "memcpy", "memset")}
    trace = traces[GRAPH]
    lost = replace(trace, kernels=change_one_kernel(trace, 3, lambda kernel: ()))
    assert judge(trace, expected_nodes=nodes).ok
    assert judge(lost).ok  # every iteration looks like every other
    assert not judge(lost, expected_nodes=nodes).ok


def test_a_kernel_that_was_swapped_for_another_is_no_tax(
    traces: dict[tuple[str, str], Trace],
) -> None:
    trace = traces[LAUNCHES]
    swapped = replace(
        trace, kernels=change_one_kernel(trace, 3, lambda k: [replace(k, name="another_kernel")])
    )
    eager, reference = RungEvidence.of(traces[EAGER], reference=None)
    same, _ = RungEvidence.of(trace, reference=reference)
    other, _ = RungEvidence.of(swapped, reference=reference)
    assert (same.same_kernels, compare_work(eager, same, "eager")) == (True, "")
    assert (other.problems, other.same_kernels) == ((), False)
    assert "another_kernel" in other.difference
    assert compare_work(eager, other, "eager")


# --- replays -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def resnet() -> Workspace:
    return Workspace(load_model("resnet-50", dtype="fp16", device="cuda", batch=32))


def replay_launches(workspace: Workspace, carveout: str) -> _core.LaunchReplayRunner:
    graph = workspace.graph
    pointer = graph.graph.raw_cuda_graph()
    return _core.LaunchReplayRunner(pointer, "launch-replay", graph, carveout=carveout)


def test_a_carveout_that_a_node_does_not_have_set_is_not_passed(resnet: Workspace) -> None:
    passed = {}
    for carveout in ("if set", "always"):
        nodes = replay_launches(resnet, carveout).nodes
        kernels = [node for node in nodes if node["type"] == "kernel"]
        passed[carveout] = sum(CARVEOUT in node["attributes"] for node in kernels)
    assert passed["always"] == len(kernels) > passed["if set"]


@pytest.mark.timing
def test_launches_with_a_wrong_carveout_have_the_names_but_not_the_durations(
    resnet: Workspace,
) -> None:
    sets = {"graph": KernelSet.of(trace_it(resnet, prepare(resnet, GRAPH)))}
    for carveout in ("if set", "always"):
        runner = resnet.on_stream(replay_launches(resnet, carveout))
        rung = Candidate(runtime="launch-replay", host="cpp", runner=runner, run=lambda: [])
        sets[carveout] = KernelSet.of(trace_it(resnet, rung))
    assert compare_kernel_sets(sets["graph"], sets["if set"]).equal
    assert compare_kernel_sets(sets["graph"], sets["always"]).equal
    times = {
        name: sum(entry.median_ns * entry.count for entry in found.entries)
        for name, found in sets.items()
    }
    assert 0.9 < times["if set"] / times["graph"] < 1.1
    if times["always"] / times["if set"] < 1.05:
        pytest.skip(f"this driver runs them as fast: {times}")
    slower = compare_durations(sets["if set"], sets["always"])
    assert slower and slower[0].ratio > 1.0


class Notices(nn.Module):
    """Does more when it is captured, as a library that builds masks then does."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        return y + 1 - 1 if torch.cuda.is_current_stream_capturing() else y


def capture_the_model(workspace: Workspace) -> Candidate:
    """The Python model in a graph: what ftax does not do."""
    stream = torch.cuda.Stream()

    def run() -> list[torch.Tensor]:
        return flatten_outputs(workspace.loaded.call())

    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream), torch.inference_mode():
        run()
    graph, outputs = capture_calls(run, stream)
    runner = workspace.on_stream(drive_python(workspace, "captured", graph.replay))
    return Candidate(runtime="captured", host="python", runner=runner, run=lambda: outputs)


@pytest.mark.parametrize("name", ["bert-base", "a module that notices"])
def test_a_graph_of_the_python_model_is_not_taken_for_the_model(name: str, bert: Workspace) -> None:
    workspace = bert if name == "bert-base" else load_on_gpu(Notices(), 64, 64)
    eager, reference = RungEvidence.of(
        trace_it(workspace, prepare(workspace, EAGER)), reference=None
    )
    taped, _ = RungEvidence.of(trace_it(workspace, prepare(workspace, GRAPH)), reference=reference)
    assert (eager.problems, taped.problems, taped.same_kernels) == ((), (), True)
    try:
        rung = capture_the_model(workspace)
    except (RuntimeError, Warning) as error:
        pytest.skip(f"the Python model cannot be captured at all: {error}")
    captured, _ = RungEvidence.of(trace_it(workspace, rung), reference=reference)
    assert captured.problems == ()
    if name == "bert-base" and captured.same_kernels:
        pytest.skip("this version of transformers captures the kernels that eager runs")
    assert captured.same_kernels is False
    assert compare_work(eager, captured, "eager")


def test_a_replay_that_does_nothing_looks_right_until_outputs_are_poisoned(bert: Workspace) -> None:
    graph = bert.graph
    graph.graph.replay()
    torch.cuda.synchronize()
    assert all(map(same_bytes, graph.buffers.outputs, bert.reference))  # and is left there
    with pytest.raises(UnsupportedError, match="nothing is not the model"):
        check_on_both_inputs(
            bert,
            lambda inputs: graph.run(lambda: None, inputs, bert.loaded),
            name="nothing",
        )


def test_a_replay_that_writes_into_the_weights_is_refused() -> None:
    model = nn.Linear(4, 3)
    workspace = load_on_gpu(model, 2, 4)
    graph = workspace.graph

    def spoil() -> None:
        graph.graph.replay()
        model.weight.data.add_(1.0)

    with pytest.raises(UnsupportedError, match="writes into the model's weights"):
        check_on_both_inputs(
            workspace,
            lambda inputs: graph.run(spoil, inputs, workspace.loaded),
            name="spoils",
        )


# --- gate, streams and order ---------------------------------------------------------------------


@pytest.mark.parametrize("waits", ["at first", "always"])
def test_what_waits_only_at_first_does_so_before_the_gate_and_what_always_waits_is_cut(
    waits: str,
) -> None:
    x = torch.ones(8, device="cuda")
    calls: list[None] = []

    def request() -> None:
        calls.append(None)
        x.add_(1)
        if waits == "always" or len(calls) <= 2:
            torch.cuda.synchronize()  # as loading a kernel or growing memory does

    runner = _core.PythonRunner(request, "waits", "cuda", _core.GradMode.inference)
    start = time.monotonic()
    gated = measure_gate(runner, repetitions=3, watchdog_ms=300)
    assert time.monotonic() - start < 60  # it opened by itself
    assert gated.cut == (waits == "always")
    assert (gated.reason is None) == (waits == "at first")
    assert x[0].item() == 1 + len(calls)  # the device is alive, and did all of it


def test_rungs_share_a_stream_that_is_not_the_default_one() -> None:
    seen: set[int] = set()

    def forward(x: torch.Tensor) -> torch.Tensor:
        seen.add(torch.cuda.current_stream().cuda_stream)
        return x.exp()

    workspace = load_on_gpu(Lambda(forward), 3, 4)
    rungs = [prepare(workspace, place) for place in (EAGER, LAUNCHES)]
    seen.clear()
    rungs[0].runner.run_once()
    assert len(seen) == 1
    assert torch.cuda.default_stream().cuda_stream not in seen
    bare = drive_python(workspace, "bare", workspace.loaded.bind())
    seen.clear()
    bare.run_once()
    assert seen == {torch.cuda.default_stream().cuda_stream}
    on_default = Candidate(runtime="bare", host="python", runner=bare, run=lambda: [])
    first, second, third = (
        {kernel.stream_id for kernel in trace_it(workspace, rung).kernels}
        for rung in (*rungs, on_default)
    )
    assert first == second
    assert len(first) == 1
    assert not first & third


def test_gates_come_after_the_last_round_and_traces_after_the_last_gate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events: list[str] = []

    def log(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def logged(*arguments: Any, **options: Any) -> Any:
            events.append(name)
            return function(*arguments, **options)

        return logged

    names = ["measure_rounds", "measure_gated", "trace_runner"]
    for name in names:
        monkeypatch.setattr(_core, name, log(name, getattr(_core, name)))
    options: dict[str, Any] = {"tiny": True, "device": "cuda", "dtype": "fp16", "trace": "here"}
    receipt = ftax.tax("bert-base", plan=QUICK, runtimes="none", **options)
    assert [name for name, _ in itertools.groupby(events)] == names
    assert events.count("trace_runner") == len(receipt.evidence) == 5


def test_a_model_by_name_leaves_this_process_untraced(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any, **options: Any) -> Any:
        raise AssertionError("traced in the caller's process")

    monkeypatch.setattr(_core, "trace_runner", refuse)
    receipt = ftax.tax(
        "bert-base", plan=QUICK, runtimes="none", tiny=True, device="cuda", dtype="fp16"
    )
    assert {item.traced_in for item in receipt.evidence} == {"worker"}
    assert [item.problems for item in receipt.evidence] == [()] * 5
