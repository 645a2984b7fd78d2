"""Tables of traces: every number in its column, and no column without anything to say."""

import dataclasses

from ftax.instruments.trace.kernel_set import KernelSet
from ftax.instruments.trace.timeline import compute_timeline
from ftax.ladders.receipt import Receipt
from ftax.reports.tables.trace_table import (
    make_evidence_tables,
    make_kernel_table,
    make_timeline_table,
    make_top_tables,
)
from support.evidence import EAGER, GRAPH, make_all_evidence, make_evidence, make_gate, make_rungs
from support.traces import make_kernel, make_repeated_trace, make_trace

LATENCIES = (1000, 700, 500, 300, 200)


def make_receipt(evidence):
    return Receipt(rungs=tuple(make_rungs(LATENCIES)), evidence=tuple(evidence))


def test_a_rung_is_a_row():
    evidence = make_all_evidence(issue_ns=(900, 650, 400, 150, 20))
    table, timeline = make_evidence_tables(make_receipt(evidence))
    assert table.rows[0] == (
        "eager/python", "2", "0", "100 ns", "100 ns", "yes", "-", "900 ns", "100 ns",
    )  # fmt: skip
    assert table.rows[-1] == (
        "cuda-graph/cpp", "2", "0", "100 ns", "100 ns", "yes", "1.000x", "20 ns", "100 ns",
    )  # fmt: skip
    assert {len(row) for row in table.rows} == {len(table.columns)}
    assert set(table.numeric) < set(table.columns)
    assert len(timeline.rows) == 5


def test_a_cpu_has_no_such_tables():
    assert make_evidence_tables(make_receipt(())) == []
    assert make_top_tables(make_receipt(()), limit=3) == []


def test_an_unreliable_trace_shows_no_number_of_its_own():
    item = make_evidence(EAGER, dropped_records=1, gate=make_gate(70, 90))[0]
    tables = make_evidence_tables(make_receipt([item]))
    assert [table.rows for table in tables] == [
        (("eager/python", "-", "-", "-", "-", "not known", "-", "70 ns", "90 ns"),)
    ]


def test_other_kernels_and_kernels_that_nobody_compared_are_told_apart():
    evidence = make_all_evidence(other=GRAPH)
    unknown = dataclasses.replace(evidence[1], same_kernels=None)
    (table, _) = make_evidence_tables(make_receipt([evidence[0], unknown, evidence[-1]]))
    place = table.columns.index("eager's kernels")
    assert [row[place] for row in table.rows] == ["yes", "not known", "no"]
    assert [row[-2:] for row in table.rows] == [("-", "-")] * 3


def test_the_title_says_where_it_was_traced():
    here = make_evidence(EAGER)[0]
    there = dataclasses.replace(here, traced_in="worker")
    titles = [make_evidence_tables(make_receipt([item]))[0].title for item in (here, there)]
    assert "traced in this process" in titles[0]
    assert "traced in a process of its own" in titles[1]


def test_top_kernels_are_those_of_the_lowest_reliable_trace():
    first = make_evidence(EAGER, "a", "b")[0]
    second = make_evidence(("eager", "cpp"), "c", "d", "c")[0]
    broken = make_evidence(GRAPH, dropped_records=1)[0]
    (table,) = make_top_tables(make_receipt([first, second, broken]), limit=1)
    assert table.title == "Kernels of eager/cpp by time (150 ns)"
    ((kernel, *numbers),) = table.rows
    assert kernel.startswith("c [grid")
    assert numbers == ["2", "100 ns", "66.7%"]
    (same,) = make_top_tables(make_receipt([broken, second, first]), limit=1)  # as traced
    assert same.title == table.title


def test_a_timeline_is_a_row():
    table = make_timeline_table([compute_timeline(make_repeated_trace("a", "b"))])
    assert dict(zip(table.columns, table.rows[0], strict=True)) == {
        "rung": "mlp eager/cpp cuda",
        "wall": "990 ns",
        "device busy": "100 ns",
        "before first": "90 ns",
        "host late": "30 ns",
        "between": "20 ns",
        "tail": "750 ns",
        "busy share": "10.1%",
    }


def test_without_api_calls_idle_time_has_one_column_that_says_why():
    trace = make_trace(kernels=(make_kernel(1100, 1200), make_kernel(1300, 1400)))
    table = make_timeline_table([compute_timeline(trace)])
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert row["idle, no API calls"] == "100 ns"
    assert "host late" not in row
    assert "between" not in row


def test_top_kernels_have_count_total_mean_and_share():
    kernels = KernelSet.of(make_repeated_trace("a", "b", "a"))
    table = make_kernel_table(kernels, limit=1)
    assert table.rows == (("a [grid 2x1x1, block 32x1x1]", "2", "100 ns", "50 ns", "66.7%"),)
    assert "150 ns an iteration" in table.title
