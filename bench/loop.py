"""What one sample of the timed loop costs, and what other timers charge for the same nothing.

The loop's promise is two clock reads and 10 ns. The price of a whole sample is taken from the
report of a warm-up of fixed length, where the loop runs without the bookkeeping of a round.
"""

from __future__ import annotations

import json
import statistics
import time
import timeit
from typing import Any

import torch
from torch.utils.benchmark import Timer

from ftax import _core
from ftax.machines.environment import collect_environment
from record import figure, finish, make_parser, run_workers, show

_BUDGET_NS = 10.0
_REPEATS = 11
_EMPTY, _PYTHON = "ftax loop, empty runner (C++)", "ftax loop, empty Python function"

Cost = dict[str, float]  # ns: p50 and mean of the samples, and wall per sample, all in


def nothing() -> None:
    """The work that is timed."""


def time_runner(runner: _core.Runner, samples: int) -> Cost:
    """The loop of ftax."""
    plan = _core.RoundPlan()
    rule = plan.rule
    rule.fixed, rule.min_rounds, rule.max_rounds = True, 2, 2
    plan.rule = rule
    plan.warmup.iterations = plan.samples_per_round = samples
    found = []
    for _ in range(_REPEATS):
        (rounds,) = _core.measure_rounds([runner], plan).runners
        summary = _core.summarize(rounds.samples_ns[1][1:])
        wall_ns = rounds.warmup.elapsed_ns / rounds.warmup.iterations
        found.append({"p50_ns": summary.p50, "mean_ns": summary.mean, "wall_ns": wall_ns})
    return {key: statistics.median(cost[key] for cost in found) for key in found[0]}


def time_by_hand(samples: int) -> Cost:
    """What people write by hand."""
    clock = time.perf_counter_ns
    taken = [0] * samples
    start = clock()
    for i in range(samples):
        before = clock()
        nothing()
        taken[i] = clock() - before
    return make_cost(taken, clock() - start)


def time_timeit(samples: int) -> Cost:
    """timeit, one execution a sample."""
    start = time.perf_counter_ns()
    taken = timeit.repeat(nothing, number=1, repeat=samples)
    return make_cost([t * 1e9 for t in taken], time.perf_counter_ns() - start)


def time_torch_timer(samples: int) -> Cost:
    """torch.utils.benchmark.Timer, one execution a sample."""
    timer = Timer("nothing()", globals={"nothing": nothing})
    start = time.perf_counter_ns()
    taken = [timer.timeit(1).mean * 1e9 for _ in range(samples)]
    return make_cost(taken, time.perf_counter_ns() - start)


def make_cost(taken_ns: list[float] | list[int], total_ns: int) -> Cost:
    """From samples and the time that taking them took."""
    p50_ns, mean_ns = statistics.median(taken_ns), statistics.fmean(taken_ns)
    return {"p50_ns": p50_ns, "mean_ns": mean_ns, "wall_ns": total_ns / len(taken_ns)}


def work(quick: bool) -> dict[str, Any]:
    """One process: the cost of a sample with each tool."""
    samples = 2_000 if quick else 20_000
    torch.set_num_threads(1)
    called = _core.PythonRunner(
        nothing, "nothing", device="cpu", grad_mode=_core.GradMode.inference
    )
    return {
        "clock_read_ns": _core.measure_clock_cost().read_ns,
        "costs": {
            _EMPTY: time_runner(_core.EmptyRunner(), samples),
            _PYTHON: time_runner(called, samples),
            "perf_counter_ns in a Python loop": time_by_hand(samples),
            "timeit.repeat, number=1": time_timeit(samples),
            "torch Timer.timeit(1)": time_torch_timer(samples // 20),
        },
        "environment": collect_environment().to_dict(),
    }


def main() -> None:
    """Run the workers, print the table, save the record."""
    options = make_parser(__doc__).parse_args()
    if options.worker:
        print(json.dumps(work(options.quick)))
        return
    outputs = run_workers(__file__, options)

    def read(tool: str, key: str, reads: int = 0) -> tuple[float, ...]:
        """Of each process, without so many reads of the clock."""
        return tuple(o["costs"][tool][key] - reads * o["clock_read_ns"] for o in outputs)

    read_ns = statistics.median(output["clock_read_ns"] for output in outputs)
    keys = ("p50_ns", "mean_ns", "wall_ns")
    rows = [
        (tool, *(f"{statistics.median(read(tool, key)):.0f}" for key in keys))
        for tool in outputs[0]["costs"]
    ]
    title = f"ns per sample of nothing (one clock read: {read_ns:.1f} ns)"
    show(title, ("tool", "sample p50", "sample mean", "wall per sample"), rows)
    figures = [
        figure(
            "wall per sample beyond two clock reads",
            read(_EMPTY, "wall_ns", 2),
            "ns",
            at_most=_BUDGET_NS,
        ),
        figure(
            "sample p50 beyond two clock reads", read(_EMPTY, "p50_ns", 2), "ns", at_most=_BUDGET_NS
        ),
        figure("sample p50 of an empty Python function", read(_PYTHON, "p50_ns"), "ns"),
    ]
    raw = [{key: o[key] for key in ("clock_read_ns", "costs")} for o in outputs]
    finish(__file__, options, figures, raw=raw, environment=outputs[0]["environment"])


if __name__ == "__main__":
    main()
