"""Points arranged for charts: a small chart for each model and input on each machine, and filters.

The surprising choice: models never share a chart. Runtimes of one model are what one compares, and
latencies of two models differ by more than an axis can show. Lengths that were measured at one
batch only are points of one chart over the length.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ftax.reports.html.machines import Machine
from ftax.reports.html.points import Point, describe_options
from ftax.reports.html.view import Chart, TableView
from ftax.reports.table import Rows
from ftax.timing.units import format_interval, format_latency, format_time

FILTERS = ("model", "runtime", "host", "dtype", "device", "sequence")
_ALWAYS = FILTERS[:4]
_NOTHING = "-"
_HIGH_PRECISION_FIRST = ("fp32", "fp16", "bf16")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """One filter of the page: a field and its values."""

    name: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FacetView:
    """A facet with the charts that its points allow."""

    title: str
    detail: str
    machine: Machine
    chart: Chart


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


def make_facet_views(facets: Sequence[Facet], kind: str) -> list[FacetView]:
    """The charts of one kind: "latency", or "overhead" where device busy time is known."""
    what = {"latency": "Latency", "overhead": "Overhead share"}[kind]
    return [
        FacetView(
            title=facet.model,
            detail=facet.detail,
            machine=facet.machine,
            chart=Chart(
                kind=kind,
                item=place,
                rows=_count_rows(facet),
                label=f"{what} of {facet.model}, {facet.detail}, against {facet.over}, a line a "
                "runtime. "
                "The table of all measurements has the same numbers.",
            ),
        )
        for place, facet in enumerate(facets)
        if kind == "latency" or any(point.overhead_share is not None for point in facet.points)
    ]


def _count_rows(facet: Facet) -> int:
    """Of a chart with a row a runtime; none where there is a size to draw against."""
    every = (*facet.points, *facet.guests)
    if len({getattr(point.cell, facet.over) for point in every}) > 1:
        return 0
    return len({(point.runtime, point.cell.host, point.cell.dtype) for point in every})


def make_filters(points: Sequence[Point]) -> list[Filter]:
    """Filters that have something to choose, and always those of model, runtime, host, dtype."""
    filters = []
    for name in FILTERS:
        values = list(dict.fromkeys(make_keys(point)[name] for point in points))
        if name == "dtype":
            values.sort(key=_HIGH_PRECISION_FIRST.index)
        elif name == "sequence":
            values.sort(
                key=lambda value: (not value.isdigit(), int(value) if value.isdigit() else 0)
            )
        elif name != "model":
            values.sort(key=lambda value: (value not in ("eager", "python"), value))
        if name in _ALWAYS or len(values) > 1:
            filters.append(Filter(name=name, values=tuple(values)))
    return filters


def make_keys(point: Point) -> Mapping[str, str]:
    """What filters compare."""
    cell = point.cell
    return {
        "model": cell.model,
        "runtime": cell.runtime,
        "host": cell.host,
        "dtype": cell.dtype,
        "device": cell.device,
        "sequence": "none" if cell.sequence is None else str(cell.sequence),
    }


def make_point_data(facets: Sequence[Facet]) -> list[dict[str, object]]:
    """The points for charts; times in ns, ``facet`` as the place in ``facets``."""
    return [
        {
            "facet": place,
            "machine": facet.machine.name,
            **make_keys(point),
            "batch": point.cell.batch,
            "x": getattr(point.cell, facet.over),
            "guest": point in facet.guests,
            "latency": point.latency_ns,
            "interval": None if point.interval_ns is None else list(point.interval_ns),
            "overhead": point.overhead_share,
            "kernels": point.kernel_ns,
            "macs": point.macs,
            "text": point.text,
            "record": point.ref,
        }
        for place, facet in enumerate(facets)
        for point in (*facet.points, *facet.guests)
    ]


def make_facet_data(facets: Sequence[Facet]) -> list[dict[str, str]]:
    """What the axis of each facet is called, and where on it a single value would be."""
    axes = {
        "batch": {"axis": "batch", "at": "at batch"},
        "sequence": {"axis": "tokens", "at": "at a length of"},
    }
    return [axes[facet.over] for facet in facets]


def make_point_table(points: Sequence[Point], machine: Machine) -> TableView:
    """A row a point of one machine, with what is known of it."""
    mine = sorted(
        (point for point in points if point.machine.name == machine.name),
        key=lambda point: (point.cell.model, point.runtime, point.cell.dtype, point.cell.batch),
    )
    rows = [_make_row(point) for point in mine]
    names = [
        name
        for name in (rows[0] if rows else {})
        if name in _ALWAYS or any(row[name] != _NOTHING for row in rows)
    ]
    text = (*FILTERS[:5], "options", "mode", "95 % interval")
    return TableView(
        rows=Rows(
            title=f"Measurements of {machine.label}",
            columns=tuple(names),
            numeric=tuple(name for name in names if name not in text),
            rows=tuple(tuple(row[name] for name in names) for row in rows),
        ),
        records=tuple(point.ref for point in mine),
        keys=tuple(make_keys(point) for point in mine),
    )


def _make_row(point: Point) -> dict[str, str]:
    cell, share = point.cell, point.overhead_share
    return {
        "model": cell.model,
        "runtime": cell.runtime,
        "host": cell.host,
        "dtype": cell.dtype,
        "device": cell.device,
        "batch": str(cell.batch),
        "sequence": _NOTHING if cell.sequence is None else str(cell.sequence),
        "options": describe_options(cell) or _NOTHING,
        "mode": point.mode,
        "latency": format_latency(point.latency_ns, point.doubt),
        "95 % interval": format_interval(point.interval_ns),
        "rounds": str(point.rounds),
        "overhead share": _NOTHING if share is None else f"{share:.1%}",
        "kernel time": _NOTHING if point.kernel_ns is None else format_time(point.kernel_ns),
        "MACs": _NOTHING if point.macs is None else f"{point.macs:,}",
    }


def _describe_detail(point: Point, over: str) -> str:
    cell = point.cell
    size = [] if cell.sequence is None else [_count_tokens(cell.sequence)]
    if over == "sequence":
        size = [f"batch {cell.batch}"]
    options = describe_options(cell)
    return ", ".join([cell.device, *size, *([options] if options else [])])


def _count_tokens(number: int) -> str:
    return f"{number:,} token" + ("" if number == 1 else "s")
