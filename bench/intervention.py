"""Known delays, put in on purpose, appear on the line of the receipt where they belong.

The ladder of a small model is measured with a delay and with twice that delay, all runners in the
same rounds, so each change of a line has an interval. The baseline waits too: what runs after a
wait finds its caches cold, and on a GPU part of a first delay would be hidden. On a GPU a line has
two columns: exposed, the difference of latencies, and host, that of issue times behind the gate. A
delay before launches moves time from dispatch to launch, since the launches of the rungs above are
torch's. The last case there is bound by the device: only the first operator call of a request,
before which nothing runs that could hide it, may lengthen the latency.
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

from delays import (
    DelayedForward,
    delay_launches,
    delay_operators,
    prepare_with_delayed_binding,
)
from ftax import _core
from ftax.errors import RunnerError
from ftax.ladders.ladder import EAGER
from ftax.machines.environment import collect_environment
from ftax.runtimes.catalogue import find_runtime
from ftax.runtimes.workspace import Workspace
from ftax.steps.load import load_model
from ftax.steps.loaded import LoadedModel
from ftax.timing.candidate import Candidate
from ftax.timing.plan import Plan
from ftax.timing.session import measure, quiet, require
from record import finish, make_parser, run_workers

# ns beyond as much in the baseline: large against the noise of a shared machine.
_FORWARD_NS = {"cpu": 1_000_000, "cuda": 500_000}
_OPERATOR_NS = {"cpu": 50_000, "cuda": 10_000}
_BINDING_NS = {"cpu": 100_000, "cuda": 40_000}
_LAUNCH_NS = 10_000
_HIDDEN_NS = 15_000  # an operator call of the case that is bound by the device
_PLANS = {
    "cpu": Plan(rounds=240, round_ms=5.0, duration_s=60.0, patience_s=10.0),
    "cuda": Plan(rounds=120, round_ms=6.0, duration_s=60.0, patience_s=5.0),
}
_GATES, _GATE_ROUNDS = 7, 40  # repetitions of a runner in a round
_LINES = {
    "cpu": ("model glue", "interpreter and bindings", "operators"),
    "cuda": ("model glue", "interpreter and bindings", "dispatch", "launch", "graph and kernels"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Rungs with a delay and with twice that, and what each column should show of it, by line."""

    loaded: LoadedModel
    baseline: Sequence[Candidate]
    treated: Sequence[Candidate]
    exposed_ns: dict[str, float]
    host_ns: dict[str, float] | None = None  # None: the same


def make_model(device: str, *, blocks: int, width: int, batch: int) -> LoadedModel:
    """A multilayer perceptron: each block makes three operator calls, one of them linear."""
    torch.manual_seed(0)
    dtype = torch.float32 if device == "cpu" else torch.float16
    with torch.device(device):
        layers = [
            layer
            for _ in range(blocks)
            for layer in (nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width))
        ]
        inputs = torch.randn(batch, width).to(dtype)
    return load_model(nn.Sequential(*layers).to(dtype), inputs=inputs)


def make_small(device: str) -> LoadedModel:
    """On a GPU its kernels end before the host has asked for the next."""
    if device == "cpu":
        return make_model(device, blocks=8, width=32, batch=1)
    return make_model(device, blocks=16, width=64, batch=1)


def prepare_ladder(workspace: Workspace) -> list[Candidate]:
    """The rungs, top to bottom."""
    device = workspace.loaded.device
    places = [rung.place for rung in EAGER.rungs if not rung.optional]
    if device == "cpu":
        places = EAGER.list_places(device)
    return [find_runtime(runtime).prepare(workspace, host) for runtime, host in places]


def delay_forward(device: str) -> Case:
    """A module around the model that spins before it calls it."""
    loaded, delay_ns = make_small(device), _FORWARD_NS[device]
    baseline, treated = (
        prepare_ladder(
            Workspace(replace(loaded, module=DelayedForward(loaded.module, n * delay_ns)))
        )
        for n in (1, 2)
    )
    changes = {"model glue": float(delay_ns)}
    return Case(loaded=loaded, baseline=baseline, treated=treated, exposed_ns=changes)


def delay_linear(device: str) -> Case:
    """`torch.nn.functional.linear` replaced while a Python rung runs."""
    workspace = Workspace(make_small(device))
    calls = workspace.flat.source.count("F.linear(")
    if calls == 0:
        raise RunnerError("the flat program does not call F.linear, so it cannot be delayed there")
    below, delay_ns = prepare_ladder(workspace)[2:], _BINDING_NS[device]
    baseline, treated = (
        [*prepare_with_delayed_binding(workspace, F, "linear", n * delay_ns), *below]
        for n in (1, 2)
    )
    changes = {"interpreter and bindings": float(calls * delay_ns)}
    return Case(loaded=workspace.loaded, baseline=baseline, treated=treated, exposed_ns=changes)


def delay_each_operator(device: str) -> Case:
    """A dispatch key that spins before each operator call."""
    line = "operators" if device == "cpu" else "dispatch"
    return _delay_operators(make_small(device), _OPERATOR_NS[device], line, is_hidden=False)


def delay_hidden_operators(device: str) -> Case:
    """The same where kernels of some 300 us a block run longer than even Python eager behind the
    longer delay takes to ask for them: the host column alone shows it."""
    loaded = make_model(device, blocks=24, width=4096, batch=6144)
    return _delay_operators(loaded, _HIDDEN_NS, "dispatch", is_hidden=True)


def _delay_operators(loaded: LoadedModel, delay_ns: int, line: str, *, is_hidden: bool) -> Case:
    workspace = Workspace(loaded)
    rungs = prepare_ladder(workspace)
    injected = float(len(workspace.taped.tape.operators) * delay_ns)
    baseline, treated = (delay_operators(rungs, n * delay_ns) for n in (1, 2))
    return Case(
        loaded=loaded, baseline=baseline, treated=treated,
        exposed_ns={line: float(delay_ns) if is_hidden else injected}, host_ns={line: injected},
    )  # fmt: skip


def delay_each_launch(device: str) -> Case:
    """Launch replay that spins before each driver call."""
    workspace = Workspace(make_small(device))
    rungs = prepare_ladder(workspace)
    counts = [item.preparation.launches for item in rungs]
    launches = next((item.count for item in counts if item is not None), None)
    if launches is None:
        raise RunnerError("launch replay does not tell its launches")
    baseline, treated = (delay_launches(workspace, rungs, n * _LAUNCH_NS) for n in (1, 2))
    injected = float(launches * _LAUNCH_NS)
    changes = {"dispatch": -injected, "launch": injected}
    return Case(loaded=workspace.loaded, baseline=baseline, treated=treated, exposed_ns=changes)


_CASES: dict[str, dict[str, Callable[[str], Case]]] = {
    "cpu": {
        "1 ms more in the forward": delay_forward,
        "50 us more in each operator call": delay_each_operator,
        "100 us more in each F.linear": delay_linear,
    },
    "cuda": {
        "500 us more in the forward": delay_forward,
        "40 us more in each F.linear": delay_linear,
        "10 us more in each operator call": delay_each_operator,
        "10 us more in each launch of launch replay": delay_each_launch,
        "15 us more in each operator call, device-bound": delay_hidden_operators,
    },
}


def measure_issue(prepared: Sequence[Candidate], rounds: int) -> list[list[float]]:
    """Issue time behind the gate, ns: a column a runner, a value a round, in which runners have
    another order. The value is the shortest of a round's repetitions: no probe looks for neighbours
    here, and they only lengthen what the host does."""
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


def find_all_changes(case: Case, device: str, plan: Plan, gate_rounds: int) -> list[Line]:
    """All columns; gates after the latencies, which they would disturb."""
    rungs = [*case.baseline, *case.treated]
    host_ns = case.host_ns or case.exposed_ns
    latencies = [m.values_ns for m in require(measure(case.loaded, rungs, plan))]
    columns: list[tuple[str, Sequence[Sequence[float]], dict[str, float]]]
    columns = [("" if device == "cpu" else ", exposed", latencies, case.exposed_ns)]
    if device != "cpu":
        columns.append((", host", measure_issue(rungs, gate_rounds), host_ns))
    injected = max(map(abs, host_ns.values()))
    lines = []
    for column, values, expected in columns:
        names = [f"{name}{column}" for name in _LINES[device]]
        wanted = [expected.get(name, 0.0) for name in _LINES[device]]
        lines += find_changes(names, values, wanted, injected_ns=injected)
    return lines


def work(device: str, quick: bool) -> dict[str, Any]:
    """One process: all cases."""
    torch.set_num_threads(1)
    plan, gate_rounds = _PLANS[device], _GATE_ROUNDS
    if quick:
        plan, gate_rounds = Plan(rounds=10 if device == "cpu" else 20, round_ms=5.0), 10
    lines = {}
    for name, intervene in _CASES[device].items():
        lines[name] = find_all_changes(intervene(device), device, plan, gate_rounds)
        if device != "cpu":
            torch.cuda.empty_cache()
    return {"lines": lines, "environment": collect_environment(device=device).to_dict()}


def main() -> None:
    """Run the workers, print the table, save the record."""
    parser = make_parser(__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(work(options.device, options.quick)))
        return
    outputs = run_workers(__file__, options, "--device", options.device)
    figures = show_changes([output["lines"] for output in outputs])
    raw = [output["lines"] for output in outputs]
    finish(__file__, options, figures, raw=raw, environment=outputs[0]["environment"])


if __name__ == "__main__":
    main()
