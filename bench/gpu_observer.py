"""What it costs to be watched: latency of one inference under each observer of the GPU.

BERT-base eager, by Python and from the C++ tape: unobserved; under ftax's trace with kernel records
alone, with calls of the runtime, and of the driver too; under torch.profiler. The surprising
choice: all observers take turns in one process, in random order, and each is compared with the
unobserved latency of its own round. That latency is not quite innocent, since an observer leaves
CUPTI initialised behind it; what it left is a figure of its own, against the rounds before the
first observer.

What ftax leaves when it takes CUPTI out again comes first, in each process: unobserved, then by
turns traced, detached, and unobserved. Latencies that the host decides go with its clock, so they
are compared in cycles of the host's core. ``--left-behind --processes 10`` does that alone.
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
from ftax.instruments.trace.run import detach, require_tracer
from ftax.machines.environment import collect_environment
from ftax.runtimes.catalogue import find_runtime
from ftax.runtimes.workspace import Workspace
from ftax.steps.load import load_model
from ftax.timing.candidate import Host
from ftax.timing.session import quiet
from record import Figure, finish, make_parser, progress, run_workers, show

_MODEL = "bert-base"
_SUBJECTS: dict[str, tuple[str, Host]] = {
    "Python eager": ("eager", "python"),
    "tape": ("eager", "cpp"),
}
_WARMUP = 5  # under the observer, in every round
_NONE = "nothing"
_OURS = "ftax, kernels"
_TORCH = "torch.profiler, CUDA"

Observer = Callable[[_core.Runner, int], list[int]]


def time_unobserved(runner: _core.Runner, iterations: int) -> list[int]:
    """Wall time of each of ``iterations`` requests in ftax's loop, ns; it takes two rounds or
    more."""
    return _time(runner, iterations)[0]


def _time(runner: _core.Runner, iterations: int) -> tuple[list[int], float]:
    """The same, and how long the probe of the host's clock took, ns."""
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


def look_left_behind(runner: _core.Runner, turns: int, iterations: int) -> dict[str, Any]:
    """Latency before the first trace, after each trace that was detached, and after one that was
    not, in lengths of the probe of the host's clock."""

    def take_one() -> float:
        walls, probe_ns = _time(runner, iterations)
        return _core.compute_median(walls) / probe_ns

    observe = trace("runtime", "driver")
    with quiet():
        before = [take_one() for _ in range(turns)]
        after = []
        for _ in range(turns):
            observe(runner, iterations)
            if not detach():
                raise RunnerError("CUPTI could not be detached")
            after.append(take_one())
        observe(runner, iterations)
        attached = [take_one() for _ in range(turns)]
        detach()
    middle = statistics.median(before)
    return {
        "before": before, "after": after, "attached": attached,
        "detached_ratio": statistics.median(after) / middle,
        "attached_ratio": statistics.median(attached) / middle,
    }  # fmt: skip


def trace(*kinds: str) -> Observer:
    """Under ftax's trace; device activities are always recorded, ``kinds`` beside them."""

    def run(runner: _core.Runner, iterations: int) -> list[int]:
        traced = _core.trace_runner(
            runner, iterations=iterations, warmup=_WARMUP, kinds=list(kinds)
        )
        if not traced.kernels:
            raise RunnerError(f"the trace of {runner.name} has no kernels; nothing was observed")
        return [end - begin for begin, _, end in traced.iterations]

    return run


def profile_with_torch(*activities: ProfilerActivity) -> Observer:
    """Under torch.profiler; its start and stop are outside of every request."""

    def run(runner: _core.Runner, iterations: int) -> list[int]:
        with profile(activities=list(activities)):
            return time_unobserved(runner, iterations)

    return run


_OBSERVERS: dict[str, Observer] = {
    _NONE: time_unobserved,
    _OURS: trace(),
    "ftax, + runtime calls": trace("runtime"),
    "ftax, + driver calls": trace("runtime", "driver"),
    _TORCH: profile_with_torch(ProfilerActivity.CUDA),
    "torch.profiler, CPU + CUDA": profile_with_torch(ProfilerActivity.CPU, ProfilerActivity.CUDA),
}


def take(
    observers: Sequence[str], runners: dict[str, _core.Runner], rounds: int, iterations: int
) -> dict[str, dict[str, list[float]]]:
    """Median latency of each runner under each observer, a value a round, ns; all in random order
    in each round."""
    order = random.Random(0)
    found: dict[str, dict[str, list[float]]] = {
        subject: {name: [] for name in observers} for subject in runners
    }
    turns = [(subject, name) for subject in runners for name in observers]
    with quiet():
        for _ in range(rounds):
            for subject, name in order.sample(turns, len(turns)):
                walls = _OBSERVERS[name](runners[subject], iterations)
                found[subject][name].append(_core.compute_median(walls))
                gc.collect()  # what a profiler leaves; everything older is frozen
    return found


def describe(before_ns: list[float], latency_ns: dict[str, list[float]]) -> dict[str, Any]:
    """With the ratio to the unobserved latency of the same round: median and interval."""
    return {
        "before_ns": before_ns,
        "latency_ns": latency_ns,
        "ratios": {
            name: divide(values, latency_ns[_NONE])
            for name, values in latency_ns.items()
            if name != _NONE
        },
        "ours_to_torch": divide(latency_ns[_OURS], latency_ns[_TORCH]),
        "left_behind": statistics.median(latency_ns[_NONE]) / statistics.median(before_ns),
    }


def divide(values: Sequence[float], bases: Sequence[float]) -> dict[str, Any]:
    """Ratio in each round: its median and distribution-free interval, with what it attains."""
    found = _core.compute_median_interval(
        [value / base for value, base in zip(values, bases, strict=True)]
    )
    return {
        "median": found.median,
        "interval": (found.interval.low, found.interval.high),
        "confidence": found.confidence,
    }


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
    left = {name: look_left_behind(runners[name], rounds, iterations) for name in runners}
    environment = collect_environment(device="cuda").to_dict()
    if left_behind:
        return {"left": left, "environment": environment}
    before = take([_NONE], runners, rounds, iterations)
    found = take(list(_OBSERVERS), runners, rounds, iterations)
    subjects = {name: describe(before[name][_NONE], found[name]) for name in runners}
    return {"subjects": subjects, "left": left, "environment": environment}


def show_subjects(outputs: Sequence[dict[str, Any]]) -> None:
    """One row an observer: the median process."""
    for subject in _SUBJECTS:
        found = [output["subjects"][subject] for output in outputs]
        rows = []
        for name in _OBSERVERS:
            latency = statistics.median(
                statistics.median(item["latency_ns"][name]) for item in found
            )
            if name == _NONE:
                rows.append((name, f"{latency / 1e3:.1f}", "1", "-"))
                continue
            ratios = sorted((item["ratios"][name] for item in found), key=lambda r: r["median"])
            middle = ratios[len(ratios) // 2]
            ends = " to ".join(f"{end:.3f}" for end in middle["interval"])
            told = f"{ends} ({middle['confidence']:.0%})"
            rows.append((name, f"{latency / 1e3:.1f}", f"{middle['median']:.3f}", told))
        columns = ("observer", "latency, us", "of unobserved", "interval (median process)")
        show(f"{_MODEL} fp16, batch 1, {subject}", columns, rows)


def make_figures(outputs: Sequence[dict[str, Any]]) -> list[Figure]:
    """What each observer costs; the targets are on the tape, which has least to hide it behind."""
    figures = []
    for subject in _SUBJECTS:
        found = [output["subjects"][subject] for output in outputs]
        on_tape = subject == "tape"
        for name in found[0]["ratios"]:
            values = tuple(item["ratios"][name]["median"] for item in found)
            limit = 1.05 if on_tape and name == _OURS else None
            title = f"{subject} under {name}"
            figures.append(Figure(name=title, values=values, unit="of unobserved", at_most=limit))
        against = tuple(item["ours_to_torch"]["median"] for item in found)
        figures.append(
            Figure(
                name=f"{subject}: ftax, kernels, against torch.profiler, CUDA",
                values=against,
                unit="of its latency",
                at_most=1.0 if on_tape else None,
            )
        )
        left = tuple(item["left_behind"] for item in found)
        figures.append(
            Figure(
                name=f"{subject}: unobserved, after all observers", values=left, unit="of before"
            )
        )
    return figures


def make_left_figures(outputs: Sequence[dict[str, Any]]) -> list[Figure]:
    """What a trace leaves, with CUPTI taken out of the process and with CUPTI in it."""
    figures = []
    for subject in _SUBJECTS:
        found = [output["left"][subject] for output in outputs]
        for key, title, limit in (
            ("detached_ratio", "after a trace that was detached", 1.02),
            ("attached_ratio", "after a trace that was not", None),
        ):
            values = tuple(item[key] for item in found)
            name = f"{subject}, {title}, in cycles"
            figures.append(Figure(name=name, values=values, unit="of before", at_most=limit))
    return figures


def main() -> None:
    """Run the workers, print the tables, save the record."""
    parser = make_parser(__doc__)
    parser.add_argument("--left-behind", action="store_true", help="only what a trace leaves")
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(work(options.quick, options.left_behind)))
        return
    if not torch.cuda.is_available():
        progress("gpu_observer: torch finds no CUDA device, so there is nothing to observe")
        return
    flags = ["--left-behind"] if options.left_behind else []
    outputs = run_workers(__file__, options, *flags)
    figures = make_left_figures(outputs)
    if not options.left_behind:
        show_subjects(outputs)
        figures += make_figures(outputs)
    raw = [{name: output.get(name) for name in ("subjects", "left")} for output in outputs]
    finish(__file__, options, figures, raw=raw, environment=outputs[0]["environment"])


if __name__ == "__main__":
    main()
