"""torch.compile taken apart: a delay or a guard that is planted lies in its line, and in no other.

A delay is planted for a round, around the runner that is to have it, so that runners with and
without it share their compiled model and their rounds.
"""

import statistics
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch._inductor.runtime.triton_heuristics import CachingAutotuner
from torch._inductor.utils import align_inputs_from_check_idxs
from torch.utils._ordered_set import OrderedSet

import ftax
from delays import DELAYED_LAYERS, find_moves, prepare_with_delayed_layer
from ftax import _core
from ftax.ladders.ladder import COMPILE
from ftax.ladders.lines import compute_lines
from ftax.runtimes.catalogue import find_runtime
from ftax.runtimes.compilers import taken_apart
from ftax.runtimes.compilers.taken_apart import find_guards, skipping_guards, take_apart
from ftax.runtimes.compilers.torch_compile import find_compilation
from ftax.runtimes.workspace import Workspace
from ftax.steps.given import use_threads
from ftax.steps.load import load_model
from ftax.timing.candidate import Candidate
from ftax.timing.checks import Checks
from ftax.timing.session import measure, measure_together, require
from support.small_models import load_function, normal

pytestmark = pytest.mark.slow
DELAY_NS = 1_000_000
PLAN = ftax.Plan(rounds=16, warmup=5, round_ms=4.0, duration_s=60.0)
PYTHON = COMPILE.list_places("cpu")[:-1]  # without the generated C++, which takes long to make
LINES = ["guards", "frame evaluation", "AOTAutograd's wrappers", "Inductor's wrapper"]


@pytest.fixture(scope="module")
def compiled_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture
def workspace(compiled_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workspace]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4))
    monkeypatch.setenv("FTAX_CACHE", str(compiled_folder))
    with use_threads(1):  # all of a test: TorchDynamo compiles again for another number
        yield Workspace(load_model(model.eval(), inputs=normal(3, 16)))


def prepare_rungs(workspace: Workspace) -> list[Candidate]:
    return [find_runtime(runtime).prepare(workspace, host) for runtime, host in PYTHON]


def test_the_pieces_of_a_call_give_its_outputs(workspace: Workspace):
    rungs = prepare_rungs(workspace)
    for rung in rungs:
        assert rung.checks.judge_outputs().equal
        assert torch.equal(rung.run()[0], rungs[0].run()[0])


def test_what_copies_inputs_to_even_addresses_is_no_generated_code(workspace: Workspace):
    parts = take_apart(workspace)
    made = parts.generated
    parts._code.current_callable = align_inputs_from_check_idxs(made, [0], OrderedSet())
    try:  # as Inductor does for inputs on a GPU
        around = taken_apart.Parts(parts.compilation)
        assert around.generated is made
        for piece in (around.call_graph, around.call_code, around.call_generated):
            assert torch.equal(around.run_with(piece)[0], around.compilation.run()[0])
        with around.replacing_generated(lambda _: ["another"]):
            assert around.call_code() == ["another"]
    finally:
        parts._code.current_callable = made


def test_a_piece_that_holds_other_tensors_than_a_call_is_found(workspace: Workspace):
    parts = take_apart(workspace)
    held = parts._inputs
    parts._inputs = [item.clone() for item in held]  # which no new input reaches
    try:
        rung = find_runtime("inductor-call").prepare(workspace, "python")
    finally:
        parts._inputs = held
    assert not rung.checks.judge_outputs().equal


@pytest.mark.timing
@pytest.mark.parametrize("layer", DELAYED_LAYERS)
def test_a_delay_lies_in_the_line_of_its_layer(workspace: Workspace, layer: str):
    rungs = prepare_rungs(workspace)
    planted = prepare_with_delayed_layer(workspace, layer, DELAY_NS)
    found = require(measure(workspace.loaded, [*rungs, *planted], PLAN))
    before, after = found[: len(rungs)], found[len(rungs) :]
    assert [item.name for item in compute_lines(before, ladder=COMPILE)][:-1] == LINES
    shifts = {
        name: (low / DELAY_NS, high / DELAY_NS)
        for name, (_, (low, high)) in zip(LINES, find_moves(before, after)[:-1], strict=True)
    }
    for name, (low, high) in shifts.items():
        assert low - 0.3 <= (name == layer) <= high + 0.3, shifts


class Adds(nn.Module):
    def __init__(self, count: int) -> None:
        super().__init__()
        self.numbers = [1] * count  # all alike, so that each guard costs the same

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * (1 + sum(self.numbers))  # Dynamo guards each of them


class Scales(nn.Module):
    """With code of its own: no other test may have left a compilation of it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 3


def test_no_guard_is_asked_where_they_are_skipped_not_even_of_tensors(monkeypatch, tmp_path):
    monkeypatch.setenv("FTAX_CACHE", str(tmp_path))
    with use_threads(1):
        workspace = Workspace(load_model(Scales(), inputs=normal(3, 4)))
        compilation = find_compilation(workspace)
        guards, warnings = find_guards(compilation)
        assert (len(guards), warnings) == (1, ())
        before = guards[0].diff_guard_root
        other = workspace.loaded.args[0].clone().requires_grad_()  # a guard of tensors refuses it

        def asks_the_stance_alone() -> None:
            stance = torch.compiler.set_stance("default", skip_guard_eval_unsafe=True)
            with stance, pytest.raises(RuntimeError, match="Recompilation triggered"):
                compilation.module(other)

        with torch.inference_mode():
            asks_the_stance_alone()
            with skipping_guards(guards):
                assert torch.equal(compilation.module(other), other * 3)
            asks_the_stance_alone()
            with pytest.raises(ValueError, match="mine"), skipping_guards(guards):
                raise ValueError("mine")
            asks_the_stance_alone()
        assert guards[0].diff_guard_root is before


class Branches(nn.Module):
    """Compiled once for each number that it reads, which only the inputs tell apart."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scale(x, int(x.sum() > 0) + 2)

    def scale(self, x: torch.Tensor, factor: int) -> torch.Tensor:
        torch._dynamo.graph_break()
        return x * factor


@pytest.mark.skipif(torch.__version__ < "2.9", reason="torch 2.8 compiles it again: refused")
def test_a_compilation_that_only_the_other_input_needs_is_told_apart(monkeypatch, tmp_path):
    monkeypatch.setenv("FTAX_CACHE", str(tmp_path))
    inputs, others = torch.ones(3, 4), -torch.ones(3, 4)
    with use_threads(1):
        workspace = Workspace(load_model(Branches(), inputs=inputs, check_inputs=others))
        rung = find_runtime("compile-without-guards").prepare(workspace, "python")
    assert rung.checks.judge_outputs().equal
    assert any("2 compilations of" in text for text in rung.warnings), rung.warnings
    assert torch.equal(workspace.loaded.flat_inputs()[0], inputs)


class Twice(nn.Module):
    """Two layers that share their code and are compiled each for itself."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Layer(2.0), Layer(3.0)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            torch._dynamo.graph_break()
            x = layer(x)
        return x


class Layer(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor
        self.register_buffer("shift", torch.full((int(factor),), factor))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return x * self.factor + self.shift.sum()


def test_two_compilations_of_one_function_are_still_told_apart(monkeypatch, tmp_path):
    monkeypatch.setenv("FTAX_CACHE", str(tmp_path))
    workspace = Workspace(
        load_model(Twice(), inputs=normal(3, 4), check_inputs=normal(3, 4, seed=1))
    )
    rung = find_runtime("compile-without-guards").prepare(workspace, "python")
    assert rung.checks.judge_outputs().equal
    assert any("2 compilations of" in text for text in rung.warnings), rung.warnings


@pytest.mark.timing
def test_guards_that_are_added_lie_in_their_line_alone(monkeypatch, tmp_path):
    monkeypatch.setenv("FTAX_CACHE", str(tmp_path))
    counts = [200, 500, 1000, 2000]
    parts, checks = [], []
    with use_threads(1):  # all of it: TorchDynamo compiles again for another number
        for count in counts:
            x, other = normal(3, 4), normal(3, 4, seed=1)
            workspace = Workspace(load_model(Adds(count), inputs=(x,), check_inputs=(other,)))
            parts.append((workspace.loaded, prepare_rungs(workspace)[:3]))
            entries = torch._dynamo.eval_frame._debug_get_cache_entry_list(find_code(workspace))
            checks.append((entries[0].guard_manager, find_locals(workspace)))
        # All in the same rounds: hosts become slower and faster.
        sessions = measure_together(parts, replace(PLAN, rounds=40))
        # Called alone they are warm in the cache; beside a neighbour each call finds them cold.
        alone = time_check(*checks[-1]) - time_check(*checks[0])
    times = [
        [statistics.median(rung.values_ns) for rung in require(session)] for session in sessions
    ]
    whole, unguarded, inside = np.array(times).T
    guards, frames = whole - unguarded, unguarded - inside
    found = f"guards {guards}, frame evaluation {frames}"
    assert np.corrcoef(counts, guards)[0, 1] ** 2 > 0.95, found
    grown = guards[-1] - guards[0]
    assert abs(frames[-1] - frames[0]) < 0.2 * grown, found
    assert 0.5 * alone < grown < 2.5 * alone, (found, alone)


def find_code(workspace: Workspace) -> Any:
    return workspace.loaded.module.forward.__func__.__code__


def find_locals(workspace: Workspace) -> dict[str, Any]:
    return {"self": workspace.loaded.module, "x": workspace.loaded.args[0]}


def time_check(manager: Any, names: dict[str, Any]) -> float:
    """ns of the guards of a compiled function, called alone."""
    times = []
    with torch.inference_mode():
        for _ in range(200):
            start = time.perf_counter_ns()
            holds = manager.check(names)
            times.append(time.perf_counter_ns() - start)
            assert holds
    return statistics.median(times)


def test_a_step_with_a_backward_pass_has_guards_and_one_line_below(monkeypatch, tmp_path):
    monkeypatch.setenv("FTAX_CACHE", str(tmp_path))
    model = nn.Linear(4, 1)
    step = ftax.train(
        model, lambda module, x: module(x).square().mean(),
        torch.optim.SGD(model.parameters(), lr=0.1), (normal(3, 4),),
    )  # fmt: skip
    receipt = ftax.tax(
        step, ladder="compile", runtimes="none", progress=False,
        plan=ftax.Plan(rounds=3, warmup=2, round_ms=1.0),
    )  # fmt: skip
    assert [rung.place for rung in receipt.rungs] == PYTHON[:2]
    assert all(Checks.of(rung.checks).judge_outputs().equal for rung in receipt.rungs)
    assert not [text for text in receipt.warnings if "during the rounds" in text]
    reasons = {item.runtime: item.reason for item in receipt.unavailable}
    assert "a backward pass has a graph of its own" in reasons["compile-graph"]


def test_a_receipt_of_the_whole_ladder(workspace: Workspace):
    receipt = ftax.tax(
        workspace.loaded, ladder="compile", runtimes=("eager",), hosts=("python",),
        plan=ftax.Plan(rounds=5, warmup=2, round_ms=2.0), progress=False,
    )  # fmt: skip
    assert [rung.place for rung in receipt.rungs] == COMPILE.list_places("cpu")
    assert all(Checks.of(rung.checks).judge_outputs().equal for rung in receipt.rungs)
    names = [line.name for line in receipt.lines]
    assert names == [*LINES, "generated Python", "generated code"]
    assert sum(line.time_ns for line in receipt.lines) == pytest.approx(receipt.latency_ns)
    assert "eager/python" in {str(row.measurement.place) for row in receipt.runtimes}
    phases = receipt.rungs[0].preparation["compile_phases_s"]
    assert isinstance(phases, Mapping)
    assert "Compiling" in str(receipt.details) and all(
        name in str(receipt.details) for name in phases
    )


def test_a_ladder_that_does_not_fit_is_refused():
    with pytest.raises(ftax.InvalidArgumentError, match="this has the ladder 'eager': leave it"):
        ftax.tax(load_function(lambda x: x + 1), ladder="autograd", progress=False)


def test_the_scope_of_a_runner_is_entered_once_a_round_and_left():
    seen: list[str] = []

    @contextmanager
    def scope() -> Iterator[None]:
        seen.append("enter")
        yield
        seen.append("leave")

    runner = _core.PythonRunner(
        lambda: seen.append("call"), "x", "cpu", _core.GradMode.inference, scope=scope
    )
    runner.run_once()
    assert seen == ["enter", "call", "leave"]

    def refuse() -> AbstractContextManager[None]:
        raise ValueError("no room")

    bad = _core.PythonRunner(lambda: None, "x", "cpu", _core.GradMode.inference, scope=refuse)
    with pytest.raises(ftax.RunnerError, match="x could not enter its scope: ValueError: no room"):
        bad.run_once()


@pytest.mark.parametrize(
    ("name", "warps", "best"),
    [
        ("triton_add_0", 8, "slow"),
        ("triton_add_0", 2, "fast"),  # no such configuration is offered
        ("triton_mul_1", 8, "fast"),  # nothing was chosen for this kernel
    ],
)
def test_the_generated_cpp_takes_the_block_sizes_of_the_generated_python(
    name, warps, best, monkeypatch
):
    class Launcher:
        def __init__(self, label: str, num_warps: int) -> None:
            self.label = label
            self.config = SimpleNamespace(kwargs={"XBLOCK": 256}, num_warps=num_warps, num_stages=1)

    offered = {Launcher("fast", 4): 1.0, Launcher("slow", 8): 1.01}
    monkeypatch.setattr(CachingAutotuner, "benchmark_all_configs", lambda tuner: dict(offered))
    tuner: Any = SimpleNamespace(fn=SimpleNamespace(__name__=name))
    chosen = Launcher("in another process", warps).config
    with taken_apart._tuned_as({"triton_add_0": chosen}):
        times = CachingAutotuner.benchmark_all_configs(tuner)
    assert min(times, key=times.__getitem__).label == best
    assert CachingAutotuner.benchmark_all_configs(tuner) == offered
