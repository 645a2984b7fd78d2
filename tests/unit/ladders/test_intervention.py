"""Known delays appear on the right line of the receipt, and on no other.

Baseline and treatment share their rounds, so each change has an interval. The delays are large
against the noise of a shared machine, so that the test is about lines and not about speed. What a
request costs beyond its delay is real too: while it spins, a neighbour on the core evicts its code
from the caches (up to a quarter of the delay on a busy machine, 2 % on a quiet one).
"""

import pytest
import torch
from torch import nn

import ftax
from delays import DelayedForward, delay_binding, delay_operators, find_moves, weigh_lines
from ftax.ladders.ladder import EAGER
from ftax.runtimes.catalogue import find_runtime
from ftax.runtimes.workspace import Workspace
from ftax.timing.plan import Plan
from ftax.timing.session import measure, require

LAYERS = 8
LINES = ("model glue", "interpreter and bindings", "operators")
PLAN = Plan(rounds=24, round_ms=4.0, duration_s=60.0)


class Chain(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(LAYERS))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x) + 1.0
        return x


def load(module):
    torch.manual_seed(0)
    return ftax.load_model(module, inputs=torch.randn(1, 4))


def prepare_rungs(loaded):
    workspace = Workspace(loaded)
    return [
        find_runtime(runtime).prepare(workspace, host) for runtime, host in EAGER.list_places("cpu")
    ]


def measure_changes(baseline, treated):
    """Change of each line with its interval, ns: (treated - baseline), measured in shared
    rounds."""
    loaded = load(Chain())
    found = require(measure(loaded, [*baseline, *treated], PLAN))
    return dict(zip(LINES, find_moves(found[:3], found[3:]), strict=True))


def assert_only(changes, line, expected_ns):
    _, (low, high) = changes[line]
    assert low - 0.3 * expected_ns <= expected_ns <= high + 0.1 * expected_ns, changes
    for other in set(LINES) - {line}:
        change, (low, high) = changes[other]
        assert low - 0.2 * expected_ns < 0 < high + 0.2 * expected_ns, changes
        assert abs(change) < 0.5 * expected_ns, changes


@pytest.mark.timing
def test_a_delay_in_forward_is_model_glue():
    module = Chain()
    changes = measure_changes(
        prepare_rungs(load(module)), prepare_rungs(load(DelayedForward(module, 200_000)))
    )
    assert_only(changes, "model glue", 200_000)


@pytest.mark.timing
def test_a_delay_in_a_binding_is_interpreter_and_bindings():
    rungs = prepare_rungs(load(Chain()))
    baseline = delay_binding(rungs, nn.functional, "linear", 0)
    treated = delay_binding(rungs, nn.functional, "linear", 20_000)
    changes = measure_changes(baseline, treated)
    assert_only(changes, "interpreter and bindings", LAYERS * 20_000)
    assert not hasattr(nn.functional.linear, "__wrapped__")


@pytest.mark.timing
def test_a_delay_in_each_operator_call_is_operators():
    loaded = load(Chain())
    baseline = delay_operators(prepare_rungs(loaded), 0)
    treated = delay_operators(prepare_rungs(loaded), 20_000)
    operators = len(Workspace(loaded).taped.tape.operators)
    assert operators == 2 * LAYERS
    changes = measure_changes(baseline, treated)
    assert_only(changes, "operators", operators * 20_000)


def test_weights_make_lines_that_sum_to_the_first_rung():
    assert weigh_lines(2) == [[-1.0, 1.0, 1.0, -1.0], [0.0, -1.0, 0.0, 1.0]]
    assert [sum(column) for column in zip(*weigh_lines(5), strict=True)] == [
        -1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0,
    ]  # fmt: skip


def test_delays_cannot_be_negative():
    loaded = load(Chain())
    with pytest.raises(ftax.InvalidArgumentError, match="-1 ns"):
        delay_operators(prepare_rungs(loaded), -1)
