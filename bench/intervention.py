"""Known delays, put in on purpose, appear on the line of the receipt where they belong.

The ladder of a small model is measured with a delay and with twice that delay, all six runners in
the same rounds, so each change of a line has an interval of its own. The surprising choice: the
baseline waits too. The change then holds the delay, and neither the price of putting it in nor that
of waiting: what runs after a wait finds its caches cold. A line is as expected if its interval
meets the expected change within 5 % of what was injected, and is narrow enough to mean something.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from line_changes import Line, find_changes, show_changes
from torch import nn
from torch.nn import functional as F

from ftax.errors import RunnerError
from ftax.ladders.intervention import DelayedForward, delay_binding, delay_operators
from ftax.ladders.ladder import EAGER
from ftax.machines.environment import collect_environment
from ftax.runtimes.catalogue import find_runtime
from ftax.runtimes.workspace import Workspace
from ftax.steps.load import load_model
from ftax.steps.loaded import LoadedModel
from ftax.timing.candidate import Candidate
from ftax.timing.session import Plan, measure, require
from record import finish, make_parser, run_workers

# Large against the noise of a shared machine: there, one round in fifty takes 1.7 times as long.
_FORWARD_NS = 1_000_000
_OPERATOR_NS = 50_000
_BINDING_NS = 100_000
_PATIENCE_S = 10.0  # of one case, with a neighbour on the core
_LINES = ("model glue", "interpreter and bindings", "operators")

Ladders = tuple[list[Candidate], list[Candidate], tuple[float, float, float]]


def make_model(blocks: int) -> LoadedModel:
    """A multilayer perceptron: each block makes three operator calls, one of them linear."""
    torch.manual_seed(0)
    layers = [
        layer for _ in range(blocks) for layer in (nn.Linear(32, 32), nn.GELU(), nn.LayerNorm(32))
    ]
    return load_model(nn.Sequential(*layers), inputs=torch.randn(1, 32))


def prepare_ladder(workspace: Workspace) -> list[Candidate]:
    """The three rungs, top to bottom."""
    places = EAGER.list_places("cpu")
    return [find_runtime(runtime).prepare(workspace, host) for runtime, host in places]


def delay_forward(loaded: LoadedModel) -> Ladders:
    """A module around the model that spins before it calls it."""
    ladders = [
        prepare_ladder(Workspace(replace(loaded, module=DelayedForward(loaded.module, delay_ns))))
        for delay_ns in (_FORWARD_NS, 2 * _FORWARD_NS)
    ]
    return ladders[0], ladders[1], (float(_FORWARD_NS), 0.0, 0.0)


def delay_each_operator(loaded: LoadedModel) -> Ladders:
    """A dispatch key that spins before each operator call."""
    workspace = Workspace(loaded)
    rungs = prepare_ladder(workspace)
    calls = len(workspace.taped.tape.operators)
    baseline, treatment = (delay_operators(rungs, times * _OPERATOR_NS) for times in (1, 2))
    return baseline, treatment, (0.0, 0.0, float(calls * _OPERATOR_NS))


def delay_linear(loaded: LoadedModel) -> Ladders:
    """`torch.nn.functional.linear` replaced while a Python rung runs."""
    workspace = Workspace(loaded)
    rungs = prepare_ladder(workspace)
    calls = workspace.flat.source.count("F.linear(")
    if calls == 0:
        raise RunnerError("the flat program does not call F.linear, so it cannot be delayed there")
    baseline, treatment = (
        delay_binding(rungs, F, "linear", times * _BINDING_NS) for times in (1, 2)
    )
    return baseline, treatment, (0.0, float(calls * _BINDING_NS), 0.0)


_INTERVENTIONS: dict[str, Callable[[LoadedModel], Ladders]] = {
    "1 ms more in the forward": delay_forward,
    "50 us more in each operator call": delay_each_operator,
    "100 us more in each F.linear": delay_linear,
}


def measure_changes(loaded: LoadedModel, ladders: Ladders, plan: Plan) -> list[Line]:
    """All six runners in the same rounds."""
    baseline, treatment, expected = ladders
    measurements = require(measure(loaded, [*baseline, *treatment], plan))
    columns = [m.values_ns for m in measurements]
    return find_changes(_LINES, columns, expected, injected_ns=sum(expected))


def work(quick: bool) -> dict[str, Any]:
    """One process: all interventions."""
    torch.set_num_threads(1)
    plan = Plan(rounds=240, round_ms=5.0, duration_s=60.0, patience_s=_PATIENCE_S)
    if quick:
        plan = Plan(rounds=10, round_ms=5.0)
    loaded = make_model(blocks=8)
    lines = {
        name: measure_changes(loaded, intervene(loaded), plan)
        for name, intervene in _INTERVENTIONS.items()
    }
    return {"lines": lines, "environment": collect_environment().to_dict()}


def main() -> None:
    """Run the workers, print the table, save the record."""
    options = make_parser(__doc__).parse_args()
    if options.worker:
        print(json.dumps(work(options.quick)))
        return
    outputs = run_workers(__file__, options)
    figures = show_changes([output["lines"] for output in outputs])
    raw = [output["lines"] for output in outputs]
    finish(__file__, options, figures, raw=raw, environment=outputs[0]["environment"])


if __name__ == "__main__":
    main()
