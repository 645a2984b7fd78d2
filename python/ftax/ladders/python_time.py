"""Python's time by line of the model's code, or by module, and how it sums to lines of the receipt.

Times of rows are shares of samples (`instruments/python_samples.py`) of the latency. What the rungs
say Python costs is more on a CPU, where operators take longer below Python than without it, and
less on a GPU that works meanwhile. That difference is a row, so that all rows sum to the lines.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from ftax import _core
from ftax.instruments.python_samples import PythonSamples
from ftax.ladders.receipt import Receipt
from ftax.timing.candidate import Place
from ftax.timing.differences import find_doubt_of

By = Literal["module", "line"]
Ends = tuple[float, float]

_SAMPLED = Place(runtime="eager", host="python")
_LEAST = 100  # samples
SLOWER = "operators take longer below Python"
HIDDEN = "less what runs while the device is busy"


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonRow:
    """Python's time of one line or one group of equal modules, in a call; ns.

    Attributes:
        part: what it is: "line" or "module"; "rest", the difference between rungs and samples.
        name: the line, or the path of the modules ("" for the model itself).
        kind: of a module its class; of a line the modules for which it runs.
        calls: of the modules, in one call of the model.
        share_ratio: of the latency.
        operators_ns: of a module, its operator calls on the tape.
    """

    part: Literal["line", "module", "rest"]
    name: str
    kind: str = ""
    calls: int | None = None
    time_ns: float
    interval_ns: Ends | None
    share_ratio: float
    operators_ns: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonTime:
    """Rows, the longest first and the rest last, which sum to ``time_ns``: lines of the receipt."""

    rows: tuple[PythonRow, ...]
    names: tuple[str, ...]  # of those lines
    time_ns: float
    interval_ns: Ends | None
    latency_ns: float


def find_problem(receipt: Receipt) -> str:
    """Why there is nothing to say; "" if there is."""
    places = [rung.place for rung in receipt.rungs]
    if receipt.python_samples is None:
        begin = "where Python's time goes was not sampled"
        told = (text for text in receipt.warnings if text.startswith(begin))
        return next(told, f"{begin}: only Python eager with its tape is")
    if receipt.work_problem or not {_SAMPLED, receipt.ladder.without_python} <= {*places}:
        return receipt.work_problem or "there is no rung without Python"
    if receipt.python_samples.samples < _LEAST:
        return f"{receipt.python_samples.samples} samples are too few: measure for longer"
    return ""


def find_doubt(receipt: Receipt) -> str:
    """Why times are not to go by; "" if they are."""
    wanted = (_SAMPLED, receipt.ladder.without_python)
    return find_doubt_of([rung for rung in receipt.rungs if rung.place in wanted])


def compute_python_time(receipt: Receipt, by: By) -> PythonTime:
    """By line or by module. Only where there is no problem (`find_problem`)."""
    samples, without = receipt.python_samples, receipt.ladder.without_python
    assert samples is not None
    assert without is not None
    places = [rung.place for rung in receipt.rungs]
    first, last = places.index(_SAMPLED), places.index(without)
    time_ns, interval = receipt.compute_step(first, last)
    clock = _Clock(samples, receipt.rungs[first].latency_ns, receipt.rungs[first].interval_ns)
    rows = _list_lines(samples, clock) if by == "line" else _list_modules(receipt, samples, clock)
    rest = _make_rest(receipt, samples, clock, time_ns, interval)
    steps = [*map(str, places[first:last])]
    return PythonTime(
        rows=(*sorted(rows, key=lambda row: -row.time_ns), rest),
        names=tuple(line.name for line in receipt.lines if line.upper in steps),
        time_ns=time_ns,
        interval_ns=interval,
        latency_ns=clock.latency_ns,
    )


def sum_rows(rows: Sequence[PythonRow], samples: PythonSamples, latency_ns: float) -> PythonRow:
    """Several lines or modules as one row."""
    clock = _Clock(samples, latency_ns, None)
    count = round(sum(row.share_ratio for row in rows) * samples.samples)
    return clock.make_row(rows[0].part, f"{len(rows)} others", count)


@dataclass(frozen=True, slots=True)
class _Clock:
    """Turns samples into time."""

    samples: PythonSamples
    latency_ns: float
    interval_ns: Ends | None

    def measure(self, count: int) -> tuple[float, Ends]:
        """The time of so many samples, with its interval: errors of the share and of the latency
        add as squares."""
        share = count / self.samples.samples
        found = _core.compute_share_interval(count, self.samples.samples)
        low, high = self.interval_ns or (self.latency_ns, self.latency_ns)
        down = math.hypot((share - found.low) * self.latency_ns, share * (self.latency_ns - low))
        up = math.hypot((found.high - share) * self.latency_ns, share * (high - self.latency_ns))
        time_ns = share * self.latency_ns
        return time_ns, (time_ns - down, time_ns + up)

    def make_row(
        self, part: By | Literal["rest"], name: str, count: int, kind: str = "",
        calls: int | None = None, operators_ns: float | None = None,
    ) -> PythonRow:  # fmt: skip
        time_ns, interval = self.measure(count)
        return PythonRow(
            part=part,
            name=name,
            kind=kind,
            calls=calls,
            time_ns=time_ns,
            interval_ns=interval,
            share_ratio=count / self.samples.samples,
            operators_ns=operators_ns,
        )


def _list_lines(samples: PythonSamples, clock: _Clock) -> Iterable[PythonRow]:
    for line in dict.fromkeys(item.line for item in samples.lines):
        items = [item for item in samples.lines if item.line == line]
        groups = [samples.groups[item.group] for item in items]
        kind = groups[0].name or "(model)" if len(groups) == 1 else f"{len(groups)} kinds"
        yield clock.make_row("line", line, sum(item.samples for item in items), kind)


def _list_modules(receipt: Receipt, samples: PythonSamples, clock: _Clock) -> Iterable[PythonRow]:
    for place, group in enumerate(samples.groups):
        count = sum(item.samples for item in samples.lines if item.group == place)
        operators_ns = sum(
            cost.total_ns for cost in receipt.operator_costs if cost.module in group.paths
        )
        if count or operators_ns:
            yield clock.make_row("module", group.name, count, group.kind, group.calls, operators_ns)


def _make_rest(
    receipt: Receipt, samples: PythonSamples, clock: _Clock, time_ns: float, interval: Ends | None
) -> PythonRow:
    seen_ns, (low, high) = clock.measure(sum(item.samples for item in samples.lines))
    rest_ns = time_ns - seen_ns
    ends = None
    if interval is not None:
        ends = (
            rest_ns - math.hypot(time_ns - interval[0], high - seen_ns),
            rest_ns + math.hypot(interval[1] - time_ns, seen_ns - low),
        )
    on_gpu = receipt.rungs[0].cell.device != "cpu"
    return PythonRow(
        part="rest",
        name=HIDDEN if on_gpu and rest_ns < 0 else SLOWER,
        time_ns=rest_ns,
        interval_ns=ends,
        share_ratio=rest_ns / clock.latency_ns,
    )
