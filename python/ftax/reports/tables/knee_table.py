"""Knees as tables: one row a runtime, and the probed sizes behind each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ftax.reports.numbers import BARE_CELL, Field, Numbers, Scalar, read_all
from ftax.reports.table import Cell, Printout, Rows
from ftax.sweeps.knee_record import Knee, KneePoint
from ftax.sweeps.record import SweepMachine
from ftax.sweeps.side_by_side import mark_software, name_machines
from ftax.timing.candidate import name_caller
from ftax.timing.units import format_time, name_interval

_KNEE: Mapping[str, Field] = {  # the same in each row
    **BARE_CELL,
    "over": "over",
    "margin": "margin",
    "verdict": "verdict",
    "last_on": "last_on",
    "first_off": "first_off",
}
_COLUMNS = (
    *_KNEE, "size", "answer", "latency_ns", "plateau_ns", "ratio", "ratio_low", "ratio_high",
    "confidence", "rounds", "issue_ns", "device_ns", "why",
)  # fmt: skip
_ANSWERS = {"on": "on the plateau", "off": "off", "unsure": "cannot tell", "limit": "not run"}


def make_knee_tables(knees: Sequence[Knee]) -> list[Rows]:
    """The answers, then a table of points for each knee."""
    names = name_knees(knees)[0]
    return [
        make_knee_table(knees),
        *(make_point_table(knee, name) for knee, name in zip(knees, names, strict=True)),
    ]


def name_knees(
    knees: Sequence[Knee], names: Sequence[str] = ()
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The machine of each knee, with an asterisk where its software is not that of the first, and
    in words what differs; "" for all of one machine. ``names`` are what machines are called."""
    machines = [SweepMachine.of(knee.environment) for knee in knees]
    if not names:
        called = name_machines(machines)
        names = [called[machine.id] for machine in machines]
    known = {name: knee.environment for knee, name in zip(knees, names, strict=True)}
    if len(known) < 2:
        return ("",) * len(knees), ()
    headings, notes = mark_software(list(known), known)
    return tuple(headings[name] for name in names), notes


def make_knee_table(knees: Sequence[Knee], names: Sequence[str] = ()) -> Rows:
    """A row a runtime on a machine; at least one. ``names`` are what their machines are called."""
    first = knees[0]
    cell = first.cell
    told = dict(zip(map(id, knees), name_knees(knees, names)[0], strict=True))
    machine: dict[str, Cell] = (
        {"machine": lambda knee: told[id(knee)]} if any(told.values()) else {}
    )
    return Rows.of(
        f"Knee over {first.over}: {cell.model}, {cell.device}, {cell.dtype}, within "
        f"{first.margin:.0%} of {first.over} {first.low}",
        knees,
        {
            "runtime": "cell.runtime",
            "called from": ("cell.host", name_caller),
            **machine,
            "plateau": (_find_plateau, format_time),
            "last on it": "last_on",
            "first off it": "first_off",
            "bound": _describe_bound,
            "answer": _describe_answer,
            "sizes": lambda knee: len(knee.points),
            "seconds": ("seconds", "{:.1f}".format),
        },
        text=("runtime", "called from", "machine", "bound", "answer"),
        gives_way=("seconds", "sizes", "bound"),
    )


def make_point_table(knee: Knee, machine: str = "") -> Rows:
    """The probed sizes, smallest first; ``machine`` is told where there are several."""
    interval = name_interval(knee.confidence)
    gate: dict[str, Cell] = {
        "issue": ("issue_ns", format_time),
        "device": ("device_ns", format_time),
    }
    where = f" on {machine}" if machine else ""
    return Rows.of(
        f"{knee.cell.runtime}/{knee.cell.host}{where}: probed sizes, each beside {knee.over} "
        f"{knee.low} in the same rounds",
        sorted(knee.points, key=lambda point: point.size),
        {
            knee.over: "size",
            "latency": ("latency_ns", format_time),
            "over plateau": ("ratio", "{:.3f}".format),
            interval: (
                lambda point: point.ratio_interval(knee.confidence),
                lambda ends: "{:.3f} to {:.3f}".format(*ends),
            ),
            "rounds": lambda point: len(point.values_ns),
            **({} if knee.issue_ns is None else gate),
            "answer": lambda point: _describe_point(knee, point),
        },
        text=("answer",),
        gives_way=("device", "issue", "rounds"),
    )


def draw_knees(*knees: Knee) -> Printout:
    """Tables, then what one should know beside them."""
    return Printout(
        numbers=lambda: Numbers.of(
            _COLUMNS, [row for knee in knees for row in _list_numbers(knee)]
        ),
        tables=tuple(make_knee_tables(knees)),
        notes=name_knees(knees)[1],
        warnings=tuple(
            dict.fromkeys(
                f"{knee.cell.runtime}/{knee.cell.host}: {warning}"
                for knee in knees
                for warning in knee.warnings
            )
        ),
    )


def _list_numbers(knee: Knee) -> Iterator[dict[str, Scalar]]:
    """A row a probed size, the plateau first; what the knee is stands in each."""
    answer = read_all(knee, _KNEE)
    yield {
        **answer, "size": knee.low, "answer": "on", "latency_ns": _find_plateau(knee), "ratio": 1.0,
        "issue_ns": knee.issue_ns, "device_ns": knee.device_ns,
    }  # fmt: skip
    for point in sorted(knee.points, key=lambda point: point.size):
        low, high = point.ratio_interval(knee.confidence) or (None, None)
        yield {
            **answer, "size": point.size, "answer": point.judge(knee.margin, knee.confidence),
            "latency_ns": point.latency_ns, "plateau_ns": point.plateau_latency_ns,
            "ratio": point.ratio, "ratio_low": low, "ratio_high": high,
            "confidence": knee.confidence, "rounds": len(point.values_ns),
            "issue_ns": point.issue_ns, "device_ns": point.device_ns,
            "why": point.problem or point.doubt or point.disturbance,
        }  # fmt: skip


def _describe_point(knee: Knee, point: KneePoint) -> str:
    answer = _ANSWERS[point.judge(knee.margin, knee.confidence)]
    why = point.problem or point.doubt or point.disturbance
    return f"{answer}: {why}" if why else answer


def _describe_answer(knee: Knee) -> str:
    """The answer, and which of its sizes were measured on a disturbed host."""
    sizes = sorted(point.size for point in knee.points if point.disturbance)
    marks = f"; disturbed at {', '.join(map(str, sizes))}" if sizes else ""
    return knee.describe() + marks


def _find_plateau(knee: Knee) -> float | None:
    """The smallest size's latency in the first point's rounds; no average over drifts."""
    return next((p.plateau_latency_ns for p in knee.points if p.values_ns), None)


def _describe_bound(knee: Knee) -> str:
    """Host-bound or device-bound at the two ends of the knee; a dash without a gate."""
    known = {point.size: point.host_bound for point in knee.points}
    if knee.issue_ns is not None and knee.device_ns is not None:
        known[knee.low] = knee.issue_ns > knee.device_ns
    words = {True: "host", False: "device", None: "-"}
    ends = [knee.last_on, *([] if knee.first_off is None else [knee.first_off])]
    return ", then ".join(dict.fromkeys(words[known.get(size)] for size in ends))
