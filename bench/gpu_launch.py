"""What launch replay costs the host per launch, and whether a gate changes the device's time.

A replay should cost what the machine charges for launches and nothing else: the reference is a
burst of empty kernels, issued behind the same gate. That burst goes through the runtime's interface
and the replay through the driver's, and a replay also issues copies and fills; so these, and a
small kernel through the driver, are priced too (`launch_prices.py`).

The surprising choice: an ungated replay cannot be timed from Python without the host's time before
its first kernel and after its last. An empty kernel between the same two events is made of little
else, so its span is taken off. Requests back to back, which need no such correction, stand beside.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from launch_prices import (
    REPETITIONS,
    divide,
    make_bursts,
    price_bursts,
    price_kernels,
    read_issue_ns,
)

from ftax import _core, measure_floors
from ftax.errors import FtaxError, RunnerError
from ftax.instruments.gate import measure_gate
from ftax.machines.environment import collect_environment
from ftax.runtimes.catalogue import find_runtime
from ftax.runtimes.workspace import Workspace
from ftax.steps.load import load_model
from ftax.timing.candidate import Candidate
from ftax.timing.session import Plan, measure, quiet, require
from record import Figure, finish, make_parser, progress, run_workers, show

_MODELS = ("bert-base", "resnet-50", "gpt2")
_LARGE = 32
_LAUNCH_LIMIT = 1.15  # of the floor
_GATE_LIMIT = 3.0  # percent
_WARMUP = 3
_DOCTOR = "empty kernel, ftax doctor"


def price_launches(workspace: Workspace, replay: Candidate, repeats: int) -> dict[str, Any]:
    """Host time per launch of ``replay`` and of each burst, in turns; ratios within the turns."""
    counted = replay.preparation.launches
    if counted is None:
        raise RunnerError(f"{replay.place} tells no launches; give launch replay")
    types = counted.types
    launches = sum(types.values())
    bursts, missing = make_bursts(workspace, list(types))
    turns: list[dict[str, float | None]] = []
    for _ in range(repeats):
        price_ns = price_bursts(bursts)
        total_ns = read_issue_ns(
            measure_gate(replay.runner, repetitions=REPETITIONS, launches=launches)
        )
        turns.append(
            {
                **price_ns,
                "replay": total_ns / launches,
                "replay, a kernel": price_kernels(total_ns, types, price_ns),
                _DOCTOR: _measure_doctor_ns(),
            }
        )
    known = {name for name in turns[0] if all(turn[name] is not None for turn in turns)}
    return {
        "launch_types": dict(types),
        "missing": missing,
        "prices_ns": {
            name: statistics.median(turn[name] or 0.0 for turn in turns)
            for name in turns[0]
            if name in known
        },
        "over_doctor": divide(turns, "replay", _DOCTOR),
        "over_floor": divide(turns, "replay", "empty kernel"),
        "kernel_over_floor": divide(turns, "replay, a kernel", "empty kernel"),
        "kernel_over_small_kernel": divide(turns, "replay, a kernel", "small kernel"),
    }


def _measure_doctor_ns() -> float:
    """The floor as every result stores it: a burst on the default stream."""
    floors = {floor.name: floor.time_ns for floor in measure_floors(device="cuda", quick=True)}
    return floors["launch, host"]


def time_events_ns(runner: _core.Runner, stream: torch.cuda.Stream) -> float:
    """Median span between two events on ``stream`` around a synchronised request of ``runner``.

    The second event is recorded once the host knows that the request has ended.
    """
    spans = []
    with quiet():
        for _ in range(_WARMUP + REPETITIONS):
            begin = torch.cuda.Event(enable_timing=True)
            end = torch.cuda.Event(enable_timing=True)
            begin.record(stream)
            runner.run_once()
            end.record(stream)
            end.synchronize()
            spans.append(begin.elapsed_time(end) * 1e6)
    return float(statistics.median(spans[_WARMUP:]))


def compare_gate(workspace: Workspace, replay: Candidate, repeats: int) -> dict[str, float]:
    """Device time of one replay behind the gate and without it, in turns, in us."""
    empty = workspace.on_stream(_core.NullKernelRunner())
    stream = workspace.stream  # the one that its runners share
    turns: list[dict[str, float]] = []
    for _ in range(repeats):
        gated = measure_gate(replay.runner, repetitions=REPETITIONS)
        if gated.device_ns is None:
            raise RunnerError(f"the gate did not hold: {gated.reason}")
        events_us = time_events_ns(replay.runner, stream) / 1e3
        around_us = time_events_ns(empty, stream) / 1e3
        gated_us, ungated_us = gated.device_ns.median_ns / 1e3, events_us - around_us
        turns.append(
            {
                "gated_us": gated_us,
                "ungated_us": ungated_us,
                "events_us": events_us,
                "around_us": around_us,
                "gated_over_ungated_percent": 100 * (gated_us / ungated_us - 1),
            }
        )
    plan = Plan(mode="throughput", rounds=20, round_ms=30.0, duration_s=10.0)
    (burst,) = require(measure(workspace.loaded, [replay], plan))
    found = {key: statistics.median(turn[key] for turn in turns) for key in turns[0]}
    back_to_back_us = burst.latency_ns / 1e3
    return {
        **found,
        "back_to_back_us": back_to_back_us,
        "gated_over_back_to_back_percent": 100 * (found["gated_us"] / back_to_back_us - 1),
    }


def work_on(model: str, quick: bool) -> dict[str, Any]:
    """One model: prices and gate at batch 1, gate at the large batch."""
    found: dict[str, Any] = {}
    repeats = 2 if quick else 5
    for batch in (1, _LARGE):
        loaded = load_model(model, device="cuda", dtype="fp16", batch=batch, tiny=quick)
        workspace = Workspace(loaded)
        replay = find_runtime("launch-replay").prepare(workspace, "cpp")
        if batch == 1:
            found["launch"] = price_launches(workspace, replay, repeats)
        found[f"gate, {batch}"] = compare_gate(workspace, replay, repeats)
    return found


def work(options: argparse.Namespace) -> dict[str, Any]:
    """One process: every model; one that cannot be replayed leaves its reason."""
    found: dict[str, Any] = {}
    errors: dict[str, str] = {}
    for model in options.models:
        try:
            found[model] = work_on(model, options.quick)
        except FtaxError as error:
            errors[model] = str(error)
    environment = collect_environment(device="cuda").to_dict()
    return {"models": found, "errors": errors, "environment": environment}


def collect(
    outputs: Sequence[Mapping[str, Any]], model: str, part: str, key: str
) -> tuple[Any, ...]:
    """What each process that has it found under ``key``."""
    found = [output["models"].get(model, {}).get(part, {}).get(key) for output in outputs]
    return tuple(value for value in found if value is not None)


def make_figures(outputs: Sequence[Mapping[str, Any]], models: Sequence[str]) -> list[Figure]:
    """A value a process."""
    ratios = {
        "over_doctor": ("a launch of replay over 'launch, host' of ftax doctor", _LAUNCH_LIMIT),
        "over_floor": ("a launch of replay over an empty kernel, same stream", _LAUNCH_LIMIT),
        "kernel_over_floor": ("a kernel of replay over an empty kernel", None),
        "kernel_over_small_kernel": ("a kernel of replay over a small one, both driver", None),
    }
    figures = [Figure(name="models", values=_count_models(outputs), unit="", at_least=len(models))]
    for model in models:
        for key, (words, limit) in ratios.items():
            if values := collect(outputs, model, "launch", key):
                name = f"{model}: {words}"
                figures.append(Figure(name=name, values=values, unit="ratio", at_most=limit))
        gate = f"gate, {_LARGE}"
        if values := collect(outputs, model, gate, "gated_over_ungated_percent"):
            name = f"{model}: gated over ungated device time, batch {_LARGE}, minus 1"
            limits = {"at_least": -_GATE_LIMIT, "at_most": _GATE_LIMIT}
            figures.append(Figure(name=name, values=values, unit="%", **limits))
        if values := collect(outputs, model, gate, "gated_over_back_to_back_percent"):
            name = f"{model}: gated over back to back, batch {_LARGE}, minus 1"
            figures.append(Figure(name=name, values=values, unit="%"))
    return figures


def _count_models(outputs: Sequence[Mapping[str, Any]]) -> tuple[float, ...]:
    return tuple(float(len(output["models"])) for output in outputs)


def show_outputs(outputs: Sequence[Mapping[str, Any]], models: Sequence[str]) -> None:
    """Medians over processes: prices of launches, and device times."""
    names = ("replay", "replay, a kernel", "empty kernel", "small kernel", "copy", "fill", _DOCTOR)
    rows = []
    for model in models:
        prices = collect(outputs, model, "launch", "prices_ns")
        rows.append((model, *(_format([price.get(name) for price in prices]) for name in names)))
    show("host time per launch at batch 1, ns", ("model", *names), rows)
    keys = ("gated_us", "ungated_us", "events_us", "around_us", "back_to_back_us")
    rows = [
        (f"{model}, {b}", *(_format(collect(outputs, model, f"gate, {b}", key)) for key in keys))
        for model in models
        for b in (1, _LARGE)
    ]
    titles = ("gated", "ungated", "between events", "around an empty kernel", "back to back")
    show("device time of one launch replay, us", ("model, batch", *titles), rows)


def _format(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{statistics.median(known):.1f}" if known else "-"


def main() -> None:
    """Run the workers, print the tables, save the record."""
    parser = make_parser(__doc__)
    parser.add_argument("--models", nargs="+", default=_MODELS, help=" ".join(_MODELS))
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(work(options)))
        return
    outputs = run_workers(__file__, options, "--models", *options.models)
    for index, output in enumerate(outputs):
        for model, reason in output["errors"].items():
            progress(f"gpu_launch: {model} failed in process {index + 1}: {reason}")
    show_outputs(outputs, options.models)
    raw = [{key: output[key] for key in ("models", "errors")} for output in outputs]
    figures = make_figures(outputs, options.models)
    finish(__file__, options, figures, raw=raw, environment=outputs[0]["environment"])


if __name__ == "__main__":
    main()
