"""Knees of several machines: a row a machine, and what differs; one machine has its old table."""

from __future__ import annotations

from dataclasses import replace

from ftax.records.store import append_record
from ftax.reports.html.page import make_page
from ftax.reports.html.sources import read_sources
from ftax.reports.tables.knee_table import draw_knees, make_knee_table
from support.fleet import A100, H100, make_machine
from support.report_page import Page
from support.report_results import make_knee
from support.tables import read_column

FAST, SLOW = make_machine(H100, torch="2.11.0"), make_machine(A100, torch="2.13.0")
KNEES = [
    make_knee(runtime, machine.environment, last_on=last_on)
    for runtime in ("eager", "torchscript")
    for machine, last_on in ((FAST, 16), (SLOW, 4))
]


def test_knees_of_machines_are_rows_of_one_table():
    drawn = draw_knees(*KNEES)
    answers, *points = drawn.tables
    assert read_column(answers, "machine") == ["H100", "A100 *", "H100", "A100 *"]
    assert read_column(answers, "last on it") == ["16", "4", "16", "4"]
    assert [table.title.partition(":")[0] for table in points][:2] == [
        "eager/python on H100", "eager/python on A100 *",
    ]  # fmt: skip
    assert drawn.notes == (
        "* not measured with the software of H100: torch is 2.11.0 for H100 and 2.13.0 for A100",
    )


def test_knees_of_one_machine_do_not_name_it():
    drawn = draw_knees(KNEES[0], KNEES[2])
    assert "machine" not in make_knee_table([KNEES[0], KNEES[2]]).columns
    assert drawn.tables[1].title.startswith("eager/python: probed sizes") and drawn.notes == ()


def test_a_page_has_one_chart_of_all_machines(tmp_path):
    for knee in KNEES:
        append_record(tmp_path / "knees.jsonl", replace(knee, warnings=()))
    page = Page(make_page(read_sources([tmp_path])))
    table = page.find_table("Knee over batch: bert-base")
    column = table["rows"][0]["cells"].index("machine")
    assert [row["cells"][column] for row in table["rows"][1:]] == [
        "A: H100", "B: A100 *", "A: H100", "B: A100 *",
    ]  # fmt: skip
    charts = [label for label, _ in page.charts if label.startswith("latency over that of batch 1")]
    assert len(charts) == 2  # at the top of the page, and in its section
    assert "eager/python on B: A100 *: " in charts[0]
