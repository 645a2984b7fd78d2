"""Times lines that adopt a runtime, pasted as they are printed, by turns with its row from Python.

The requests that the lines loop over are a generator, which has the clock. So nothing is added to
the lines, and each request brings other tensors than the one before.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from ftax import _core
from ftax.runtimes.adoption import find_lines
from ftax.runtimes.catalogue import find_runtime
from ftax.runtimes.compilers.inductor import sound_compiler
from ftax.runtimes.workspace import Workspace
from ftax.steps.load import load_model

_TURNS, _CALLS, _DROPPED = 30, 80, 20


def make_model(runtime: str, device: str) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)]
    inputs = torch.randn(2, 8)
    if runtime == "eager-channels-last":
        layers, inputs = [nn.Conv2d(3, 4, 3), nn.ReLU()], torch.randn(2, 3, 8, 8)
    return nn.Sequential(*layers).eval().to(device), (inputs.to(device),)


def bring(
    inputs: tuple[torch.Tensor, ...],
    times_ns: list[float],
    *,
    turns: int = _TURNS,
    between: Callable[[], object] = lambda: None,
) -> Iterator[tuple[torch.Tensor, ...]]:
    """Requests; ``times_ns`` gets the median time of those of each turn."""
    sets = [tuple(x.clone() for x in inputs) for _ in range(2)]
    wait = torch.cuda.synchronize if inputs[0].is_cuda else lambda: None
    for _ in range(turns):
        between()
        samples, before = [], time.perf_counter_ns()
        for number in range(_CALLS):
            yield sets[number % 2]
            wait()
            now = time.perf_counter_ns()
            samples.append(now - before)
            before = now
        times_ns.append(statistics.median(samples[_DROPPED:]))


def time_by_turns(runtime: str, device: str) -> float:
    """How many times as long as its row the pasted lines take, in the median turn."""
    torch.set_num_threads(2 if runtime == "eager-one-thread" else 1)
    model, inputs = make_model(runtime, device)
    row = find_runtime(runtime).prepare(Workspace(load_model(model, inputs=inputs)), "python")
    plan = _core.RoundPlan()
    plan.rule.min_rounds = plan.rule.max_rounds = 2
    plan.samples_per_round, plan.dropped_per_round = _CALLS - _DROPPED, _DROPPED
    plan.warmup.iterations = 1
    rows_ns: list[float] = []
    pasted_ns: list[float] = []
    empty_ns: list[float] = []

    def time_row() -> None:
        rows_ns.append(statistics.median(_measure(row.runner, plan)))

    for _ in bring(inputs, empty_ns, turns=3):
        pass
    names: dict[str, Any] = {"torch": torch, "model": model, "inputs": inputs}
    names["requests"] = bring(inputs, pasted_ns, between=time_row)
    with sound_compiler():
        exec(find_lines(runtime, details=row.preparation.details), names)
    loop_ns = min(empty_ns)
    return statistics.median(
        (pasted - loop_ns) / row for pasted, row in zip(pasted_ns, rows_ns, strict=True)
    )


def _measure(runner: _core.Runner, plan: _core.RoundPlan) -> list[float]:
    (rounds,) = _core.measure_rounds([runner], plan).runners
    assert not rounds.error, rounds.error
    return rounds.values_ns


def main(runtime: str, device: str) -> None:
    warnings.simplefilter("ignore")  # of exporters and compilers
    json.dump(time_by_turns(runtime, device), sys.stdout)
