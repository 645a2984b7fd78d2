"""Whether a verdict is only the clock's: the claim once more, with all latencies at one host clock.

Cells of one machine are measured minutes apart, and a core that boosts runs a quarter faster. The
surprising choice: nothing is corrected. What was measured is what is reported; a verdict that turns
at one clock is not resolved.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace

from ftax.paper.claims.gpu import Gpu, is_latency
from ftax.paper.claims.record import ClaimValue, Verdict
from ftax.paper.claims.today import ClaimPlan
from ftax.sweeps.record import SweepCell
from ftax.timing.comparison import SAME_CLOCK

_OTHER_VALUE = 0.05
_MOST_VALUES = 3


def find_clock(cell: SweepCell) -> float | None:
    """Of the host's core while a cell was timed, in Hz."""
    found = cell.facts.get("core_hz")
    return float(found) if isinstance(found, int | float) and found > 0 else None


def bring_to_one_clock(gpu: Gpu) -> Gpu:
    """The same cells as if the host's core had always run at their middle clock.

    Only the part of a latency in which the device is idle goes with the clock. Cells without a
    known clock or busy time stay as they are.
    """
    clocks = [clock for cell in gpu.cells.values() if (clock := find_clock(cell)) is not None]
    if not clocks:
        return gpu
    middle = statistics.median(clocks)
    return Gpu.of(gpu.label, gpu.kind, (_scale(cell, middle) for cell in gpu.every))


def _scale(cell: SweepCell, to_hz: float) -> SweepCell:
    clock = find_clock(cell)
    if clock is None or cell.busy_ns is None or not cell.values_ns:
        return cell
    idle_share = max(0.0, 1 - cell.busy_ns / cell.latency_ns)
    factor = 1 + idle_share * (clock / to_hz - 1)
    return replace(cell, values_ns=tuple(value * factor for value in cell.values_ns))


def weigh_clock(
    verdict: Verdict,
    plan: ClaimPlan,
    gpus: Sequence[Gpu],
    judge_at_one_clock: Callable[[], Verdict],
) -> Verdict:
    """``verdict`` of ``gpus``; "not resolved" if the cells of one were timed at several clocks and
    it turns at one for each. If it stays, a note has the numbers that do not."""
    spans = [clocks for gpu in gpus if (clocks := _list_clocks(plan, gpu))]
    if verdict.today == "cannot be tested here" or not spans:
        return verdict
    clocks = max(spans, key=lambda clocks: max(clocks) / min(clocks))
    if max(clocks) <= (1 + SAME_CLOCK) * min(clocks):
        return verdict
    steady = judge_at_one_clock()
    span = f"the host's core ran at {min(clocks) / 1e9:.2f} to {max(clocks) / 1e9:.2f} GHz"
    at_one = {value.name: value for value in steady.values}
    others = [_describe_change(value, at_one[value.name]) for value in verdict.values]
    changes = ", ".join([text for text in others if text][:_MOST_VALUES])
    if steady.today == verdict.today:
        notes = [f"{span}; at one clock {changes}"] if changes else []
        return replace(verdict, notes=(*verdict.notes, *notes))
    where = f", where {changes}" if changes else ""
    reason = f"{span}: {verdict.today} as measured, {steady.today} at one clock{where}"
    return replace(
        verdict,
        today="not resolved",
        sentence=f"Open on {verdict.machine}: {reason}.",
        reason="; ".join(filter(None, (reason, verdict.reason))),
    )


def _list_clocks(plan: ClaimPlan, gpu: Gpu) -> list[float]:
    """Of the cells whose latencies a claim looks at."""
    items = (item for operand in plan.operands.values() for item in operand.items)
    cells = (gpu.find(item) for item in items if is_latency(item))
    found = (find_clock(cell) for cell in cells if isinstance(cell, SweepCell))
    return [clock for clock in found if clock is not None]


def _describe_change(measured: ClaimValue, steady: ClaimValue) -> str:
    """A single number that is another at one clock."""
    if len(measured.today) != 1 or len(steady.today) != 1 or not measured.today[0]:
        return ""
    (old,), (new,) = measured.today, steady.today
    return f"{measured.name} is {new:.4g}" if abs(new / old - 1) > _OTHER_VALUE else ""
