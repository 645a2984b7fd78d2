"""What one sample of the timed loop costs, and what other timers charge for the same nothing.

The loop's promise is two clock reads and 10 ns. The surprising choice: the price of a whole sample
is taken from the report of a warm-up of fixed length, which is the only place where the loop runs
without the bookkeeping of a round around it.
"""

from __future__ import annotations

import json
import statistics
import time
import timeit
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch.utils.benchmark import Timer

from ftax import _core
from ftax.machines.environment import collect_environment
from record import Figure, finish, make_parser, run_workers, show

_BUDGET_NS = 10.0
_REPEATS = 11


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Of one sample, ns. ``p50_ns`` is None where the tool takes no samples, only a total."""

    p50_ns: float | None
    mean_ns: float
    wall_ns: float  # including all that the tool does between two samples


def nothing() -> None:
    """The work that is timed."""


def time_runner(runner: _core.Runner, samples: int) -> Cost:
    """The loop of ftax."""
    plan = _core.RoundPlan()
    rule = plan.rule
    rule.fixed = True
    rule.min_rounds = rule.max_rounds = 2
    plan.rule = rule
    plan.warmup.iterations = plan.samples_per_round = samples
    walls, p50s, means = [], [], []
    for _ in range(_REPEATS):
        (rounds,) = _core.measure_rounds([runner], plan).runners
        summary = _core.summarize(rounds.samples_ns[1][1:])
        walls.append(rounds.warmup.elapsed_ns / rounds.warmup.iterations)
        p50s.append(summary.p50)
        means.append(summary.mean)
    median = statistics.median
    return Cost(p50_ns=median(p50s), mean_ns=median(means), wall_ns=median(walls))


def time_python_loop(samples: int) -> Cost:
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
    taken = [timer.timeit(1) for _ in range(samples)]
    total_ns = time.perf_counter_ns() - start
    return make_cost([measurement.mean * 1e9 for measurement in taken], total_ns)


def time_total(function: Callable[[int], float], samples: int) -> Cost:
    """A tool that reads the clock once for all executions; ``function`` returns ns for all."""
    each = function(samples) / samples
    return Cost(p50_ns=None, mean_ns=each, wall_ns=each)


def make_cost(taken_ns: list[float] | list[int], total_ns: int) -> Cost:
    """From samples and the time that taking them took."""
    return Cost(
        p50_ns=statistics.median(taken_ns),
        mean_ns=statistics.fmean(taken_ns),
        wall_ns=total_ns / len(taken_ns),
    )


def work(quick: bool) -> dict[str, Any]:
    """One process: the cost of a sample with each tool."""
    samples = 2_000 if quick else 20_000
    torch.set_num_threads(1)
    python_runner = _core.PythonRunner(
        nothing, "nothing", device="cpu", grad_mode=_core.GradMode.inference
    )
    torch_timer = Timer("nothing()", globals={"nothing": nothing})
    costs = {
        "ftax loop, empty runner (C++)": time_runner(_core.EmptyRunner(), samples),
        "ftax loop, empty Python function": time_runner(python_runner, samples),
        "perf_counter_ns in a Python loop": time_python_loop(samples),
        "timeit.repeat, number=1": time_timeit(samples),
        "torch Timer.timeit(1)": time_torch_timer(samples // 20),
        "timeit, one total": time_total(lambda n: timeit.timeit(nothing, number=n) * 1e9, samples),
        "torch Timer, one total": time_total(
            lambda n: torch_timer.timeit(n).mean * 1e9 * n, samples
        ),
    }
    return {
        "clock_read_ns": _core.measure_clock_cost().read_ns,
        "costs": {name: asdict(cost) for name, cost in costs.items()},
        "environment": collect_environment().to_dict(),
    }


def main() -> None:
    """Run the workers, print the table, save the record."""
    options = make_parser(__doc__).parse_args()
    if options.worker:
        print(json.dumps(work(options.quick)))
        return
    outputs = run_workers(__file__, options)

    def median(tool: str, field: str) -> str:
        values = [output["costs"][tool][field] for output in outputs]
        return "-" if values[0] is None else f"{statistics.median(values):.0f}"

    read_ns = statistics.median(output["clock_read_ns"] for output in outputs)
    fields = ("p50_ns", "mean_ns", "wall_ns")
    show(
        f"ns per sample of nothing (one clock read: {read_ns:.1f} ns)",
        ("tool", "sample p50", "sample mean", "wall per sample"),
        [(tool, *(median(tool, field) for field in fields)) for tool in outputs[0]["costs"]],
    )
    empty = "ftax loop, empty runner (C++)"
    over = {
        field: tuple(o["costs"][empty][field] - 2 * o["clock_read_ns"] for o in outputs)
        for field in ("p50_ns", "wall_ns")
    }
    called = tuple(o["costs"]["ftax loop, empty Python function"]["p50_ns"] for o in outputs)
    figures = [
        Figure(
            name="wall per sample beyond two clock reads",
            values=over["wall_ns"],
            unit="ns",
            at_most=_BUDGET_NS,
        ),
        Figure(
            name="sample p50 beyond two clock reads",
            values=over["p50_ns"],
            unit="ns",
            at_most=_BUDGET_NS,
        ),
        Figure(name="sample p50 of an empty Python function", values=called, unit="ns"),
    ]
    raw = [{key: o[key] for key in ("clock_read_ns", "costs")} for o in outputs]
    finish(__file__, options, figures, raw=raw, environment=outputs[0]["environment"])


if __name__ == "__main__":
    main()
