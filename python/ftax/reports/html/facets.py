"""Points arranged for charts: a small chart for each model and input on each machine, and filters.

Models never share a chart: their latencies differ by more than an axis can show. Lengths that were
measured at one batch only are points of one chart over the length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ftax.errors import say_count
from ftax.reports.columns import describe_options, or_dash
from ftax.reports.html.charts import (
    DTYPES,
    RING,
    Entry,
    Keys,
    Line,
    Look,
    Looks,
    Mark,
    Plot,
    make_share_axis,
    make_size_axis,
    make_time_axis,
)
from ftax.reports.html.machines import Machine
from ftax.reports.html.points import FILTERS, Point
from ftax.reports.html.view import Bar, Bars, Charts, Lead, Panel, Scale
from ftax.steps.zoo.registry import list_models
from ftax.timing.units import format_latency

_ALWAYS = FILTERS[:4]
_OF_LINES = ("runtime", "host", "dtype")


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """What a chart shows of its points; None where a point does not know it."""

    name: str
    get: Callable[[Point], float | None]
    is_time: bool = True

    def read(self, point: Point) -> float:
        """Of a point that knows it."""
        return self.get(point) or 0.0


LATENCY = Quantity(name="latency", get=lambda point: point.latency_ns)
OVERHEAD = Quantity(name="overhead share", get=lambda point: point.overhead_share, is_time=False)
_SIZES = {
    "batch": Quantity(name="batch", get=lambda point: point.cell.batch),
    "sequence": Quantity(name="tokens", get=lambda point: point.cell.sequence),
}


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
    size = [] if cell.sequence is None else [say_count(cell.sequence, "token")]
    if over == "sequence":
        size = [f"batch {cell.batch}"]
    options = describe_options(cell)
    return ", ".join([cell.device, *size, *([options] if options else [])])


# --- charts ---------------------------------------------------------------------------------------


def draw_facets(facets: Sequence[Facet], what: Quantity, looks: Looks) -> Charts | None:
    """A chart for each facet that knows the quantity."""
    panels, drawn = [], []
    for facet in facets:
        points = [point for point in facet.every if what.get(point) is not None]
        if points:
            # A chart over lengths stays, whichever of them are chosen.
            names = ("model", "device", "sequence")[: 3 if facet.over == "batch" else 2]
            label = f"{what.name} of {facet.model}, {facet.detail}, against {facet.over}"
            panels.append(
                Panel(
                    chart=_draw(label, points, _SIZES[facet.over], what, looks)
                    if len(facet.sizes) > 1
                    else _draw_bars(label, points, what),
                    caption=facet.model,
                    detail=facet.detail,
                    keys={name: make_keys(points[0])[name] for name in names},
                )
            )
            drawn += points
    return Charts(panels=tuple(panels), legend=make_legend(drawn, looks)) if panels else None


def _draw(label: str, points: Sequence[Point], x: Quantity, y: Quantity, looks: Looks) -> Plot:
    """A line for all points that a filter keeps together."""
    groups: dict[tuple[str, ...], list[Point]] = {}
    for point in sorted(points, key=x.read):
        groups.setdefault(tuple(make_keys(point)[name] for name in _OF_LINES), []).append(point)
    xs, ys = [x.read(point) for point in points], [y.read(point) for point in points]
    intervals = [point.interval_ns for point in points] if y is LATENCY else ()
    return Plot(
        label=label,
        x=make_size_axis(x.name, xs),
        y=make_time_axis(y.name, ys, intervals) if y.is_time else make_share_axis(y.name),
        lines=tuple(
            Line(
                look=looks.find(group[0].cell),
                marks=tuple(
                    Mark(
                        x=x.read(point),
                        y=y.read(point),
                        interval=point.interval_ns if y is LATENCY else None,
                        text=point.text,
                        doubt=bool(point.mark),
                    )
                    for point in group
                ),
                keys=dict(zip(_OF_LINES, key, strict=True)),
            )
            for key, group in groups.items()
        ),
    )


def _draw_bars(label: str, points: Sequence[Point], what: Quantity) -> Bars:
    """With one size there is nothing to draw against it: a bar a point, shortest first."""
    has_dtypes = len({point.cell.dtype for point in points}) > 1
    longest = max(map(what.read, points))
    scale, bars = Scale([longest if what.is_time else 1.0]), []
    for point in sorted(points, key=what.read):
        value, whisker = what.read(point), None
        told = f"{value:.0%}"
        if what.is_time:
            told = format_latency(value, point.doubt, point.disturbance, like_ns=longest)
            whisker = point.interval_ns and scale.measure(point.interval_ns)
        bars.append(
            Bar(
                name=point.runtime + (f" {point.cell.dtype}" if has_dtypes else ""),
                value=told,
                parts=(scale.make_part(0.0, value, "unsure" if point.mark else "tax"),),
                whisker=whisker,
                text=point.text,
                keys={name: make_keys(point)[name] for name in _OF_LINES},
            )
        )
    return Bars(label=label, bars=tuple(bars))


def make_legend(points: Sequence[Point], looks: Looks) -> tuple[Entry, ...]:
    """An entry for each runtime under each host, and for each dtype if there are several."""
    entries = {
        point.runtime: Entry(
            name=point.runtime,
            look=replace(looks.find(point.cell), dash=0),
            keys={name: make_keys(point)[name] for name in ("runtime", "host")},
        )
        for point in sorted(
            points, key=lambda point: (point.cell.runtime != "eager", point.runtime)
        )
    }
    dashes = {point.cell.dtype: looks.find(point.cell).dash for point in points}
    if len(dashes) > 1:
        for dtype in sorted(dashes, key=DTYPES.index):
            look = Look(dash=dashes[dtype])
            entries[dtype] = Entry(name=dtype, look=look, keys={"dtype": dtype})
    rings = (RING,) if any(point.mark for point in points) else ()
    return (*entries.values(), *rings)


def make_lead(facets: Sequence[Facet], looks: Looks) -> Lead | None:
    """Of the facet with most runtimes: its fastest and its slowest at the smallest size."""
    if not facets:
        return None
    facet = max(facets, key=lambda facet: len({point.runtime for point in facet.points}))
    least = min(facet.sizes)
    found = [point for point in facet.every if getattr(point.cell, facet.over) == least]
    found.sort(key=lambda point: (bool(point.doubt), point.latency_ns))
    text, more = f"{facet.model}, {facet.detail}, {facet.over} {least}: {_describe(found[0])}", ""
    slow = max(found, key=lambda point: (not point.doubt, point.latency_ns))
    if slow.latency_ns > found[0].latency_ns:
        ratio = slow.latency_ns / found[0].latency_ns
        more = f"Nothing there is faster. {_describe(slow)} is {ratio:.1f} times as long."
    charts = draw_facets([facet], LATENCY, looks)
    return Lead(section="measurements", text=text, more=more, charts=(charts,) if charts else ())


def _describe(point: Point) -> str:
    latency = format_latency(point.latency_ns, point.doubt)
    return f"{latency} in {point.runtime}, {point.cell.dtype}"


# --- filters --------------------------------------------------------------------------------------


def make_choices(points: Sequence[Point]) -> list[tuple[str, str, list[str]]]:
    """What filters offer, (field, its name, values): of what differs, and always of model, runtime,
    host and dtype."""
    orders: dict[str, Callable[[str], object]] = {
        "model": [point.cell.model for point in points].index,
        "dtype": DTYPES.index,
        "sequence": lambda value: (not value.isdigit(), int(value) if value.isdigit() else 0),
    }
    choices = []
    for name in FILTERS:
        order = orders.get(name, lambda value: (value not in ("eager", "python"), value))
        values = sorted({make_keys(point)[name] for point in points}, key=order)
        if name in _ALWAYS or len(values) > 1:
            choices.append((name, name, values))
    return choices


def make_keys(point: Point) -> Keys:
    """What filters compare, as the table of all measurements writes it."""
    return {name: or_dash(getattr(point.cell, name)) for name in FILTERS}
