"""Points arranged for charts: a small chart for each model and input on each machine, and filters.

The surprising choice: models never share a chart. Runtimes of one model are what one compares, and
latencies of two models differ by more than an axis can show. Lengths that were measured at one
batch only are points of one chart over the length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ftax.models import list_models
from ftax.report.html.charts import (
    DTYPES,
    RING,
    Entry,
    Line,
    Look,
    Looks,
    Mark,
    Plot,
    make_log_axis,
    make_share_axis,
    make_size_axis,
    make_time_axis,
)
from ftax.report.html.machines import Machine
from ftax.report.html.points import Point, describe_options
from ftax.report.html.view import Bar, Bars, Keys, Lead, Scale, TableView
from ftax.report.table import Rows
from ftax.report.units import format_interval, format_latency, format_time

FILTERS = ("model", "runtime", "host", "dtype", "device", "sequence")
_ALWAYS = FILTERS[:4]
_TEXT = (*FILTERS[:5], "options", "mode", "95 % interval")
# Columns of the table that are there only where they tell two points of the page apart.
_SELDOM = ("device", "sequence", "options", "mode", "overhead share", "kernel time", "GMACs")
_OF_LINES = ("runtime", "host", "dtype")
_NOTHING = "-"
_AXES = {"batch": "batch", "sequence": "tokens"}

What = Literal["latency", "overhead"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Facet:
    """The points of one model with one kind of input, on one device of one machine.

    Attributes:
        detail: what tells it from other charts of the model.
        over: what the axis is.
        guests: points of another facet that lie on this axis too.
    """

    machine: Machine
    model: str
    detail: str
    over: Literal["batch", "sequence"]
    points: tuple[Point, ...]
    guests: tuple[Point, ...] = ()

    @property
    def every(self) -> tuple[Point, ...]:
        """The guests with the others."""
        return (*self.points, *self.guests)

    @property
    def sizes(self) -> set[int]:
        """Where on the axis they are."""
        return {getattr(point.cell, self.over) for point in self.every}


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """One filter of the page: a field, its values, and how many of each there are."""

    name: str
    values: tuple[str, ...]
    counts: tuple[int, ...] = ()
    label: str = ""  # the name, unless it is given


@dataclass(frozen=True, slots=True, kw_only=True)
class FacetView:
    """A facet with a chart of it."""

    facet: Facet
    keys: Keys
    chart: Bars | Plot


def sort_models(points: Sequence[Point]) -> list[Point]:
    """The points in the order of the zoo's models, which is the paper's: texts, speech, images.
    Others follow in the order in which they were measured."""
    zoo = [spec.name for spec in list_models()]
    order = {name: place for place, name in enumerate([*zoo, *(p.cell.model for p in points)])}
    places = {name: zoo.index(name) if name in zoo else place for name, place in order.items()}
    return sorted(points, key=lambda point: places[point.cell.model])


def make_facets(points: Sequence[Point]) -> list[Facet]:
    """The facets of latencies, by machine, then in the order of models' first points."""
    order = list(dict.fromkeys(point.cell.model for point in points))
    groups: dict[tuple[str, int, str, str], list[Point]] = {}
    for point in points:
        if point.mode == "latency":
            cell = point.cell
            key = (point.machine.name, order.index(cell.model), cell.device, describe_options(cell))
            groups.setdefault(key, []).append(point)
    return [facet for _, group in sorted(groups.items()) for facet in _split_by_length(group)]


def _split_by_length(points: Sequence[Point]) -> Iterator[Facet]:
    """A facet over the batch for each length, and one over lengths that have one batch alone."""
    by_length: dict[int | None, list[Point]] = {}
    for point in points:
        by_length.setdefault(point.cell.sequence, []).append(point)
    lone: dict[int, list[int]] = {}  # lengths by their only batch
    for length, group in by_length.items():
        batches = {point.cell.batch for point in group}
        if length is not None and len(batches) == 1:
            lone.setdefault(batches.pop(), []).append(length)
    joined = {batch: set(lengths) for batch, lengths in lone.items() if len(lengths) > 1}
    gone = {length for lengths in joined.values() for length in lengths}
    for length in sorted(by_length, key=lambda length: length or 0):
        if length not in gone:
            yield _make_facet(by_length[length], "batch")
    for batch, lengths in sorted(joined.items()):
        on_axis = [point for point in points if point.cell.batch == batch]
        yield _make_facet(
            [point for point in on_axis if point.cell.sequence in lengths],
            "sequence",
            [point for point in on_axis if point.cell.sequence not in {*lengths, None}],
        )


def _make_facet(
    points: Sequence[Point], over: Literal["batch", "sequence"], guests: Sequence[Point] = ()
) -> Facet:
    first = points[0]
    return Facet(
        machine=first.machine,
        model=first.cell.model,
        detail=_describe_detail(first, over),
        over=over,
        points=tuple(sorted(points, key=lambda point: (point.runtime, point.cell.batch))),
        guests=tuple(guests),
    )


def _describe_detail(point: Point, over: str) -> str:
    cell = point.cell
    size = [] if cell.sequence is None else [_count_tokens(cell.sequence)]
    if over == "sequence":
        size = [f"batch {cell.batch}"]
    options = describe_options(cell)
    return ", ".join([cell.device, *size, *([options] if options else [])])


def _count_tokens(number: int) -> str:
    return f"{number:,} token" + ("" if number == 1 else "s")


# --- charts ---------------------------------------------------------------------------------------


def make_facet_views(facets: Sequence[Facet], what: What, looks: Looks) -> list[FacetView]:
    """The charts of latencies, or of overhead shares where device busy time is known."""
    views = []
    for facet in facets:
        points = [p for p in facet.every if what == "latency" or p.overhead_share is not None]
        if points:
            several = len(facet.sizes) > 1
            draw = (
                _draw_lines(facet, points, what, looks)
                if several
                else _draw_bars(facet, points, what)
            )
            names = (
                ("model", "device", "sequence") if facet.over == "batch" else ("model", "device")
            )
            keys = {name: make_keys(points[0])[name] for name in names}
            views.append(FacetView(facet=facet, keys=keys, chart=draw))
    return views


def _draw_lines(facet: Facet, points: Sequence[Point], what: What, looks: Looks) -> Plot:
    over = facet.over
    values = [_get_value(point, what) for point in points]
    sizes = [getattr(point.cell, over) for point in points]
    intervals = [point.interval_ns for point in points]
    return Plot(
        label=f"{what} of {facet.model}, {facet.detail}, against {over}, a line a runtime",
        x=make_size_axis(_AXES[over], sizes),
        y=make_time_axis("latency", values, intervals)
        if what == "latency"
        else make_share_axis("overhead share"),
        lines=_make_lines(
            points,
            lambda point: float(getattr(point.cell, over)),
            lambda point: _get_value(point, what),
            looks,
            what=what,
        ),
    )


def _get_value(point: Point, what: What) -> float:
    return point.latency_ns if what == "latency" else point.overhead_share or 0.0


def _draw_bars(facet: Facet, points: Sequence[Point], what: What) -> Bars:
    """With one size there is nothing to draw against it: a bar a point, shortest first."""
    several = len({point.cell.dtype for point in points}) > 1
    (size,) = facet.sizes
    longest = max(point.latency_ns for point in points)
    scale = Scale([1.0] if what == "overhead" else [longest])
    bars = []
    for point in sorted(points, key=lambda point: _get_value(point, what)):
        value = _get_value(point, what)
        has_whisker = what == "latency" and point.interval_ns is not None
        bars.append(
            Bar(
                name=point.runtime + (f" {point.cell.dtype}" if several else ""),
                value=f"{value:.0%}" if what == "overhead" else format_latency(
                    value, point.doubt, point.disturbance, like_ns=longest),
                parts=(scale.make_part(0.0, value, "unsure" if point.mark else "tax"),),
                whisker=scale.measure(point.interval_ns) if has_whisker else None,
                text=point.text,
                keys={name: make_keys(point)[name] for name in _OF_LINES},
            )
        )  # fmt: skip
    return Bars(label=f"{what} of {facet.model} at {facet.over} {size}", bars=tuple(bars))


def make_work_plot(points: Sequence[Point], machine: Machine, looks: Looks) -> Plot | None:
    """Kernel time against multiply-accumulates on a machine; None if nobody knows both."""
    own = [point for point in points if point.machine is machine and point.macs and point.kernel_ns]
    if not own:
        return None
    return Plot(
        label=f"Kernel time against multiply-accumulates of {len(own)} cells of {machine.label}",
        x=make_log_axis(
            "multiply-accumulates (billions)", [(point.macs or 0) / 1e9 for point in own]
        ),
        y=make_time_axis("kernel time", [point.kernel_ns or 0.0 for point in own]),
        lines=_make_lines(
            own, lambda p: (p.macs or 0) / 1e9, lambda p: p.kernel_ns or 0.0, looks, split=FILTERS
        ),
    )


def _make_lines(
    points: Sequence[Point],
    get_x: Callable[[Point], float],
    get_y: Callable[[Point], float],
    looks: Looks,
    *,
    split: Sequence[str] = _OF_LINES,
    what: What | None = None,
) -> tuple[Line, ...]:
    """A line for all points that agree in the fields ``split``."""
    groups: dict[tuple[str, ...], list[Point]] = {}
    for point in points:
        groups.setdefault(tuple(make_keys(point)[name] for name in split), []).append(point)
    return tuple(
        Line(
            look=looks.find(group[0].cell),
            marks=tuple(
                Mark(
                    x=get_x(point),
                    y=get_y(point),
                    interval=point.interval_ns if what == "latency" else None,
                    text=point.text,
                    doubt=bool(point.mark),
                )
                for point in group
            ),
            keys=dict(zip(split, key, strict=True)),
            joined=what is not None,
        )
        for key, group in groups.items()
    )


def make_legend(points: Sequence[Point], looks: Looks) -> list[Entry]:
    """An entry for each runtime under each host, and for each dtype if there are several."""
    order = sorted(points, key=lambda point: (point.cell.runtime != "eager", point.runtime))
    entries = {
        point.runtime: Entry(
            name=point.runtime,
            look=replace(looks.find(point.cell), dash=0),
            keys={name: make_keys(point)[name] for name in ("runtime", "host")},
        )
        for point in order
    }
    dtypes = {point.cell.dtype: looks.find(point.cell).dash for point in points}
    for dtype in sorted(dtypes, key=DTYPES.index) if len(dtypes) > 1 else ():
        look = Look(colour=None, shape=None, dash=dtypes[dtype])
        entries[dtype] = Entry(name=dtype, look=look, keys={"dtype": dtype})
    if any(point.mark for point in points):
        entries["ring"] = RING
    return list(entries.values())


# --- filters and tables ---------------------------------------------------------------------------


def make_filters(points: Sequence[Point]) -> list[Filter]:
    """Filters that have something to choose, and always those of model, runtime, host, dtype."""
    filters = []
    for name in FILTERS:
        values = list(dict.fromkeys(make_keys(point)[name] for point in points))
        if name == "dtype":
            values.sort(key=DTYPES.index)
        elif name == "sequence":
            values.sort(
                key=lambda value: (not value.isdigit(), int(value) if value.isdigit() else 0)
            )
        elif name != "model":
            values.sort(key=lambda value: (value not in ("eager", "python"), value))
        if name in _ALWAYS or len(values) > 1:
            filters.append(Filter(name=name, values=tuple(values)))
    return filters


def make_keys(point: Point) -> Keys:
    """What filters compare, as the table of all measurements writes it."""
    cell = point.cell
    return {
        "model": cell.model,
        "runtime": cell.runtime,
        "host": cell.host,
        "dtype": cell.dtype,
        "device": cell.device,
        "sequence": _NOTHING if cell.sequence is None else str(cell.sequence),
    }


def make_point_tables(points: Sequence[Point], machines: Iterable[Machine]) -> list[TableView]:
    """A row a point of each machine that has any, with what is known of it; models in order."""
    order = list(dict.fromkeys(point.cell.model for point in points))
    listed = sorted(
        ((point, _make_row(point)) for point in points),
        key=lambda item: (
            order.index(item[0].cell.model),
            item[0].runtime,
            item[0].cell.dtype,
            item[0].cell.batch,
        ),
    )
    names = [
        name
        for name in (listed[0][1] if listed else ())
        if name not in _SELDOM or len({row[name] for _, row in listed}) > 1
    ]
    return [
        TableView(
            rows=Rows(
                title=f"Measurements of {machine.label}",
                columns=tuple(names),
                numeric=tuple(name for name in names if name not in _TEXT),
                rows=tuple(tuple(row[name] for name in names) for _, row in mine),
            ),
            records=tuple(point.ref for point, _ in mine),
            filtered=True,
        )
        for machine in machines
        if (mine := [(point, row) for point, row in listed if point.machine is machine])
    ]


def _make_row(point: Point) -> dict[str, str]:
    share = point.overhead_share
    options = describe_options(point.cell)
    return {
        **{name: value for name, value in make_keys(point).items() if name != "sequence"},
        "batch": str(point.cell.batch),
        "sequence": make_keys(point)["sequence"],
        "options": options or _NOTHING,
        "mode": point.mode,
        "latency": format_latency(point.latency_ns, point.doubt, point.disturbance),
        "95 % interval": format_interval(point.interval_ns),
        "rounds": str(point.rounds),
        "overhead share": _NOTHING if share is None else f"{share:.1%}",
        "kernel time": _NOTHING if point.kernel_ns is None else format_time(point.kernel_ns),
        "GMACs": _NOTHING if point.macs is None else f"{point.macs / 1e9:.3g}",
    }


def make_lead(views: Sequence[FacetView], looks: Looks) -> Lead | None:
    """The model with most runtimes, of those that come first: its fastest and its slowest."""
    views = [view for view in views if len({p.runtime for p in view.facet.points}) > 1] or [*views]
    if not views:
        return None
    view = max(views, key=lambda view: len({point.runtime for point in view.facet.points}))
    facet, least = view.facet, min(view.facet.sizes)
    legend = tuple(make_legend(facet.every, looks)) if isinstance(view.chart, Plot) else ()
    where = f"{facet.model}, {facet.detail}, {facet.over} {least}"
    sure = [
        point
        for point in facet.every
        if not point.doubt and getattr(point.cell, facet.over) == least
    ]
    if not sure:
        return Lead(section="measurements", text=where, more="None is resolved.", charts=(("", view.chart),),
                    legend=legend)  # fmt: skip
    sure.sort(key=lambda point: point.latency_ns)
    (fast, first), (slow, last) = (
        (point, f"{point.runtime} in {point.cell.dtype}") for point in (sure[0], sure[-1])
    )
    text, more = f"{where}: {format_time(fast.latency_ns)} in {first}", ""
    if first != last:
        text = f"{where}: fastest is {first}, {format_time(fast.latency_ns)}"
        ratio = slow.latency_ns / fast.latency_ns
        more = f"Slowest is {last}, {format_time(slow.latency_ns)}: {ratio:.1f} times as long."
    return Lead(
        section="measurements", text=text, more=more, charts=(("", view.chart),), legend=legend
    )
