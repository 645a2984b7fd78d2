"""The page about ftax itself: its numbers are those that the script prints of the records."""

from __future__ import annotations

import pytest
from measured import PAGE, Records
from measured_rows import count, judge, make_cells, round_up, span


def test_the_page_is_what_the_script_writes():
    records = Records()
    sections = [describe(records) for describe in PAGE.sections.values()]
    assert PAGE.page.read_text("utf-8") == PAGE.render(sections)


@pytest.mark.parametrize(
    ("figure", "cells"),
    [
        ({"value": 1.26, "target": "at most 2", "met": True}, "1.3 s | at most 2 s | met"),
        ({"value": 2.5, "target": "at most 2", "met": False}, "2.5 s | at most 2 s | missed"),
        ({"value": 2.5, "target": None, "met": None}, "2.5 s |  | "),
    ],
)
def test_a_row_has_the_value_the_target_and_the_verdict_of_its_record(figure, cells):
    record = {"figures": {"wall": {"unit": "s", **figure}}}
    assert make_cells(record, "wall", ".1f") == cells


def test_what_is_said_to_be_within_a_limit_is_within_it():
    assert round_up(1.947, 1) == "2.0"
    assert round_up(1.9, 1) == "1.9"
    assert round_up(0.1134, 2) == "0.12"


def test_all_of_all_is_met_and_one_less_is_missed():
    assert count(9, 9) == "9 of 9 | 9 of 9 | met"
    assert count(8, 9) == "8 of 9 | 9 of 9 | missed"
    assert judge(None) == ""


def test_a_span_goes_from_the_smallest_to_the_largest():
    assert span([3.0, 1.0, 2.04], ".1f") == "1.0 to 3.0"


def test_a_row_without_its_record_is_an_error_that_names_the_file(tmp_path):
    records = object.__new__(Records)
    records.folder = tmp_path
    with pytest.raises(ValueError, match=r"loop\.jsonl has no record"):
        records.last("loop")
