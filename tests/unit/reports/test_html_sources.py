"""Results that a report cannot read, or should not write over: errors with file and line, or
warnings of the page."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ftax.errors import InvalidArgumentError, ResultsError
from ftax.records.store import append_record
from ftax.reports.html.page import make_page, write_report
from ftax.reports.html.sources import read_sources
from ftax.sweeps.sweep_records import SweepCell, SweepMachine
from ftax.timing.cell import Cell
from support.records import make_measurement
from support.report_page import Page
from support.report_results import make_environments, make_receipts


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("results")
    (path / "sub").mkdir()
    for name in ("receipts.jsonl", "sub/others.jsonl"):
        append_record(path / name, make_receipts()[0])
    return path


HERE = SweepMachine.of(make_environments()[0])


def write_cells(path: Path, *records: object) -> None:
    for record in records:
        append_record(path, record)


def make_cell(machine: SweepMachine | str, *values_ns: float, **changes) -> SweepCell:
    options = changes.pop("options", {})
    cell = Cell(model="m", runtime="eager", host="cpp", batch=1, sequence=None, options=options)
    name = machine if isinstance(machine, str) else machine.id
    return SweepCell(
        cell=cell, machine=name, **{"status": "measured", "values_ns": values_ns, **changes}
    )


def make_file(folder: Path, *lines: bytes) -> Path:
    path = folder / "some.jsonl"
    append_record(path, make_measurement([1000, 1001]))
    with path.open("ab") as file:
        file.write(b"".join(lines))
    return path


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b'{"ftax_schema":6,"kind":"measu', "not a whole line of JSON"),
        (b'{"ftax_schema":99,"kind":"measurement","record":{}}\n', "schema version 99"),
        (b'{"some":"json"}\n', "no record of ftax"),
        (b'{"ftax_schema":6,"kind":"poem","record":{}}\n', "kind 'poem' is unknown"),
    ],
)
def test_a_line_that_cannot_be_read_is_an_error_or_a_warning_of_the_page(tmp_path, line, words):
    path = make_file(tmp_path, line)
    with pytest.raises(ResultsError, match=r"some.jsonl:2: .*--skip-bad") as caught:
        read_sources([path])
    assert words in str(caught.value)
    page = Page(make_page(read_sources([path], skip_bad=True), skip_bad=True))
    warnings = "".join(page.text).split("What could not be read")[1]
    assert "some.jsonl:2: " in warnings
    assert words in warnings
    assert str(tmp_path) not in warnings


def test_compressed_files_of_a_folder_are_read(folder, tmp_path):
    packed = tmp_path / "receipts.jsonl.gz"
    packed.write_bytes(gzip.compress((folder / "receipts.jsonl").read_bytes()))
    (found,) = read_sources([tmp_path]).found
    (plain,) = read_sources([folder / "receipts.jsonl"]).found
    assert found.ref == "receipts.jsonl.gz:1" and found.record == plain.record


def test_a_file_of_another_program_is_one_line(tmp_path):
    make_file(tmp_path)
    (tmp_path / "other.jsonl").write_text('{"a":1}\n' * 30)
    sources = read_sources([tmp_path], skip_bad=True)
    assert len(sources.problems) == 1
    assert sources.problems[0].startswith("other.jsonl: none of its 30 lines can be read; other")


@pytest.mark.parametrize("skip_bad", [False, True])
def test_nothing_to_show_is_an_error(tmp_path, skip_bad):
    with pytest.raises(ResultsError, match=r"no file that ends in \.jsonl"):
        read_sources([tmp_path], skip_bad=skip_bad)
    with pytest.raises(ResultsError, match=r"there is no .*gone\.jsonl"):
        read_sources([tmp_path / "gone.jsonl"], skip_bad=skip_bad)
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(ResultsError, match=r"empty\.jsonl"):
        read_sources([tmp_path], skip_bad=skip_bad)


def test_a_cell_of_an_unknown_machine_is_named(tmp_path):
    path = make_file(tmp_path)
    append_record(path, make_cell("gone", 1.0))
    sources = read_sources([path])
    with pytest.raises(ResultsError, match=r"some\.jsonl:2: .*'gone'.*add the file"):
        make_page(sources)
    page = Page(make_page(sources, skip_bad=True))
    assert "names machine 'gone'" in "".join(page.text)
    append_record(path, make_cell(HERE, 2.0))
    append_record(path, HERE)  # a line that comes later counts too
    text = make_page(read_sources([path], skip_bad=True), skip_bad=True)
    assert [row["latency"] for row in Page(text).find_points()] == ["1 µs", "2 ns, not resolved"]


def test_a_cell_that_was_measured_once_more_is_no_second_point(tmp_path):
    again = (make_cell(HERE, 3.0, options={"repetition": place}) for place in (1, 2))
    write_cells(tmp_path / "cells.jsonl", HERE, make_cell(HERE, 2.0), *again)
    (row,) = Page(make_page(read_sources([tmp_path]))).find_points()
    assert row["latency"].startswith("2 ns")


def test_a_file_that_is_named_twice_is_read_once(folder):
    once = read_sources([folder])
    twice = read_sources([folder, folder / "receipts.jsonl", folder / "sub"])
    assert twice.found == once.found


def test_results_are_not_written_over(folder, tmp_path):
    before = (folder / "receipts.jsonl").read_bytes()
    with pytest.raises(InvalidArgumentError, match="no HTML page"):
        write_report([folder], folder / "receipts.jsonl")
    assert (folder / "receipts.jsonl").read_bytes() == before
    with pytest.raises(InvalidArgumentError, match="is a folder"):
        write_report([folder], tmp_path)
    with pytest.raises(InvalidArgumentError, match="choose a path"):
        write_report([folder / "receipts.jsonl"], tmp_path / "gone" / "report.html")


def test_what_is_no_file_is_not_replaced_and_a_link_stays_one(folder, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(InvalidArgumentError, match="no regular file; name one"):
        write_report([folder], pipe)
    assert pipe.is_fifo()
    (tmp_path / "link.html").symlink_to(tmp_path / "page.html")  # not there yet
    write_report([folder], tmp_path / "link.html")
    write_report([folder], tmp_path / "link.html")
    assert (tmp_path / "link.html").is_symlink()
    assert not (tmp_path / "page.html").is_symlink()
    assert (tmp_path / "page.html").read_bytes().startswith(b"<!doctype html>")


def test_a_page_is_written_over(folder, tmp_path):
    target = tmp_path / "report.html"
    write_report([folder / "receipts.jsonl"], target)
    write_report([folder / "sub"], target, title="Knees & more")
    text = target.read_text(encoding="utf-8")
    assert "<h1>Knees &amp; more</h1>" in text
    assert list(tmp_path.iterdir()) == [target]


def test_the_command_writes_the_page_and_says_what_it_left_out(folder, tmp_path):
    from ftax.cli.commands import app

    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"some":"json"}\n')
    target = tmp_path / "report.html"
    arguments = ["report", str(folder), str(bad), "-o", str(target)]
    refused = CliRunner().invoke(app, arguments)
    assert isinstance(refused.exception, ResultsError)
    assert not target.exists()
    done = CliRunner().invoke(app, [*arguments, "--skip-bad", "--title", "Two receipts"])
    assert done.exit_code == 0, done.output
    assert "wrote 2 records of 3 files" in done.output
    assert "left out: " in done.output
    assert "<h1>Two receipts</h1>" in target.read_text(encoding="utf-8")


def test_a_sweep_of_which_nothing_was_measured_is_told(tmp_path):
    failed = make_cell(HERE, status="failed", reason="no memory")
    write_cells(tmp_path / "cells.jsonl", HERE, failed)
    page = Page(make_page(read_sources([tmp_path])))
    assert page.find_table("Cells of sweeps that were not measured: 1")["rows"][1]["cells"][2] == (
        "no memory"
    )
    assert "numbers" in page.ids()
    assert not [tag for tag, _ in page.tags if tag == "form"]
    assert page.mismatches == []
