"""The machine's own floor: what the smallest things cost here, before any model runs.

Each floor is timed by the loop that times models, so it can be held against any result of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass

import torch

from ftax import _core
from ftax.errors import UnavailableError, describe
from ftax.instruments.gate import measure_gate
from ftax.steps.setting import normalize_device
from ftax.tape.recording import dispatch_key_works, record_fragment
from ftax.timing.plan import Plan

_BURST = 200  # launches: long enough for a mean, short enough for any launch queue


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """Median time of one thing, in ns, with what it is."""

    name: str
    time_ns: float
    description: str


def measure_floors(*, device: str = "cpu", quick: bool = False) -> tuple[Floor, ...]:
    """Time the floors of this machine: about a second, or a tenth of that if ``quick``.

    Raises InvalidArgumentError for what is no device, UnavailableError for one that is not there.
    """
    device = normalize_device(device)
    samples = 200 if quick else 2000
    read_ns = _core.measure_clock_cost().read_ns
    floors = [Floor(name="clock read", time_ns=read_ns, description="one read of CLOCK_MONOTONIC")]
    with nullcontext() if device == "cpu" else torch.cuda.device(device):
        has_cuda = device != "cpu" and hasattr(_core, "NullKernelRunner")
        floors += [
            Floor(name=name, time_ns=_time(runner, samples), description=description)
            for listed in (_list_on_host, *([_list_on_gpu] if has_cuda else []))
            for name, runner, description in listed()
        ]
        floors += _time_launches() if has_cuda else []
    return tuple(floors)


def _list_on_host() -> Iterator[tuple[str, _core.Runner, str]]:
    x = torch.ones(1)
    mode = _core.GradMode.inference
    yield "empty runner", _core.EmptyRunner(), "a sample of the timed loop that does nothing"
    for name, function, description in (
        ("empty Python call", lambda: None, "a lambda called from the loop"),
        ("empty extension call", _core.empty, "a pybind11 function"),
        ("empty operator, Python", lambda: x.view(1), "view of one element, from Python"),
    ):
        runner = _core.PythonRunner(function, name, device="cpu", grad_mode=mode)
        yield name, runner, description
    if dispatch_key_works():
        tape = record_fragment(lambda: x.view(1), [x])
        tape.bind_inputs([x])
        taped = _core.TapeRunner(tape, "view", device="cpu", grad_mode=mode)
        yield "empty operator, C++", taped, "the same view, from the tape"


def _list_on_gpu() -> Iterator[tuple[str, _core.Runner, str]]:
    for make, description in (
        (_core.NullKernelRunner, "launch of an empty kernel and synchronise"),
        (_core.NullGraphRunner, "launch of a graph of one empty kernel and synchronise"),
        (_core.EventPairRunner, "two events recorded, and a wait for the second"),
        (_core.SynchronizeRunner, "a wait for an idle stream"),
    ):
        runner = make()
        yield runner.name, runner, description


def _time_launches() -> list[Floor]:
    gated = measure_gate(_core.LaunchBurstRunner(_BURST), launches=_BURST)
    if gated.issue_ns is None or gated.device_ns is None:
        raise UnavailableError(f"the cost of a launch cannot be measured: {gated.reason}")
    return [
        Floor(name=name, time_ns=whole.median_ns / _BURST, description=description)
        for name, whole, description in (
            ("launch, host", gated.issue_ns,
             f"host's part of one of {_BURST} launches of an empty kernel"),
            ("launch, device", gated.device_ns,
             f"device's part of one of {_BURST} empty kernels that wait in its queue"),
        )
    ]  # fmt: skip


def _time(runner: _core.Runner, samples: int) -> float:
    plan = Plan(rounds=5, warmup=50).to_core()
    plan.samples_per_round = samples
    result = _core.measure_rounds([runner], plan)
    (rounds,) = result.runners
    if result.stop_reason == "interrupted":
        raise KeyboardInterrupt
    if rounds.error:
        raise UnavailableError(
            f"the floor {runner.name!r} cannot be measured: {describe(rounds.error)}"
        )
    return float(_core.compute_median(rounds.values_ns))
