"""How lines of a receipt changed under a known delay, and whether that is what was expected.

Shared by the interventions on the CPU and on a GPU. "as expected" is not "close". An interval has
to meet the expected change within 5 % of what was injected, and has to be narrow enough to have
missed it; a wide one says "cannot tell", which is no success.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from delays import weigh_lines
from ftax import _core
from ftax.errors import RunnerError
from record import Figure, figure, show

# Of the injected time: a spin ends up to a clock read late, and what runs after it has gone cold
# (a model of 350 us takes 7 us longer behind a wait of 200 us, wherever the wait comes from).
_TOLERANCE_RATIO = 0.05
_WIDEST_RATIO = 0.10  # half-width of an interval that still says something, of the same

Line = dict[str, Any]


def find_changes(
    names: Sequence[str],
    columns: Sequence[Sequence[float]],
    expected_ns: Sequence[float],
    *,
    injected_ns: float,
) -> list[Line]:
    """Per line of ``names``: the expected and the measured change, its interval (ns), the verdict.

    ``columns`` has one series a rung, a value a round, in ns: first every rung without the delay,
    top to bottom, then every rung with it.
    """
    contrasts = weigh_lines(len(names))
    table = [list(row) for row in zip(*columns, strict=True)]
    if len(table) < 2:
        raise RunnerError(f"{len(table)} round(s) have no interval; give the plan at least two")
    intervals = _core.compute_joint_intervals(table, contrasts)
    means = [statistics.fmean(column) for column in columns]
    lines = []
    for name, weights, wanted, interval in zip(
        names, contrasts, expected_ns, intervals, strict=True
    ):
        ends = (interval.low, interval.high)
        lines.append(
            {
                "line": name,
                "injected_ns": injected_ns,
                "expected_ns": wanted,
                "change_ns": sum(w * mean for w, mean in zip(weights, means, strict=True)),
                "interval_ns": ends,
                "verdict": judge(wanted, ends, injected_ns),
            }
        )
    return lines


def judge(expected_ns: float, interval_ns: Sequence[float], injected_ns: float) -> str:
    """In words; see the top of this file."""
    low, high = interval_ns
    if (high - low) / 2 > _WIDEST_RATIO * injected_ns:
        return "cannot tell"
    slack = _TOLERANCE_RATIO * injected_ns
    return "as expected" if low - slack <= expected_ns <= high + slack else "UNEXPECTED"


def show_changes(outputs: Sequence[Mapping[str, Sequence[Line]]]) -> list[Figure]:
    """Print all lines, and return the figures: what was seen where, and how many lines are right.

    ``outputs`` has the lines of each intervention, for each process.
    """
    rows, figures = [], []
    for name in outputs[0]:
        for place, first in enumerate(outputs[0][name]):
            found = [output[name][place] for output in outputs]
            middle = sorted(found, key=lambda item: item["change_ns"])[len(found) // 2]
            ends = " to ".join(f"{end / 1e3:+.2f}" for end in middle["interval_ns"])
            verdict = statistics.mode(item["verdict"] for item in found)
            agreeing = sum(item["verdict"] == verdict for item in found)
            expected, change = (f"{middle[k] / 1e3:+.2f}" for k in ("expected_ns", "change_ns"))
            told = f"{verdict} {agreeing}/{len(found)}"
            rows.append((name, first["line"], expected, change, ends, told))
            if abs(middle["expected_ns"]) > middle["injected_ns"] / 2:
                ratios = tuple(item["change_ns"] / item["expected_ns"] for item in found)
                limits = {"at_least": 1 - _TOLERANCE_RATIO, "at_most": 1 + _TOLERANCE_RATIO}
                title = f"{name}: seen on {first['line']}"
                figures.append(figure(title, ratios, "of expected", **limits))
    columns = ("intervention", "line", "expected, us", "change, us", "95 % interval", "verdict")
    show("with the delay minus without it (median process)", columns, rows, left=2)
    return [*figures, _count_right(outputs)]


def _count_right(outputs: Sequence[Mapping[str, Sequence[Line]]]) -> Figure:
    lines = [[line for found in output.values() for line in found] for output in outputs]
    right = tuple(float(sum(line["verdict"] == "as expected" for line in found)) for found in lines)
    return figure("lines as expected", right, "lines", at_least=float(len(lines[0])))
