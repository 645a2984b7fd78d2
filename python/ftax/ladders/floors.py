"""The machine's own floor: what the smallest things cost here, before any model runs.

Each floor is timed by the loop that times models, so it can be held against any result of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from ftax import _core
from ftax.errors import UnavailableError
from ftax.instruments.gate import measure_gate
from ftax.runtimes.tape.recording import dispatch_key_works, record_fragment
from ftax.steps.setting import normalize_device

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
    clock = _core.measure_clock_cost()
    floors = [
        Floor(name="clock read", time_ns=clock.read_ns, description="one read of CLOCK_MONOTONIC"),
        Floor(
            name="empty runner",
            time_ns=_time(_core.EmptyRunner(), samples),
            description="a sample of the timed loop that does nothing",
        ),
        _time_python("empty Python call", lambda: None, "a lambda called from the loop", samples),
        _time_python("empty extension call", _core.empty, "a pybind11 function", samples),
        *_time_operators(samples),
    ]
    if device != "cpu":
        with torch.cuda.device(device):
            floors += _time_cuda(samples)
    return tuple(floors)


def _time_operators(samples: int) -> list[Floor]:
    x = torch.ones(1)
    python = _time_python(
        "empty operator, Python", lambda: x.view(1), "view of one element, from Python", samples
    )
    if not dispatch_key_works():
        return [python]
    tape = record_fragment(lambda: x.view(1), [x])
    tape.bind_inputs([x])
    runner = _core.TapeRunner(tape, "view", device="cpu", grad_mode=_core.GradMode.inference)
    cpp = Floor(
        name="empty operator, C++",
        time_ns=_time(runner, samples),
        description="the same view, from the tape",
    )
    return [python, cpp]


def _time_cuda(samples: int) -> list[Floor]:
    if not hasattr(_core, "NullKernelRunner"):
        return []
    runners = (
        (_core.NullKernelRunner(), "launch of an empty kernel and synchronise"),
        (_core.NullGraphRunner(), "launch of a graph of one empty kernel and synchronise"),
        (_core.EventPairRunner(), "two events recorded, and a wait for the second"),
        (_core.SynchronizeRunner(), "a wait for an idle stream"),
    )
    floors = [
        Floor(name=runner.name, time_ns=_time(runner, samples), description=description)
        for runner, description in runners
    ]
    return [*floors, *_time_launches()]


def _time_launches() -> list[Floor]:
    gated = measure_gate(_core.LaunchBurstRunner(_BURST), launches=_BURST)
    issue, device = gated.issue_ns, gated.device_ns
    if issue is None or device is None:
        raise UnavailableError(f"the cost of a launch cannot be measured: {gated.reason}")
    return [
        Floor(
            name="launch, host",
            time_ns=issue.median_ns / _BURST,
            description=f"host's part of one of {_BURST} launches of an empty kernel",
        ),
        Floor(
            name="launch, device",
            time_ns=device.median_ns / _BURST,
            description=f"device's part of one of {_BURST} empty kernels that wait in its queue",
        ),
    ]


def _time_python(
    name: str, function: Callable[[], object], description: str, samples: int
) -> Floor:
    runner = _core.PythonRunner(function, name, device="cpu", grad_mode=_core.GradMode.inference)
    return Floor(name=name, time_ns=_time(runner, samples), description=description)


def _time(runner: _core.Runner, samples: int) -> float:
    plan = _core.RoundPlan()
    rule = plan.rule
    rule.fixed = True
    rule.min_rounds = rule.max_rounds = 5
    plan.rule = rule
    plan.samples_per_round = samples
    plan.warmup.iterations = 50
    result = _core.measure_rounds([runner], plan)
    (rounds,) = result.runners
    if result.stop_reason == "interrupted":
        raise KeyboardInterrupt
    if rounds.error:
        raise UnavailableError(f"the floor {runner.name!r} cannot be measured: {rounds.error}")
    return float(_core.compute_median(rounds.values_ns))
