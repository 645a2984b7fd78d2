"""The rounds of a receipt, `ftax.py_bench` and the loop that people write by hand, by turns.

The surprising choice is the turns, many and short. On a host with neighbours the same loop can take
a tenth longer half a minute later, so one stretch of each says little about the others. A ratio
within a turn does, and the median of these ratios does not mind the turn in which a neighbour came.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch

import ftax
from ftax import _core
from ftax.ladders.choice import prepare_all
from ftax.ladders.ladder import EAGER
from ftax.runtimes.workspace import Workspace
from ftax.steps.loaded import LoadedModel
from ftax.timing.measurement import Measurement
from ftax.timing.session import Plan, measure, quiet, require

ROUNDS, BENCH, LOOP = "rounds", "py_bench", "plain loop"
_CONFIDENCE = 0.95
_ROUNDS = 2  # of the ladder in one turn
_BLOCKS = 6  # of the others: they are of one runner, so a turn of theirs takes about half as long
_BLOCK_NS = 20e6  # as long as a runner's part of a round
_WARMUP = 3  # requests: it ran a moment ago


def take_turns(loaded: LoadedModel, turns: int) -> dict[str, list[float]]:
    """Latency of Python eager in ns, one number a turn from each of the three: the median of its
    rounds or blocks, because a turn is too short to average a neighbour out."""
    prepared, _ = prepare_all(Workspace(loaded), EAGER.list_places(loaded.device), None)
    ladder, alone = (Plan(warmup=_WARMUP, rounds=count) for count in (_ROUNDS, _BLOCKS))
    timers: dict[str, Callable[[], float]] = {
        ROUNDS: lambda: find_middle(require(measure(loaded, prepared, ladder))[0]),
        BENCH: lambda: find_middle(ftax.py_bench(loaded, plan=alone)),
        LOOP: lambda: time_by_hand(loaded, _BLOCKS),
    }
    order = random.Random(0)
    found: dict[str, list[float]] = {name: [] for name in timers}
    with quiet():  # once: all garbage of a process with a model takes a fifth of a second
        for _ in range(turns):
            for name in order.sample(sorted(timers), len(timers)):
                found[name].append(timers[name]())
    return found


def find_middle(measurement: Measurement) -> float:
    """Median of the rounds that count, ns."""
    return statistics.median(measurement.values_ns)


def time_by_hand(loaded: LoadedModel, blocks: int) -> float:
    """Median of each block's median, ns: a plain Python loop.

    On a stream that is not the default one and under inference mode, as ftax times it.
    """
    call, on_gpu = loaded.bind(), loaded.device != "cpu"

    def time_one() -> int:
        start_ns = time.perf_counter_ns()
        call()
        if on_gpu:
            torch.cuda.synchronize()
        return time.perf_counter_ns() - start_ns

    if on_gpu:
        torch.cuda.synchronize()
    stream = torch.cuda.stream(torch.cuda.Stream()) if on_gpu else nullcontext()
    with stream, torch.inference_mode():
        warm = [time_one() for _ in range(_WARMUP)]
        size = max(5, int(_BLOCK_NS / statistics.median(warm)))
        medians = [statistics.median([time_one() for _ in range(size)][1:]) for _ in range(blocks)]
    return statistics.median(medians)


def judge_turns(times: Mapping[str, Sequence[float]], margin: float) -> dict[str, Any]:
    """How far what others timed is off the rounds in percent, and whether it agrees: the median of
    the ratios of one turn, with its 95 % interval, which assumes no distribution.

    "intervals": 0 lies in an interval of at most ``margin`` percent on either side; "within": all
    of the interval is within the margin; "no": all of it is beyond; else "cannot tell", as for
    fewer than six turns, of which no interval has 95 %.
    """
    judged = {}
    for name in (BENCH, LOOP):
        ratios = [one / other for one, other in zip(times[name], times[ROUNDS], strict=True)]
        found = _core.compute_median_interval(ratios, _CONFIDENCE)
        low, high = 100 * (found.interval.low - 1), 100 * (found.interval.high - 1)
        judged[name] = {
            "difference_percent": 100 * (found.median - 1),
            "interval_percent": [low, high],
            "agrees": _choose_verdict(low, high, margin) if found.attained else "cannot tell",
        }
    return judged


def _choose_verdict(low: float, high: float, margin: float) -> str:
    if low <= 0 <= high and (high - low) / 2 <= margin:
        return "intervals"
    if -margin <= low and high <= margin:
        return f"within {margin:g} %"
    return "no" if low > margin or high < -margin else "cannot tell"
