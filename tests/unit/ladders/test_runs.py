"""Programs that were watched: as results of ftax, and two compared."""

from __future__ import annotations

from pathlib import Path

import pytest
from ftax_run import records
from ftax_run.account import Account, HostTime, ProcessAccount
from ftax_run.causes import PYTHON, WAIT
from ftax_run.page import make_page as make_run_page
from ftax_run.sums import Sums

import ftax
from ftax.cli.commands import app
from ftax.cli.ending import run as run_command
from ftax.ladders.runs import Run
from ftax.records.store import SCHEMA_VERSION
from ftax.reports.html.page import write_report
from support.records import make_measurement
from support.report_page import Page
from support.runs import make_run

STEP, PREPARE = ("train.py", 41, "step"), ("train.py", 17, "prepare")


def test_the_form_is_that_of_ftaxs_results(tmp_path: Path) -> None:
    assert records.SCHEMA == SCHEMA_VERSION
    path = tmp_path / "run.jsonl"
    run = make_run(500)
    records.append(run.account, path)
    (found,) = ftax.read_records(path).records
    assert isinstance(found, Run)
    assert found.account == run.account
    assert str(found).startswith("Host-bound: the device idles 60 %")
    rows = found.draw().to_numbers().rows
    assert (rows[0][0], rows[0][1], rows[0][4]) == ("train.py", 41, pytest.approx(500e3))


def test_a_record_of_another_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text('{"ftax_schema":6,"kind":"run","record":{"places":[1]}}\n')
    with pytest.raises(ftax.ResultsError, match="not as `ftax run -o` writes it"):
        ftax.read_records(path)


def test_the_line_that_grew_is_named() -> None:
    found = ftax.compare(make_run(500), make_run(900, launches=21))
    assert found.verdict == "slower"
    assert found.ratio == pytest.approx(1.4, rel=0.01)
    busy, first, second = found.lines
    assert (busy.name, busy.difference_ns, busy.verdict) == ("device busy", 0.0, "cannot-tell")
    assert (first.name, first.verdict) == ("train.py:41 step", "slower")
    assert first.difference_ns == pytest.approx(400e3, rel=0.01)
    assert first.interval_ns is not None
    assert first.interval_ns[0] < 400e3 < first.interval_ns[1]
    assert (second.name, second.verdict) == ("train.py:17 prepare", "cannot-tell")
    assert found.notes == ("launches an iteration: 20.0 in a, 21.0 in b",)


def test_two_runs_of_the_same_code_are_not_called_different() -> None:
    found = ftax.compare(make_run(500), make_run(520))
    assert found.verdict == "cannot-tell"
    assert {line.verdict for line in found.lines} == {"cannot-tell"}


def test_several_runs_a_side_count_once_each() -> None:
    sides = [[make_run(step + 4 * place) for place in range(4)] for step in (500, 700)]
    found = ftax.compare(*sides)
    assert (found.unit, found.units_a, found.verdict) == ("process", 4, "slower")
    assert found.lines[1].verdict == "slower"


def test_a_program_without_a_device() -> None:
    def make(each: float, step: float) -> Run:
        spent = Sums({(STEP, PYTHON): step, (PREPARE, WAIT): 1000 * each / 1e6 - step})
        host = HostTime(1000, 1000 * each, spent)
        process = ProcessAccount(7, host=host, marked=1000, marked_ns=[each] * 3 + [1e6])
        return Run(Account(["train.py"], processes=[process]))

    found = ftax.compare(make(1e6, 600), make(1.5e6, 1100))
    assert found.latency_b_ns > 1.2 * found.latency_a_ns
    first, second = found.lines
    assert (first.name, first.verdict) == ("train.py:41 step", "slower")
    assert first.difference_ns == pytest.approx(0.5e6)
    assert (second.name, second.verdict) == ("train.py:17 prepare", "cannot-tell")


def test_a_run_that_is_too_short() -> None:
    with pytest.raises(ftax.InvalidArgumentError, match="b has 2 turns whose iterations are known"):
        ftax.compare(make_run(500), make_run(500, turns=2))
    with pytest.raises(ftax.InvalidArgumentError, match="nothing was seen of it"):
        ftax.compare(make_run(500), Run(Account(["train.py"])))


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, step in (("before", 500), ("after", 900)):
        records.append(make_run(step).account, tmp_path / f"{name}.jsonl")
    files = [str(tmp_path / f"{name}.jsonl") for name in ("before", "after")]
    assert run_command(app, ["compare", *files]) == 1
    text = capsys.readouterr().out
    assert "after against before: slower, +40" in text
    assert "What changed most is train.py:41 step" in text
    assert run_command(app, ["show", files[0]]) == 0
    assert "look first at train.py:41 step" in " ".join(capsys.readouterr().out.split())


def test_a_report_of_runs_is_their_page(tmp_path: Path) -> None:
    path, page = tmp_path / "run.jsonl", tmp_path / "page.html"
    runs = [make_run(500), make_run(700)]
    for run in runs:
        records.append(run.account, path)
    assert len(write_report([path], page, title="Two runs").found) == 2
    # The file has amounts in a tenth of a nanosecond.
    assert page.read_text() == make_run_page(records.read(path), "Two runs")
    with pytest.raises(ftax.InvalidArgumentError, match="is no HTML page"):
        write_report([path], path)


def test_a_run_beside_other_results_is_a_row_of_their_report(tmp_path: Path) -> None:
    run = make_run(500)
    records.append(run.account, tmp_path / "run.jsonl")
    make_measurement([100, 110]).save(tmp_path / "other.jsonl")
    write_report([tmp_path], tmp_path / "page.html")
    table = Page((tmp_path / "page.html").read_text()).find_table("Records of this page")
    (row,) = (row["cells"] for row in table["rows"] if row["cells"][1] == "run")
    assert row[:3] == ["run.jsonl:1", "run", run.describe()]
