"""Known delays appear on the right line and in the right column of a GPU's receipt.

Baseline and treatment share their rounds. The delays are large against the noise of a shared
machine, and against the microsecond that a stream takes between two launches.
"""

import pytest
import torch
from torch import nn

import ftax
from delays import (
    DelayedForward,
    delay_binding,
    delay_launches,
    delay_operators,
    find_moves,
    prepare_with_delayed_binding,
    weigh_lines,
)
from ftax.errors import InvalidArgumentError
from ftax.instruments.gate import measure_gate
from ftax.ladders.ladder import EAGER
from ftax.runtimes.catalogue import find_runtime
from ftax.runtimes.workspace import Workspace
from ftax.timing.plan import Plan
from ftax.timing.session import measure, require

pytestmark = [pytest.mark.needs_cuda, pytest.mark.timing]

LAYERS = 8
LINES = ("model glue", "interpreter and bindings", "dispatch", "launch", "graph and kernels")
LADDER = [rung.place for rung in EAGER.rungs if not rung.optional]
REPLAY = LADDER.index(("launch-replay", "cpp"))
PLAN = Plan(rounds=24, round_ms=4.0, duration_s=60.0)
DELAY_NS = 20_000
GATE_ROUNDS = 5


class Chain(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(LAYERS))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x) + 1.0
        return x


def load(module):
    return ftax.load_model(module.cuda(), inputs=torch.randn(1, 4, device="cuda"))


def prepare_rungs(workspace):
    return [find_runtime(runtime).prepare(workspace, host) for runtime, host in LADDER]


@pytest.fixture(scope="module")
def workspace():
    return Workspace(load(Chain()))


@pytest.fixture(scope="module")
def rungs(workspace):
    return prepare_rungs(workspace)


def measure_exposed(baseline, treated):
    """Change of latency of each line with its interval, ns."""
    found = require(measure(load(Chain()), [*baseline, *treated], PLAN))
    return find_moves(found[: len(LINES)], found[len(LINES) :])


def find_issue_times(prepared):
    """The shortest of all repetitions of each, ns, taken in rounds: neighbours only lengthen what
    the host does."""
    rounds = [[measure_gate(item.runner) for item in prepared] for _ in range(GATE_ROUNDS)]
    assert {gate.reason for gates in rounds for gate in gates} == {None}
    return [
        min(kept.issue_ns for gate in gates for kept in gate.kept)
        for gates in zip(*rounds, strict=True)
    ]


def measure_host(baseline, treated):
    """Change of issue time of each line, ns."""
    issue_ns = find_issue_times([*baseline, *treated])
    return [
        sum(w * x for w, x in zip(weights, issue_ns, strict=True))
        for weights in weigh_lines(len(LINES))
    ]


def find_unexpected(baseline, treated, **expected_ns):
    """Lines of which a column does not show the expected change, named as LINES with underscores;
    a line that is not named has to stay as it was."""
    expected = [expected_ns.pop(name.replace(" ", "_"), 0.0) for name in LINES]
    assert not expected_ns
    injected = max(expected)
    slack = 0.1 * injected
    unexpected = []
    columns = (measure_exposed(baseline, treated), measure_host(baseline, treated))
    for name, wanted, (change, (low, high)), issued in zip(LINES, expected, *columns, strict=True):
        far = max(abs(change - wanted), abs(issued - wanted)) >= 0.2 * injected
        outside = wanted != 0.0 and not low - slack <= wanted <= high + slack
        if far or outside:
            unexpected.append(
                f"{name}: expected {wanted:.0f} ns, exposed {change:.0f} ({low:.0f} to "
                f"{high:.0f}), host {issued:.0f}"
            )
    return unexpected


def test_a_delay_in_forward_is_model_glue(rungs):
    module = DelayedForward(Chain(), 200_000)
    treated = prepare_rungs(Workspace(load(module)))
    assert find_unexpected(rungs, treated, model_glue=200_000) == []


def test_a_delay_in_a_binding_is_interpreter_and_bindings(workspace, rungs):
    baseline, treated = (
        [
            *prepare_with_delayed_binding(workspace, nn.functional, "linear", delay_ns),
            *rungs[2:],
        ]
        for delay_ns in (0, DELAY_NS)
    )
    injected = LAYERS * DELAY_NS
    assert find_unexpected(baseline, treated, interpreter_and_bindings=injected) == []
    assert not hasattr(nn.functional.linear, "__wrapped__")


def test_a_delay_in_each_operator_call_is_dispatch(workspace, rungs):
    operators = len(workspace.taped.tape.operators)
    assert operators == 2 * LAYERS
    baseline, treated = delay_operators(rungs, 0), delay_operators(rungs, DELAY_NS)
    assert find_unexpected(baseline, treated, dispatch=operators * DELAY_NS) == []


def test_a_delay_in_launch_replay_moves_time_from_dispatch_to_launch(workspace, rungs):
    injected = rungs[REPLAY].preparation.launches.count * DELAY_NS
    assert injected >= 2 * LAYERS * DELAY_NS
    # A first delay on both sides: the device waits for the host with and without the second.
    baseline = delay_launches(workspace, rungs, DELAY_NS)
    treated = delay_launches(workspace, rungs, 2 * DELAY_NS)
    assert find_unexpected(baseline, treated, dispatch=-injected, launch=injected) == []


def test_delayed_launches_still_compute_the_model(workspace: Workspace, rungs) -> None:
    delayed = delay_launches(workspace, rungs, 1_000)[REPLAY]
    captured = workspace.graph
    with torch.inference_mode():
        inputs = [x.clone() for x in workspace.loaded.flat_inputs()]
        outputs = captured.run(delayed.runner.run_once, inputs, workspace.loaded)
    assert all(map(torch.equal, outputs, workspace.reference))


def test_a_busy_device_hides_delays_from_latency_and_not_from_issue_time():
    torch.manual_seed(0)
    with torch.device("cuda"):
        layers = [nn.Linear(4096, 4096) for _ in range(12)]
        inputs = torch.randn(4096, 4096).half()
    loaded = ftax.load_model(nn.Sequential(*layers).half(), inputs=inputs)
    workspace = Workspace(loaded)
    tape = find_runtime("eager").prepare(workspace, "cpp")
    baseline, treated = delay_operators([tape], 0), delay_operators([tape], DELAY_NS)
    injected = len(workspace.taped.tape.operators) * DELAY_NS
    without, with_delay = require(measure(loaded, [*baseline, *treated], PLAN))
    # The first call is before all work, so its delay is exposed; clocks may move by a percent.
    hidden = 0.5 * injected + 0.02 * without.latency_ns
    assert with_delay.latency_ns - without.latency_ns < hidden
    without_ns, with_ns = find_issue_times([*baseline, *treated])
    assert abs(with_ns - without_ns - injected) < 0.2 * injected


def test_a_binding_is_not_silently_left_undelayed(rungs):
    with pytest.raises(InvalidArgumentError, match="prepare_with_delayed_binding"):
        delay_binding(rungs, nn.functional, "linear", DELAY_NS)


def test_delays_of_launches_are_checked(workspace, rungs):
    with pytest.raises(InvalidArgumentError, match="-1 ns"):
        delay_launches(workspace, rungs, -1)
    with pytest.raises(InvalidArgumentError, match="only launch-replay"):
        delay_launches(workspace, rungs[:2], 1_000)
