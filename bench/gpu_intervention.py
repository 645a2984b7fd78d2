"""Known delays, put in on purpose, appear on the right line and in the right column on a GPU.

As bench/intervention.py, with two columns a line: exposed, the difference of latencies, and host,
the difference of issue times behind the gate. The surprising choice is that of the other bench: the
baseline waits too, half as long. On a GPU that also uncovers the whole of a delay before a launch:
small kernels and the gaps between them take about as long as their launches, so part of a first
delay would be hidden; behind one the device waits for the host in both. A delay before launches
moves time from dispatch to launch, since the launches of the rungs above are torch's and out of
reach.

The last case is bound by the device: there only the first operator call of a request, before which
nothing runs that could hide it, may lengthen the latency.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from line_changes import Line, find_changes, show_changes
from torch import nn
from torch.nn import functional as F

from ftax import _core
from ftax.errors import RunnerError
from ftax.ladders.intervention import (
    DelayedForward,
    delay_launches,
    delay_operators,
    prepare_with_delayed_binding,
)
from ftax.ladders.ladder import EAGER
from ftax.machines.environment import collect_environment
from ftax.runtimes.catalogue import find_runtime
from ftax.runtimes.workspace import Workspace
from ftax.steps.load import load_model
from ftax.steps.loaded import LoadedModel
from ftax.timing.candidate import Candidate
from ftax.timing.session import Plan, measure, quiet, require
from record import finish, make_parser, progress, run_workers

# Beyond as much in the baseline. Half a millisecond a request: a host with neighbours told changes
# of a tenth of that from noise, and no less.
_FORWARD_NS = 500_000
_OPERATOR_NS = 10_000
_BINDING_NS = 40_000
_LAUNCH_NS = 10_000
_HIDDEN_NS = 15_000  # an operator call of the case that is bound by the device
_PATIENCE_S = 5.0  # of one case, with a neighbour on the core
_GATES = 7  # repetitions of a runner in one round

_LINES = ("model glue", "interpreter and bindings", "dispatch", "launch", "graph and kernels")
_LADDER = tuple(rung.place for rung in EAGER.rungs if not rung.optional)

Changes = tuple[float, float, float, float, float]  # ns, in the order of _LINES


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Rungs without and with a delay, and what each column should show of it."""

    loaded: LoadedModel
    baseline: list[Candidate]
    treated: list[Candidate]
    injected_ns: float
    exposed_ns: Changes
    host_ns: Changes | None = None  # None: the same


def make_model(*, blocks: int, width: int, batch: int) -> LoadedModel:
    """A multilayer perceptron: each block makes three operator calls, one of them linear."""
    torch.manual_seed(0)
    with torch.device("cuda"):
        layers = [
            layer
            for _ in range(blocks)
            for layer in (nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width))
        ]
        inputs = torch.randn(batch, width).half()
    return load_model(nn.Sequential(*layers).half(), inputs=inputs)


def make_small() -> LoadedModel:
    """Kernels that end before the host has asked for the next."""
    return make_model(blocks=16, width=64, batch=1)


def make_large() -> LoadedModel:
    """Kernels of some 300 us a block, which even Python eager behind the longer delay asks for
    faster than they run."""
    return make_model(blocks=24, width=4096, batch=6144)


def prepare_ladder(workspace: Workspace) -> list[Candidate]:
    """The five rungs, top to bottom."""
    return [find_runtime(runtime).prepare(workspace, host) for runtime, host in _LADDER]


def delay_forward() -> Case:
    """A module around the model that spins before it calls it."""
    loaded = make_small()
    baseline, treated = (
        prepare_ladder(Workspace(replace(loaded, module=DelayedForward(loaded.module, delay_ns))))
        for delay_ns in (_FORWARD_NS, 2 * _FORWARD_NS)
    )
    changes = (float(_FORWARD_NS), 0.0, 0.0, 0.0, 0.0)
    return Case(
        loaded=loaded,
        baseline=baseline,
        treated=treated,
        injected_ns=_FORWARD_NS,
        exposed_ns=changes,
    )


def delay_linear() -> Case:
    """`torch.nn.functional.linear` replaced while a Python rung runs."""
    loaded = make_small()
    workspace = Workspace(loaded)
    calls = workspace.flat.source.count("F.linear(")
    if calls == 0:
        raise RunnerError("the flat program does not call F.linear, so it cannot be delayed there")
    below = prepare_ladder(workspace)[2:]
    baseline, treated = (
        [*prepare_with_delayed_binding(workspace, F, "linear", delay_ns), *below]
        for delay_ns in (_BINDING_NS, 2 * _BINDING_NS)
    )
    injected = float(calls * _BINDING_NS)
    changes = (0.0, injected, 0.0, 0.0, 0.0)
    return Case(
        loaded=loaded,
        baseline=baseline,
        treated=treated,
        injected_ns=injected,
        exposed_ns=changes,
    )


def delay_each_operator() -> Case:
    """A dispatch key that spins before each operator call."""
    return _delay_operators(make_small(), _OPERATOR_NS, hidden=False)


def delay_hidden_operators() -> Case:
    """The same where the device has more to do than the host: the host column alone shows it."""
    return _delay_operators(make_large(), _HIDDEN_NS, hidden=True)


def _delay_operators(loaded: LoadedModel, delay_ns: int, *, hidden: bool) -> Case:
    workspace = Workspace(loaded)
    rungs = prepare_ladder(workspace)
    injected = float(len(workspace.taped.tape.operators) * delay_ns)
    return Case(
        loaded=loaded,
        baseline=delay_operators(rungs, delay_ns),
        treated=delay_operators(rungs, 2 * delay_ns),
        injected_ns=injected,
        exposed_ns=(0.0, 0.0, float(delay_ns) if hidden else injected, 0.0, 0.0),
        host_ns=(0.0, 0.0, injected, 0.0, 0.0),
    )


def delay_each_launch() -> Case:
    """Launch replay that spins before each driver call, for longer than in the baseline."""
    loaded = make_small()
    workspace = Workspace(loaded)
    rungs = prepare_ladder(workspace)
    launches = rungs[_LADDER.index(("launch-replay", "cpp"))].preparation.launches
    if launches is None:
        raise RunnerError("launch replay does not tell its launches")
    injected = float(launches.count * _LAUNCH_NS)
    changes = (0.0, 0.0, -injected, injected, 0.0)
    return Case(
        loaded=loaded,
        baseline=delay_launches(workspace, rungs, _LAUNCH_NS),
        treated=delay_launches(workspace, rungs, 2 * _LAUNCH_NS),
        injected_ns=injected,
        exposed_ns=changes,
    )


_INTERVENTIONS: dict[str, Callable[[], Case]] = {
    "500 us more in the forward": delay_forward,
    "40 us more in each F.linear": delay_linear,
    "10 us more in each operator call": delay_each_operator,
    "10 us more in each launch of launch replay": delay_each_launch,
    "15 us more in each operator call, device-bound": delay_hidden_operators,
}


def measure_issue(prepared: Sequence[Candidate], rounds: int) -> list[list[float]]:
    """Issue time behind the gate, ns: a column a runner, a value a round. Every round takes the
    runners in another order, as the rounds of latencies do. The value is the shortest of a round's
    repetitions: no probe looks for neighbours here, and they only lengthen what the host does."""
    order = random.Random(0)
    columns: list[list[float]] = [[] for _ in prepared]
    with quiet():
        for _ in range(rounds):
            for place in order.sample(range(len(prepared)), len(prepared)):
                result = _core.measure_gated(prepared[place].runner, repetitions=_GATES)
                kept = [item.issue_ns for item in result.repetitions if not item.cut]
                if not kept:
                    raise RunnerError(
                        f"the gate did not hold {prepared[place].runtime}: {result.reason}"
                    )
                columns[place].append(float(min(kept)))
    return columns


def find_all_changes(case: Case, plan: Plan, gate_rounds: int) -> list[Line]:
    """Both columns; gates after the latencies, which they would disturb."""
    rungs = [*case.baseline, *case.treated]
    latencies = [m.values_ns for m in require(measure(case.loaded, rungs, plan))]
    issues = measure_issue(rungs, gate_rounds)
    lines = []
    for column, values, expected in (
        ("exposed", latencies, case.exposed_ns),
        ("host", issues, case.host_ns or case.exposed_ns),
    ):
        names = [f"{name}, {column}" for name in _LINES]
        lines += find_changes(names, values, expected, injected_ns=case.injected_ns)
    return lines


def work(quick: bool) -> dict[str, Any]:
    """One process: all interventions."""
    torch.set_num_threads(1)
    plan = Plan(rounds=120, round_ms=6.0, duration_s=60.0, patience_s=_PATIENCE_S)
    if quick:
        plan = Plan(rounds=20, round_ms=5.0)
    lines = {}
    for name, intervene in _INTERVENTIONS.items():
        lines[name] = find_all_changes(intervene(), plan, gate_rounds=10 if quick else 40)
        torch.cuda.empty_cache()
    return {"lines": lines, "environment": collect_environment(device="cuda").to_dict()}


def main() -> None:
    """Run the workers, print the table, save the record."""
    options = make_parser(__doc__).parse_args()
    if options.worker:
        print(json.dumps(work(options.quick)))
        return
    if not torch.cuda.is_available():
        progress("gpu_intervention: torch finds no CUDA device, so there is nothing to measure")
        return
    outputs = run_workers(__file__, options)
    figures = show_changes([output["lines"] for output in outputs])
    raw = [output["lines"] for output in outputs]
    finish(__file__, options, figures, raw=raw, environment=outputs[0]["environment"])


if __name__ == "__main__":
    main()
