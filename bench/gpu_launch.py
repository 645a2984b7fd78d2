"""What launch replay costs the host per launch, and whether a gate changes the device's time.

A replay should cost what the machine charges for launches and nothing else: the reference is a
burst of empty kernels, issued behind the same gate. An ungated replay cannot be timed from Python
without the host's time before its first kernel and after its last; an empty kernel between the same
two events is made of little else, so its span is taken off.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ftax import _core, measure_floors
from ftax.errors import FtaxError, RunnerError
from ftax.instruments.gate import Gated, measure_gate
from ftax.machines.environment import collect_environment
from ftax.runtimes.catalogue import find_runtime
from ftax.runtimes.workspace import Workspace
from ftax.steps.load import load_model
from ftax.timing.candidate import Candidate
from ftax.timing.session import quiet
from record import figure, finish, make_parser, progress, run_workers, show

_MODELS = ("bert-base", "resnet-50", "gpt2")
_LARGE = 32
_BURST, _REPETITIONS, _WARMUP = 200, 20, 3
# The figures: key, words, unit, and the range that is aimed at.
_FIGURES = (
    ("over_doctor", "a launch of replay over 'launch, host' of ftax doctor", "ratio", (None, 1.15)),
    ("over_floor", "a launch of replay over an empty kernel, same stream", "ratio", (None, 1.15)),
    (
        "gated_over_ungated_percent",
        f"gated over ungated device time, batch {_LARGE}, minus 1",
        "%",
        (-3.0, 3.0),
    ),
)


def read_issue_ns(gated: Gated) -> float:
    """Median host time to issue one request. Raises RunnerError if the gate never held."""
    if gated.issue_ns is None:
        raise RunnerError(f"the gate did not hold: {gated.reason}")
    return gated.issue_ns.median_ns


def price_launches(workspace: Workspace, replay: Candidate, repeats: int) -> dict[str, float]:
    """Host time per launch of ``replay`` and of empty kernels, ns, in turns; ratios within them."""
    counted = replay.preparation.launches
    if counted is None:
        raise RunnerError(f"{replay.place} tells no launches; give launch replay")
    empty = workspace.on_stream(_core.LaunchBurstRunner(_BURST))
    turns = []
    for _ in range(repeats):
        prices = {
            name: read_issue_ns(measure_gate(runner, repetitions=_REPETITIONS, launches=count))
            / count
            for name, runner, count in (
                ("replay_ns", replay.runner, counted.count),
                ("empty_ns", empty, _BURST),
            )
        }
        floors = {floor.name: floor.time_ns for floor in measure_floors(device="cuda", quick=True)}
        prices["doctor_ns"] = floors["launch, host"]  # a burst on the default stream
        prices["over_doctor"] = prices["replay_ns"] / prices["doctor_ns"]
        prices["over_floor"] = prices["replay_ns"] / prices["empty_ns"]
        turns.append(prices)
    return take_medians(turns)


def take_medians(turns: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Over turns, by name."""
    return {key: statistics.median(turn[key] for turn in turns) for key in turns[0]}


def time_events_us(runner: _core.Runner, stream: torch.cuda.Stream | None) -> float:
    """Median span between two events on ``stream`` around a synchronised request of ``runner``; the
    second is recorded once the host knows that the request has ended."""
    spans = []
    with quiet():
        for _ in range(_WARMUP + _REPETITIONS):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record(stream)
            runner.run_once()
            end.record(stream)
            end.synchronize()
            spans.append(begin.elapsed_time(end) * 1e3)
    return float(statistics.median(spans[_WARMUP:]))


def compare_gate(workspace: Workspace, replay: Candidate, repeats: int) -> dict[str, float]:
    """Device time of one replay behind the gate and without it, in turns, us."""
    empty = workspace.on_stream(_core.NullKernelRunner())
    turns = []
    for _ in range(repeats):
        gated = measure_gate(replay.runner, repetitions=_REPETITIONS)
        if gated.device_ns is None:
            raise RunnerError(f"the gate did not hold: {gated.reason}")
        events_us, around_us = (
            time_events_us(runner, workspace.stream) for runner in (replay.runner, empty)
        )
        gated_us, ungated_us = gated.device_ns.median_ns / 1e3, events_us - around_us
        turns.append(
            {
                "gated_us": gated_us,
                "ungated_us": ungated_us,
                "gated_over_ungated_percent": 100 * (gated_us / ungated_us - 1),
            }
        )
    return take_medians(turns)


def work(options: argparse.Namespace) -> dict[str, Any]:
    """One process: prices at batch 1, the gate at the large batch; a model that cannot be replayed
    leaves its reason."""
    found: dict[str, Any] = {}
    errors: dict[str, str] = {}
    repeats = 2 if options.quick else 5
    for model in options.models:
        found[model] = {}
        for batch, take in ((1, price_launches), (_LARGE, compare_gate)):
            try:
                loaded = load_model(
                    model, device="cuda", dtype="fp16", batch=batch, tiny=options.quick
                )
                workspace = Workspace(loaded)
                replay = find_runtime("launch-replay").prepare(workspace, "cpp")
                found[model] |= take(workspace, replay, repeats)
            except FtaxError as error:
                errors[f"{model}, batch {batch}"] = str(error)
    environment = collect_environment(device="cuda").to_dict()
    return {"models": found, "errors": errors, "environment": environment}


def main() -> None:
    """Run the workers, print the table, save the record."""
    parser = make_parser(__doc__)
    parser.add_argument("--models", nargs="+", default=_MODELS, help=" ".join(_MODELS))
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(work(options)))
        return
    outputs = run_workers(__file__, options, "--models", *options.models)
    for output in outputs:
        for what, reason in output["errors"].items():
            progress(f"gpu_launch: {what} failed: {reason}")
    failed = tuple(float(len(output["errors"])) for output in outputs)
    figures = [figure("failed", failed, "cells", at_most=0)]
    rows = []
    for model in options.models:
        found = [output["models"][model] for output in outputs]
        keys = ("replay_ns", "empty_ns", "doctor_ns", "gated_us", "ungated_us")
        values = {key: [one[key] for one in found if key in one] for key in found[0]}
        rows.append((model, *(f"{statistics.median(values[key]):.1f}" if values.get(key) else "-"
                              for key in keys)))  # fmt: skip
        figures += [
            figure(f"{model}: {words}", values[key], unit, at_most=most, at_least=least)
            for key, words, unit, (least, most) in _FIGURES if values.get(key)
        ]  # fmt: skip
    columns = ("model", "replay, ns a launch", "empty kernel", "ftax doctor",
               f"gated, batch {_LARGE}, us", "ungated")  # fmt: skip
    show("launch replay: host time of a launch, device time of a replay", columns, rows)
    raw = [{key: output[key] for key in ("models", "errors")} for output in outputs]
    finish(__file__, options, figures, raw=raw, environment=outputs[0]["environment"])


if __name__ == "__main__":
    main()
