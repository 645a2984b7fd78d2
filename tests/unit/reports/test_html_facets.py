"""Which points share a chart, over which axis, and machines that would read the same."""

from __future__ import annotations

from dataclasses import replace

from ftax.machines.environment import collect_environment
from ftax.reports.html.charts import Looks, Plot
from ftax.reports.html.facets import LATENCY, draw_facets, make_facets
from ftax.reports.html.machines import Machines
from ftax.reports.html.page import _count
from ftax.reports.html.points import Point
from ftax.timing.cell import Cell

HERE = collect_environment()
MACHINE = next(iter(Machines([HERE])))


def make_point(batch, sequence, runtime="eager", model="bert-base"):
    cell = Cell(model=model, runtime=runtime, host="python", batch=batch, sequence=sequence)
    return Point(
        cell=cell, machine=MACHINE, ref="a:1", mode="latency", latency_ns=5.0, interval_ns=None,
        rounds=3,
    )  # fmt: skip


def sizes(points):
    return sorted((point.cell.batch, point.cell.sequence) for point in points)


def test_lengths_with_one_batch_share_a_chart_with_a_guest_from_the_other():
    points = [make_point(batch, 128) for batch in (1, 2, 64)]
    points += [make_point(64, length) for length in (16, 1, 512)]
    batches, lengths = make_facets(points)
    assert (batches.over, batches.detail) == ("batch", "cpu, 128 tokens")
    assert sizes(batches.points) == [(1, 128), (2, 128), (64, 128)] and not batches.guests
    assert (lengths.over, lengths.detail) == ("sequence", "cpu, batch 64")
    assert sizes(lengths.points) == [(64, 1), (64, 16), (64, 512)]
    assert sizes(lengths.guests) == [(64, 128)]
    charts = draw_facets([batches, lengths], LATENCY, Looks([point.cell for point in points]))
    drawn = [
        [mark.x for line in panel.chart.lines for mark in line.marks] for panel in charts.panels
    ]
    assert drawn == [[1, 2, 64], [1, 16, 128, 512]]
    assert [panel.chart.x.title for panel in charts.panels] == ["batch", "tokens"]
    assert [panel.keys.get("sequence") for panel in charts.panels] == ["128", None]


def test_one_length_of_one_batch_and_images_keep_charts_of_their_own():
    points = [make_point(1, 1), make_point(8, 16), make_point(1, None, model="resnet-50")]
    facets = make_facets(points)
    assert [(facet.over, facet.detail) for facet in facets] == [
        ("batch", "cpu, 1 token"),
        ("batch", "cpu, 16 tokens"),
        ("batch", "cpu"),
    ]


def test_a_chart_with_one_size_has_a_bar_a_runtime():
    points = [make_point(1, 8, runtime) for runtime in ("eager", "jax", "aoti")]
    looks = Looks([point.cell for point in points])
    (panel,) = draw_facets(make_facets(points), LATENCY, looks).panels
    assert sorted(bar.name for bar in panel.chart.bars) == [
        "aoti/python", "eager/python", "jax/python",
    ]  # fmt: skip
    assert {bar.value for bar in panel.chart.bars} == {"5 ns"}
    (panel,) = draw_facets(make_facets([*points, make_point(2, 8)]), LATENCY, looks).panels
    assert isinstance(panel.chart, Plot)


def test_machines_that_read_the_same_say_what_differs():
    other = replace(HERE, host=replace(HERE.host, memory_bytes=1 << 30))
    slow = replace(HERE, host=replace(HERE.host, usable_cpus=3))
    first, second, third = (machine.title for machine in Machines([HERE, other, slow]))
    assert first.endswith(f"host.memory_bytes {HERE.host.memory_bytes}")
    assert second.endswith(f"host.memory_bytes {1 << 30}")
    assert "memory_bytes" not in third and "3 CPUs" in third


def test_kinds_that_are_plural_stay_so():
    assert [_count(1, "receipt"), _count(2, "receipt"), _count(2, "sweep-times")] == [
        "1 receipt", "2 receipts", "2 sweep-times",
    ]  # fmt: skip
