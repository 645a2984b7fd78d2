"""Delays that are planted, and by how much they move each line of a receipt.

What is measured with and without a delay shares its rounds, so that each move has an interval."""

import time
from collections.abc import Sequence

from ftax.ladders.intervention import weigh_lines
from ftax.timing.differences import compute_intervals
from ftax.timing.measurement import Measurement


def wait(ns: float) -> None:
    """Holds the CPU, as code that computes does."""
    end = time.perf_counter_ns() + ns
    while time.perf_counter_ns() < end:
        pass


def find_moves(
    before: Sequence[Measurement], after: Sequence[Measurement]
) -> list[tuple[float, tuple[float, float]]]:
    """Of each line, top to bottom, by how much it is longer after than before and the interval of
    that, ns; both are of the same rungs."""
    measured = [*before, *after]
    contrasts = weigh_lines(len(before))
    intervals = compute_intervals(measured, contrasts)
    changes = [
        sum(weight * m.latency_ns for weight, m in zip(weights, measured, strict=True))
        for weights in contrasts
    ]
    return list(zip(changes, intervals, strict=True))
