"""Points arranged for charts: a small chart for each model and input on each machine, and filters.

The surprising choice: models never share a chart. Runtimes of one model are what one compares, and
latencies of two models differ by more than an axis can show.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ftax.report.html.machines import Machine
from ftax.report.html.points import Point, describe_options
from ftax.report.html.view import Chart, TableView
from ftax.report.table import Rows
from ftax.report.units import format_interval, format_time

FILTERS = ("model", "runtime", "host", "dtype", "device", "sequence")
_ALWAYS = FILTERS[:4]
_NOTHING = "-"
_HIGH_PRECISION_FIRST = ("fp32", "fp16", "bf16")


@dataclass(frozen=True, slots=True, kw_only=True)
class Facet:
    """The points of one model with one kind of input, on one device of one machine."""

    machine: Machine
    model: str
    detail: str  # what tells it from other charts of the model
    points: tuple[Point, ...]


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
    groups: dict[tuple[str, int, str], list[Point]] = {}
    for point in points:
        if point.mode == "latency":
            key = (point.machine.name, order.index(point.cell.model), _describe_detail(point))
            groups.setdefault(key, []).append(point)
    return [
        Facet(
            machine=group[0].machine,
            model=group[0].cell.model,
            detail=detail,
            points=tuple(sorted(group, key=lambda point: (point.runtime, point.cell.batch))),
        )
        for (_, _, detail), group in sorted(groups.items(), key=lambda item: item[0])
    ]


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
                label=f"{what} of {facet.model}, {facet.detail}, against batch, a line a runtime. "
                "The table of all measurements has the same numbers.",
            ),
        )
        for place, facet in enumerate(facets)
        if kind == "latency" or any(point.overhead_share is not None for point in facet.points)
    ]


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
            "latency": point.latency_ns,
            "interval": None if point.interval_ns is None else list(point.interval_ns),
            "overhead": point.overhead_share,
            "kernels": point.kernel_ns,
            "macs": point.macs,
            "text": point.text,
            "record": point.ref,
        }
        for place, facet in enumerate(facets)
        for point in facet.points
    ]


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
        "latency": format_time(point.latency_ns),
        "95 % interval": format_interval(point.interval_ns),
        "rounds": str(point.rounds),
        "overhead share": _NOTHING if share is None else f"{share:.1%}",
        "kernel time": _NOTHING if point.kernel_ns is None else format_time(point.kernel_ns),
        "MACs": _NOTHING if point.macs is None else f"{point.macs:,}",
    }


def _describe_detail(point: Point) -> str:
    cell = point.cell
    tokens = [] if cell.sequence is None else [f"{cell.sequence} tokens"]
    options = describe_options(cell)
    return ", ".join([cell.device, *tokens, *([options] if options else [])])
