"""Rows of docs/measured.md: the last record that has a figure, and what is said of it."""

from __future__ import annotations

import json

import measured
import pytest
from measured import Row, make_row, make_table


def write(folder, figures, command="python bench/loop.py", processes=3):
    record = {"command": command, "process_count": processes, "figures": figures}
    with (folder / "loop.jsonl").open("a") as file:
        file.write(json.dumps(record) + "\n")


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.setattr(measured, "RESULTS", tmp_path)
    return tmp_path


def make_figure(value, target="at most 2", met=True, unit="s"):
    return {"value": value, "unit": unit, "target": target, "met": met}


def test_a_row_has_the_value_the_target_and_the_verdict_of_the_last_record(results):
    write(results, {"a: wall": make_figure(9.0, met=False)})
    write(results, {"a: wall": make_figure(1.26)})
    row = Row("how long", "loop", "wall", ".1f")
    assert make_row(row) == "| how long (`bench/loop.py`) | 1.3 s | at most 2 | met |\n"
    write(results, {"b: wall": make_figure(2.5, met=False)})  # of another case
    assert "| 1.3 to 2.5 s | at most 2 | missed |" in make_row(row)
    write(results, {"other": make_figure(2.5, target=None, met=None)})
    assert "| 2.5 s |  |  |" in make_row(Row("x", "loop", "other", ".1f"))


def test_a_row_may_want_options_or_processes(results):
    write(results, {"wall": make_figure(1.0)}, "python bench/loop.py --tiny", processes=1)
    write(results, {"wall": make_figure(2.0)})
    rows = (
        Row("x", "loop --tiny", "wall"),
        Row("x", "loop", "wall", without="--tiny"),
        Row("x", "loop", "wall", processes=3),
    )
    assert [make_row(row).split("|")[2].strip() for row in rows] == ["1 s", "2 s", "2 s"]
    assert "(`bench/loop.py --tiny`)" in make_row(rows[0])


def test_a_row_without_its_record_and_a_table_that_there_is_not_are_named(results):
    with pytest.raises(ValueError, match=r"loop\.jsonl has no figure 'wall': measure it, or drop"):
        make_row(Row("x", "loop", "wall"))
    with pytest.raises(ValueError, match="there is no table 'tpu': write cpu or gpu"):
        make_table("tpu")
