"""Knees as tables: one row a runtime, and the probed sizes behind each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ftax.reports.numbers import CELL, Numbers, Scalar, describe_cell, split_ends
from ftax.reports.table import Printout, Rows
from ftax.sweeps.knee.record import Knee, KneePoint
from ftax.timing.units import format_time

_COLUMNS = (
    *CELL, "over", "margin", "verdict", "last_on", "first_off", "size", "answer", "latency_ns",
    "plateau_ns", "ratio", "ratio_low", "ratio_high", "confidence", "rounds", "issue_ns",
    "device_ns", "why",
)  # fmt: skip
_ANSWERS = {"on": "on the plateau", "off": "off", "unsure": "cannot tell", "limit": "not run"}


def make_knee_tables(knees: Sequence[Knee]) -> list[Rows]:
    """The answers, then a table of points for each knee."""
    return [make_knee_table(knees), *(make_point_table(knee) for knee in knees)]


def make_knee_table(knees: Sequence[Knee]) -> Rows:
    """A row a runtime; at least one."""
    first = knees[0]
    cell = first.cell
    return Rows(
        title=f"Knee over {first.over}: {cell.model}, {cell.device}, {cell.dtype}, within "
        f"{first.margin:.0%} of {first.over} {first.low}",
        columns=("runtime", "host", "plateau", "last on it", "first off it", "bound", "answer",
                 "sizes", "seconds"),
        numeric=("plateau", "last on it", "first off it", "sizes", "seconds"),
        gives_way=("seconds", "sizes", "bound"),
        rows=tuple(
            (
                knee.cell.runtime,
                knee.cell.host,
                _format_time(_find_plateau(knee)),
                str(knee.last_on),
                "-" if knee.first_off is None else str(knee.first_off),
                _describe_bound(knee),
                _describe_answer(knee),
                str(len(knee.points)),
                f"{knee.seconds:.1f}",
            )
            for knee in knees
        ),
    )  # fmt: skip


def make_point_table(knee: Knee) -> Rows:
    """The probed sizes, smallest first."""
    points = sorted(knee.points, key=lambda point: point.size)
    with_gate = knee.issue_ns is not None
    columns = ("latency", "over plateau", f"{knee.confidence:.0%} interval", "rounds")
    gate_columns = ("issue", "device") if with_gate else ()
    return Rows(
        title=f"{knee.cell.runtime}/{knee.cell.host}: probed sizes, each beside {knee.over} "
        f"{knee.low} in the same rounds",
        columns=(knee.over, *columns, *gate_columns, "answer"),
        numeric=(knee.over, "latency", columns[1], columns[2], "rounds", *gate_columns),
        gives_way=("device", "issue", "rounds"),
        rows=tuple(_make_point(knee, point, with_gate) for point in points),
    )


def draw_knee(knee: Knee) -> Printout:
    """One knee as it is printed."""
    return draw_knees([knee])


def draw_knees(knees: Sequence[Knee]) -> Printout:
    """Tables, then what one should know beside them."""
    return Printout(
        numbers=lambda: number_knees(knees),
        tables=tuple(make_knee_tables(knees)),
        warnings=tuple(
            dict.fromkeys(
                f"{knee.cell.runtime}/{knee.cell.host}: {warning}"
                for knee in knees
                for warning in knee.warnings
            )
        ),
    )


def number_knees(knees: Sequence[Knee]) -> Numbers:
    """A row a probed size, the plateau first; what the knee is stands in each."""
    return Numbers.of(_COLUMNS, (row for knee in knees for row in _list_numbers(knee)))


def _list_numbers(knee: Knee) -> Iterator[dict[str, Scalar]]:
    answer: dict[str, Scalar] = {
        **describe_cell(knee.cell), "over": knee.over, "margin": knee.margin,
        "verdict": knee.verdict, "last_on": knee.last_on, "first_off": knee.first_off,
    }  # fmt: skip
    yield {
        **answer, "size": knee.low, "answer": "on", "latency_ns": _find_plateau(knee), "ratio": 1.0,
        "issue_ns": knee.issue_ns, "device_ns": knee.device_ns,
    }  # fmt: skip
    for point in sorted(knee.points, key=lambda point: point.size):
        yield {
            **answer, "size": point.size, "answer": point.judge(knee.margin, knee.confidence),
            "latency_ns": point.latency_ns, "plateau_ns": point.plateau_latency_ns,
            "ratio": point.ratio, **split_ends("ratio_", point.ratio_interval(knee.confidence)),
            "confidence": knee.confidence, "rounds": len(point.values_ns),
            "issue_ns": point.issue_ns, "device_ns": point.device_ns,
            "why": point.problem or point.doubt or point.disturbance,
        }  # fmt: skip


def _make_point(knee: Knee, point: KneePoint, with_gate: bool) -> tuple[str, ...]:
    interval = point.ratio_interval(knee.confidence)
    answer = _ANSWERS[point.judge(knee.margin, knee.confidence)]
    why = point.problem or point.doubt or point.disturbance
    times = (point.issue_ns, point.device_ns) if with_gate else ()
    return (
        str(point.size),
        _format_time(point.latency_ns),
        "-" if point.ratio is None else f"{point.ratio:.3f}",
        "-" if interval is None else f"{interval[0]:.3f} to {interval[1]:.3f}",
        str(len(point.values_ns)),
        *(_format_time(time_ns) for time_ns in times),
        f"{answer}: {why}" if why else answer,
    )


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


def _format_time(time_ns: float | None) -> str:
    return "-" if time_ns is None else format_time(time_ns)
