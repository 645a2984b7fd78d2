"""Machines side by side, in a terminal and on a page; one machine alone has its old tables."""

from __future__ import annotations

import re
from dataclasses import replace

from ftax.records.store import append_record
from ftax.reports.html.page import make_page
from ftax.reports.html.sources import read_sources
from ftax.reports.tables.sweep_table import draw_sweep
from ftax.reports.terminal import to_text
from support.fleet import A100, H100, make_cell, make_machine, make_results
from support.report_page import Page
from support.tables import read_column

FAST = make_machine(H100, "east", torch="2.11.0")
SLOW = make_machine(A100, "west", torch="2.13.0")
CELLS = (
    make_cell(FAST, 100.0, asks=H100),
    make_cell(SLOW, 150.0, asks=A100),
    make_cell(FAST, 200.0, asks=H100, batch=8),
    make_cell(SLOW, asks=A100, values=[100.0, 100.0, 900.0], batch=16),
)
NOTE = "* not measured with the software of H100: torch is 2.11.0 for H100 and 2.13.0 for A100"


def test_a_model_is_a_table_with_a_column_a_machine():
    drawn = draw_sweep(make_results(CELLS, FAST, SLOW))
    table, variance = drawn.tables
    assert variance.title.startswith("How far latencies differ")
    assert table.title == (
        "bert-base on 2 machines, called from Python, device cuda, dtype fp16, sequence 128"
    )
    assert table.columns == ("runtime", "batch", "H100", "A100 *")
    assert table.rows == (
        ("eager", "1", "100 us", "150 us"),
        ("eager", "8", "200 us", "-"),
        ("eager", "16", "-", "367 us, not resolved"),
    )
    assert drawn.notes == (NOTE,)
    assert NOTE in " ".join(to_text(drawn, width=80).split())
    assert NOTE in drawn.to_markdown()


def test_repetitions_and_what_machines_do_not_share_are_not_in_it():
    lone = make_cell(FAST, model="gpt2")
    more = make_cell(FAST, 101.0, repetition=1, asks=H100)
    tables = draw_sweep(make_results([*CELLS, more, lone], FAST, SLOW)).tables
    assert [len(table.rows) for table in tables] == [3, 1, 2]
    assert tables[1].title.startswith(f"1 cells on machine {FAST.id}: model gpt2")


def test_one_machine_has_the_table_that_it_always_had():
    drawn = draw_sweep(make_results(CELLS[:1], FAST))
    assert drawn.tables[0].columns == ("latency", "95 % interval", "overhead", "kernels", "GMACs")
    assert drawn.notes == ()


def test_a_cell_that_was_measured_once_more_says_so():
    more = make_cell(FAST, 101.0, repetition=1, asks=H100)
    table = draw_sweep(make_results([CELLS[0], more], FAST)).tables[0]
    assert table.columns[0] == "options"
    assert [row[0] for row in table.rows] == ["-", "repetition 1"]


def test_a_narrow_terminal_leaves_the_last_machines_out_and_says_so():
    many = [make_machine(f"GPU number {place}") for place in range(9)]
    text = to_text(draw_sweep(make_results(map(make_cell, many), *many)), width=60)
    assert max(map(len, text.splitlines())) <= 60
    told = " ".join(text.partition("(no room")[2].split())
    assert "GPU number 8" in told and "GPU number 1," not in told


def test_rows_for_programs_name_the_machine():
    rows = draw_sweep(make_results(CELLS, FAST, SLOW)).to_numbers()
    place = rows.columns.index("machine_name")
    assert [row[place] for row in rows.rows] == ["H100", "A100", "H100", "A100"]


def test_a_page_has_the_table_with_the_record_of_each_latency(tmp_path):
    for record in (FAST, SLOW, *CELLS):
        append_record(tmp_path / "cells.jsonl", record)
    text = make_page(read_sources([tmp_path]))
    assert 'href="#machines"' in text
    page = Page(text)
    table = next(table for table in page.tables if table["caption"].startswith("bert-base on 2"))
    head, first, *_ = table["rows"]
    assert head["cells"][2:4] == ["A: H100, east", "B: A100, west *"]
    assert first["record"] == "cells.jsonl:3, cells.jsonl:4"
    assert "torch is 2.11.0 for A: H100, east and 2.13.0 for B: A100, west" in "".join(page.text)


def test_machines_that_differ_in_their_names_alone_stand_apart_on_a_page(tmp_path):
    twin = replace(FAST, id="twin", environment=replace(FAST.environment, machine="north"))
    for record in (FAST, twin, make_cell(FAST), make_cell(twin)):
        append_record(tmp_path / "cells.jsonl", record)
    page = Page(make_page(read_sources([tmp_path])))
    (table,) = (table for table in page.tables if table["caption"].startswith("bert-base on 2"))
    assert table["rows"][0]["cells"][1:3] == ["A: H100, east", "B: H100, north"]


def test_kinds_of_machines_have_a_row_of_variance_each_or_the_reason():
    twin = make_machine(H100, "north", torch="2.11.0")
    anchors = [
        make_cell(machine, latency_us + run, repetition=run)
        for machine, latency_us in ((FAST, 100.0), (twin, 120.0))
        for run in range(3)
    ]
    *_, table = draw_sweep(make_results([*anchors, CELLS[1]], FAST, twin, SLOW)).tables
    kinds = read_column(table, "kind of machine")
    assert kinds == ["H100", "A100"] and read_column(table, "machines") == ["2", "1"]
    assert read_column(table, "between runs") == ["0.91 %", "-"]
    assert read_column(table, "between machines") == ["13 %", "-"]
    assert re.fullmatch(r"[\d.]+ to \d+ %", read_column(table, "95 % interval")[0])
    assert read_column(table, "why not")[0] == ""
    assert read_column(table, "why not")[1].startswith("cannot tell: no cell was measured twice")
