"""What it costs to be watched: latency of one inference under each observer of the GPU.

BERT-base eager, by Python and from the C++ tape: unobserved, under ftax's trace, and under
torch.profiler. All take turns in one process, in random order, and each is compared with the
unobserved latency of its round. What ftax leaves when it takes CUPTI out again comes first:
unobserved, then by turns traced, detached and unobserved. Latencies that the host decides go with
its clock, so these are compared in cycles. ``--left-behind --processes 10`` does that alone.
"""

from __future__ import annotations

import gc
import json
import random
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from ftax import _core
from ftax.errors import RunnerError
from ftax.instruments.trace.tracer import detach, require_tracer
from ftax.machines.environment import collect_environment
from ftax.runtimes.catalogue import find_runtime
from ftax.runtimes.workspace import Workspace
from ftax.steps.load import load_model
from ftax.timing.candidate import Host
from ftax.timing.session import quiet
from record import Figure, figure, finish, make_parser, run_workers, show

_MODEL = "bert-base"
_SUBJECTS: dict[str, tuple[str, Host]] = {
    "Python eager": ("eager", "python"),
    "tape": ("eager", "cpp"),
}
_WARMUP = 5  # under the observer, in every round
_NONE, _OURS, _TORCH = "nothing", "ftax, kernels", "torch.profiler, CUDA"


def time_requests(runner: _core.Runner, iterations: int) -> tuple[list[int], float]:
    """Wall time of each of ``iterations`` requests in ftax's loop, ns, which takes two rounds or
    more; and how long the probe of the host's clock took."""
    plan = _core.RoundPlan()
    rule = plan.rule
    rule.fixed, rule.min_rounds, rule.max_rounds = True, 2, 2
    plan.rule = rule
    plan.warmup.iterations = _WARMUP
    plan.dropped_per_round = 1
    plan.samples_per_round = iterations // 2 + 1
    result = _core.measure_rounds([runner], plan)
    (rounds,) = result.runners
    if rounds.error:
        raise RunnerError(rounds.error)
    walls = [sample for samples in rounds.samples_ns for sample in samples[rounds.dropped :]]
    return walls, statistics.median(probe.loop_ns for probe in result.probes)


def trace(runner: _core.Runner, iterations: int, *kinds: str) -> list[int]:
    """Wall times under ftax's trace: device activities, and calls of ``kinds``."""
    traced = _core.trace_runner(runner, iterations=iterations, warmup=_WARMUP, kinds=list(kinds))
    if not traced.kernels:
        raise RunnerError(f"the trace of {runner.name} has no kernels; nothing was observed")
    return [end - begin for begin, _, end in traced.iterations]


def profile_with_torch(runner: _core.Runner, iterations: int) -> list[int]:
    """Under torch.profiler, whose start and stop are outside of every request."""
    with profile(activities=[ProfilerActivity.CUDA]):
        return time_requests(runner, iterations)[0]


_OBSERVERS: dict[str, Callable[[_core.Runner, int], list[int]]] = {
    _NONE: lambda runner, iterations: time_requests(runner, iterations)[0],
    _OURS: trace,
    _TORCH: profile_with_torch,
}


def look_left_behind(runner: _core.Runner, turns: int, iterations: int) -> dict[str, float]:
    """Latency after each trace that was detached, and after one that was not, over that before the
    first, all in lengths of the probe of the host's clock."""

    def take_one() -> float:
        walls, probe_ns = time_requests(runner, iterations)
        return _core.compute_median(walls) / probe_ns

    with quiet():
        before = [take_one() for _ in range(turns)]
        after = []
        for _ in range(turns):
            trace(runner, iterations, "runtime", "driver")
            if not detach():
                raise RunnerError("CUPTI could not be detached")
            after.append(take_one())
        trace(runner, iterations, "runtime", "driver")
        attached = [take_one() for _ in range(turns)]
        detach()
    middle = statistics.median(before)
    return {
        "after a trace that was detached": statistics.median(after) / middle,
        "after a trace that was not": statistics.median(attached) / middle,
    }


def take_turns(runner: _core.Runner, rounds: int, iterations: int) -> dict[str, float]:
    """Latency under each observer over that of nothing in the same round, the median; and ftax's
    over torch.profiler's."""
    order = random.Random(0)
    found: dict[str, list[float]] = {name: [] for name in _OBSERVERS}
    with quiet():
        for _ in range(rounds):
            for name in order.sample(list(_OBSERVERS), len(_OBSERVERS)):
                found[name].append(_core.compute_median(_OBSERVERS[name](runner, iterations)))
                gc.collect()  # what a profiler leaves; everything older is frozen
    return {
        **{name: divide(found[name], found[_NONE]) for name in (_OURS, _TORCH)},
        "ours_to_torch": divide(found[_OURS], found[_TORCH]),
        "nothing_us": statistics.median(found[_NONE]) / 1e3,
    }


def divide(values: Sequence[float], bases: Sequence[float]) -> float:
    """The median ratio of a round."""
    return statistics.median(a / b for a, b in zip(values, bases, strict=True))


def work(quick: bool, left_behind: bool) -> dict[str, Any]:
    """One process."""
    require_tracer()
    torch.set_num_threads(1)
    rounds, iterations = (5, 20) if quick else (7, 30)
    workspace = Workspace(load_model(_MODEL, dtype="fp16", device="cuda", tiny=quick))
    runners = {
        name: find_runtime(runtime).prepare(workspace, host).runner
        for name, (runtime, host) in _SUBJECTS.items()
    }
    for runner in runners.values():
        for _ in range(50):
            runner.run_once()
    left = {name: look_left_behind(runner, rounds, iterations) for name, runner in runners.items()}
    found = {
        name: {} if left_behind else take_turns(runner, rounds, iterations)
        for name, runner in runners.items()
    }
    environment = collect_environment(device="cuda").to_dict()
    return {"left": left, "observed": found, "environment": environment}


def make_figures(outputs: Sequence[dict[str, Any]]) -> list[Figure]:
    """What each observer costs, and what a trace leaves; targets are on the tape, which hides least
    of it."""
    figures = []
    for subject in _SUBJECTS:
        on_tape = subject == "tape"
        for title in outputs[0]["left"][subject]:
            values = tuple(output["left"][subject][title] for output in outputs)
            limit = 1.02 if title.endswith("detached") else None
            name = f"{subject}, {title}, in cycles"
            figures.append(figure(name, values, "of before", at_most=limit))
        for key, name, unit, limit in (
            (_OURS, f"{subject} under {_OURS}", "of unobserved", 1.05),
            (_TORCH, f"{subject} under {_TORCH}", "of unobserved", None),
            ("ours_to_torch", f"{subject}: {_OURS}, against {_TORCH}", "of its latency", 1.0),
        ):
            values = tuple(o["observed"][subject][key] for o in outputs if o["observed"][subject])
            if values:
                most = limit if on_tape else None
                figures.append(figure(name, values, unit, at_most=most))
    return figures


def main() -> None:
    """Run the workers, print the table, save the record."""
    parser = make_parser(__doc__)
    parser.add_argument("--left-behind", action="store_true", help="only what a trace leaves")
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(work(options.quick, options.left_behind)))
        return
    outputs = run_workers(__file__, options, *["--left-behind"] * options.left_behind)
    rows = []
    for subject in _SUBJECTS:
        found = [{**o["left"][subject], **o["observed"][subject]} for o in outputs]
        rows += [
            (subject, name, f"{statistics.median(one[name] for one in found):.3f}")
            for name in found[0]
        ]
    show(f"{_MODEL} fp16, batch 1: latency over that of nothing", ("subject", "under", "ratio"),
         rows, left=2)  # fmt: skip
    raw = [{name: output[name] for name in ("observed", "left")} for output in outputs]
    figures = make_figures(outputs)
    finish(__file__, options, figures, raw=raw, environment=outputs[0]["environment"])


if __name__ == "__main__":
    main()
