"""Knees as tables: one row a runtime, and the probed sizes behind each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ftax.reports.columns import (
    CELL,
    Column,
    Numbers,
    Scalar,
    choose,
    for_programs,
    list_keys,
    read_all,
)
from ftax.reports.table import Printout, Rows
from ftax.sweeps.knee_record import Knee, KneePoint
from ftax.sweeps.side_by_side import mark_software, name_machines
from ftax.sweeps.sweep_records import SweepMachine
from ftax.timing.units import format_time, name_interval

_SIDES = {True: "host", False: "device", None: "-"}
_ANSWERS = {"on": "on the plateau", "off": "off", "unsure": "cannot tell", "limit": "not run"}


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
    machine = Column("machine", lambda knee: told[id(knee)], is_text=True)
    heads = ["plateau", "last on it", "first off it", "bound", "answer", "sizes", "seconds"]
    return Rows.of_columns(
        f"Knee over {first.over}: {cell.model}, {cell.device}, {cell.dtype}, within "
        f"{first.margin:.0%} of {first.over} {first.low}",
        knees,
        [
            *choose(COLUMNS, "runtime", "called from"),
            *([machine] if any(told.values()) else []),
            *choose(COLUMNS, *heads),
        ],
        gives_way=("seconds", "sizes", "bound"),
    )


def make_point_table(knee: Knee, machine: str = "") -> Rows:
    """The probed sizes, smallest first; ``machine`` is told where there are several."""
    gate = [] if knee.issue_ns is None else ["issue", "device"]
    heads = [knee.over, "latency", "over plateau", name_interval(knee.confidence), "rounds"]
    where = f" on {machine}" if machine else ""
    return Rows.of_columns(
        f"{knee.cell.runtime}/{knee.cell.host}{where}: probed sizes, each beside {knee.over} "
        f"{knee.low} in the same rounds",
        sorted(knee.points, key=lambda point: point.size),
        choose(_make_point_columns(knee), *heads, *gate, "answer"),
        gives_way=("device", "issue", "rounds"),
    )


def draw_knees(*knees: Knee) -> Printout:
    """Tables, then what one should know beside them."""
    header = list_keys([*COLUMNS, *_make_point_columns(knees[0])])
    names, notes = name_knees(knees)
    points = (make_point_table(knee, name) for knee, name in zip(knees, names, strict=True))
    return Printout(
        numbers=lambda: Numbers.join(header, [row for knee in knees for row in _list_rows(knee)]),
        tables=(make_knee_table(knees), *points),
        notes=notes,
        warnings=tuple(
            dict.fromkeys(
                f"{knee.cell.runtime}/{knee.cell.host}: {warning}"
                for knee in knees
                for warning in knee.warnings
            )
        ),
    )


def _list_rows(knee: Knee) -> Iterator[dict[str, Scalar]]:
    """A row a probed size, the plateau first; what the knee is stands in each."""
    answer, columns = read_all(knee, COLUMNS), _make_point_columns(knee)
    yield {
        **answer, "size": knee.low, "answer": "on", "latency_ns": _find_plateau(knee), "ratio": 1.0,
        "issue_ns": knee.issue_ns, "device_ns": knee.device_ns,
    }  # fmt: skip
    for point in sorted(knee.points, key=lambda point: point.size):
        yield {**answer, **read_all(point, columns)}


def _make_point_columns(knee: Knee) -> list[Column]:
    """Of the sizes that were probed for a knee."""

    def judge(point: KneePoint) -> str:
        return point.judge(knee.margin, knee.confidence)

    def describe(point: KneePoint) -> str:
        return ": ".join(filter(None, (_ANSWERS[judge(point)], _find_reason(point))))

    return [
        Column(knee.over, "size", "size"),
        Column("answer", describe, "answer", judge, is_text=True),
        Column("latency", ("latency_ns", format_time), "latency_ns"),
        *for_programs(plateau_ns="plateau_latency_ns"),
        Column("over plateau", ("ratio", "{:.3f}".format), "ratio"),
        Column(
            name_interval(knee.confidence),
            (
                lambda point: point.ratio_interval(knee.confidence),
                lambda ends: "{:.3f} to {:.3f}".format(*ends),
            ),
            ("ratio_low", "ratio_high"),
        ),
        *for_programs(confidence=lambda _: knee.confidence),
        Column("rounds", lambda point: len(point.values_ns), "rounds"),
        Column("issue", ("issue_ns", format_time), "issue_ns"),
        Column("device", ("device_ns", format_time), "device_ns"),
        *for_programs(why=_find_reason),
    ]


def _find_reason(point: KneePoint) -> str:
    return point.problem or point.doubt or point.disturbance


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
    ends = [knee.last_on, *([] if knee.first_off is None else [knee.first_off])]
    return ", then ".join(dict.fromkeys(_SIDES[known.get(size)] for size in ends))


COLUMNS = (
    *CELL,
    Column("plateau", (_find_plateau, format_time)),
    *for_programs("over", "margin", "verdict"),
    Column("last on it", "last_on", "last_on"),
    Column("first off it", "first_off", "first_off"),
    Column("bound", _describe_bound, is_text=True),
    Column("answer", _describe_answer, is_text=True),
    Column("sizes", lambda knee: len(knee.points)),
    Column("seconds", ("seconds", "{:.1f}".format)),
)
