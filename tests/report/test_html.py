"""The page without a browser: its sections and tables, every number with its record, nothing that
could run, machines apart, and results that cannot be read."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from report_results import BATCHES, SCRIPT, make_environments, make_receipts, write_results

from ftax.errors import InvalidArgumentError, ResultsError
from ftax.report.html import make_page, read_sources, write_report
from ftax.report.html.machines import Machines
from ftax.report.html.page import _read_plotly
from ftax.report.html.points import describe_options
from ftax.report.html.theme import DARK, LIGHT, SERIES, compute_contrast
from ftax.report.units import format_time
from ftax.results import Cell, append_record
from ftax.sweep import SweepCell, SweepMachine
from records import make_measurement

VOID = {"meta", "input", "br", "img", "link", "hr"}


class Page(HTMLParser):
    """Tags as they are opened, texts, tables as rows of texts, and tags that do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.mismatches: list[str] = []
        self.tables: list[dict[str, object]] = []
        self.data = ""
        self.text: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.tags.append((tag, attributes))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self.tables.append({"record": attributes.get("data-record"), "caption": "", "rows": []})
        elif tag == "tr":
            self.tables[-1]["rows"].append({"record": attributes.get("data-record"), "cells": []})
        elif tag in ("td", "th"):
            self.tables[-1]["rows"][-1]["cells"].append("")

    def handle_endtag(self, tag):
        if self.open and self.open[-1] == tag:
            self.open.pop()
        else:
            self.mismatches.append(tag)

    def handle_data(self, data):
        inside = self.open[-1] if self.open else ""
        if inside == "script":
            if self.tags[-1][1].get("type") == "application/json":
                self.data += data
            return
        if inside == "style":
            return
        self.text.append(data)
        if "caption" in self.open:
            self.tables[-1]["caption"] += data
        elif {"td", "th"} & set(self.open):
            self.tables[-1]["rows"][-1]["cells"][-1] += data

    def ids(self):
        return [attributes["id"] for _, attributes in self.tags if "id" in attributes]

    def find_table(self, caption):
        return next(table for table in self.tables if table["caption"].startswith(caption))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_results(tmp_path_factory.mktemp("results"))


@pytest.fixture(scope="module")
def text(folder: Path) -> str:
    return make_page(read_sources([folder]))


@pytest.fixture(scope="module")
def page(text: str) -> Page:
    return Page(text)


def test_every_section_is_there_and_linked(page):
    sections = {"overview", "receipts", "latency", "overhead", "work", "numbers", "knees",
                "comparisons", "claims", "method", "warnings"}  # fmt: skip
    assert sections <= set(page.ids())
    links = {a["href"] for tag, a in page.tags if tag == "a"}
    assert {f"#{name}" for name in sections} <= links
    assert {link.removeprefix("#") for link in links} <= set(page.ids())
    assert len(page.ids()) == len(set(page.ids()))


def test_tags_are_closed_in_order(page):
    assert page.mismatches == []
    assert page.open == []


def test_the_lines_of_a_receipt_sum_to_its_latency(page):
    data = json.loads(page.data)
    for shown, receipt in zip(data["receipts"], make_receipts(), strict=True):
        assert sum(line["time"] for line in shown["lines"]) == pytest.approx(receipt.latency_ns)
        assert shown["lines"][-1]["start"] + shown["lines"][-1]["time"] == pytest.approx(
            shown["latency"]
        )
        for line in shown["lines"]:
            low, high = line["interval"]
            assert low <= line["time"] <= high


def test_a_receipt_is_a_table_too(page):
    receipt = make_receipts()[0]
    table = page.find_table("Receipt: mlp, cpu, fp32, batch 1")
    assert table["record"] == "receipts.jsonl:1"
    names = [row["cells"][0] for row in table["rows"][1:]]
    assert names == [*(line.name for line in receipt.lines), "= eager, host python"]
    total = table["rows"][-1]["cells"][1]
    assert total == format_time(receipt.latency_ns).replace("us", "µs")


def test_every_row_of_numbers_names_a_line_that_has_a_record(page, folder):
    lines = {}
    for file in folder.rglob("*.jsonl"):
        for number, line in enumerate(file.read_text().splitlines(), start=1):
            lines[f"{file.relative_to(folder).as_posix()}:{number}"] = json.loads(line)
    free = ("Files", "What each machine is")  # what is no record's
    checked = 0
    for table in page.tables:
        if table["caption"].startswith(free):
            continue
        for row in table["rows"][1:]:
            assert (table["record"] or row["record"]) in lines, table["caption"]
            checked += 1
    assert checked > 300
    for point in json.loads(page.data)["points"]:
        assert point["record"] in lines


def test_a_point_says_what_its_record_says(page, folder):
    cells = (folder / "sweep" / "cells.jsonl").read_text().splitlines()
    points = [p for p in json.loads(page.data)["points"] if p["record"].startswith("sweep/")]
    assert len(points) == 321
    for point in points:
        record = json.loads(cells[int(point["record"].rpartition(":")[2]) - 1])["record"]
        assert (point["model"], point["batch"]) == (
            record["cell"]["model"],
            record["cell"]["batch"],
        )
        values = record["values_ns"]
        assert point["latency"] == pytest.approx(sum(values) / len(values))
        assert point["interval"][0] <= point["latency"] <= point["interval"][1]


def test_a_name_that_looks_like_a_script_is_text(text, page):
    assert SCRIPT in "".join(page.text)
    assert "<script>window" not in text
    assert "<img" not in text
    scripts = [a for tag, a in page.tags if tag == "script"]
    assert len(scripts) == 5  # data, plotly, and three of the page
    assert json.loads(page.data)["points"]


def test_nothing_may_be_fetched_and_only_its_own_scripts_may_run(page, text):
    (policy,) = [a["content"] for _, a in page.tags if a.get("http-equiv")]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-inline" not in policy.split("style-src")[0]
    for _, attributes in page.tags:
        assert not {"src", "srcset", "onclick", "onerror"} & set(attributes)
        assert (attributes.get("href") or "#").startswith("#")
    assert "@import" not in text.split("<script", 1)[0]
    assert "url(" not in text.split("<script", 1)[0]


def test_plotly_cannot_end_its_script_element():
    script = _read_plotly()
    assert "</script" not in script.lower()
    assert "\r" not in script


def test_machines_stand_apart(page):
    points = json.loads(page.data)["points"]
    by_facet = {}
    for point in points:
        by_facet.setdefault(point["facet"], set()).add(point["machine"])
    assert all(len(machines) == 1 for machines in by_facet.values())
    assert {point["machine"] for point in points} == {"A", "B"}
    body = "".join(page.text)
    assert "no number here is made of two machines" in " ".join(body.split())
    assert re.search(r"Machine B: NVIDIA Test 200, .*CPUs", body)
    facts = page.find_table("What each machine is")
    differing = [row["cells"][0] for row in facts["rows"] if row["cells"][-1] == "differs"]
    assert "gpu.name" in differing
    assert "software.torch" not in differing


def test_a_machine_is_its_facts_and_not_its_hour():
    here, gpu = make_environments()
    later = replace(here, condition=replace(here.condition, utc="2030-01-01T00:00:00.000+00:00"))
    hot = replace(gpu, gpu=replace(gpu.gpu, temperature_c=80, sm_clock_mhz=1000))
    threads = replace(here, settings=replace(here.settings, num_threads=77))
    machines = Machines([here, gpu, later, hot, threads])
    assert len(machines) == 3
    assert machines.find(later) is machines.find(here)
    assert machines.find(hot) is machines.find(gpu)
    assert "77 threads" in machines.find(threads).title


def test_a_cell_that_was_measured_anew_is_shown_once_and_a_failed_one_with_its_reason(page):
    missing = page.find_table("Cells of sweeps that were not measured: 1")
    (row,) = missing["rows"][1:]
    assert row["cells"][1:3] == ["failed", "memory ran out at <b>512</b>"]
    assert "first time" not in "".join(page.text)


def test_filters_offer_what_there_is(page):
    options = [a["value"] for tag, a in page.tags if tag == "option"]
    assert set(options) == {"", "mlp", "bert-base", "gpt2", SCRIPT}
    boxes = {(a["name"], a["value"]) for tag, a in page.tags if a.get("type") == "checkbox"}
    assert {("runtime", "eager"), ("host", "cpp"), ("dtype", "fp16")} <= boxes
    assert {name for name, _ in boxes} == {"runtime", "host", "dtype", "device", "sequence"}


def test_charts_have_a_place_and_words_for_those_who_do_not_see_them(page):
    charts = [a for _, a in page.tags if "data-chart" in a]
    assert {a["data-chart"] for a in charts} == {
        "ladder", "runtimes", "latency", "overhead", "work", "knee"
    }  # fmt: skip
    assert all(a["role"] == "img" and len(a["aria-label"]) > 30 for a in charts)


def test_tables_have_captions_and_can_be_scrolled_by_key(page):
    assert all(table["caption"].strip() for table in page.tables)
    regions = [a for _, a in page.tags if a.get("role") == "region"]
    assert len(regions) == len(page.tables)
    assert all(a["tabindex"] == "0" and a["aria-label"] for a in regions)


def test_knees_comparisons_claims_and_warnings_are_told(page):
    knees = page.find_table("Knee over batch: bert-base")
    assert [row["record"] for row in knees["rows"][1:]] == ["knees.jsonl:1", "knees.jsonl:2"]
    assert "knee between batch 16" in " ".join(knees["rows"][1]["cells"])
    comparisons = page.find_table("Comparisons")
    assert comparisons["rows"][1]["cells"][2] == "equal"
    claims = page.find_table("Claims of the paper, then and now")
    assert [row["cells"][4] for row in claims["rows"][1:]] == ["holds", "cannot be tested here"]
    assert claims["rows"][1]["cells"][5] == "97%"
    body = "".join(page.text)
    for words in ("a warning of a knee", "a warning of a receipt", f"warned by {SCRIPT}"):
        assert words in body


def test_the_same_results_give_the_same_page(folder, text):
    assert make_page(read_sources([folder])) == text


def test_nothing_tells_where_the_page_was_made(text, folder):
    assert str(folder) not in text
    assert str(Path(__file__).parents[2]) not in text


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_colours_have_contrast(theme):
    for ground in ("paper", "sheet"):
        for name in ("ink", "faint", "accent", "warn"):
            assert compute_contrast(theme[name], theme[ground]) >= 4.5, (name, ground)
    for name in ("quiet", *(f"series-{i + 1}" for i in range(SERIES))):
        assert compute_contrast(theme[name], theme["paper"]) >= 3.0, name


def test_contrast_is_that_of_the_definition():
    assert compute_contrast("#000000", "#ffffff") == pytest.approx(21.0)
    assert compute_contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


def test_usual_options_are_not_told():
    usual = {"seed": 0, "inputs": "random", "tiny": False, "use_cache": None}
    cell = Cell(model="m", runtime="eager", host="cpp", batch=1, sequence=None, options=usual)
    assert describe_options(cell) == ""
    odd = replace(cell, options={**usual, "tiny": True, "attention": "eager"})
    assert describe_options(odd) == "attention eager, tiny"


# ---- results that cannot be read ----------------------------------------------------------------


def make_file(folder: Path, *lines: bytes) -> Path:
    path = folder / "some.jsonl"
    append_record(path, make_measurement([1000, 1001]))
    with path.open("ab") as file:
        file.write(b"".join(lines))
    return path


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b'{"ftax_schema":3,"kind":"measu', "not a whole line of JSON"),
        (b'{"ftax_schema":99,"kind":"measurement","record":{}}\n', "schema version 99"),
        (b'{"some":"json"}\n', "no record of ftax"),
        (b'{"ftax_schema":3,"kind":"poem","record":{}}\n', "kind 'poem' is unknown"),
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
    here, _ = make_environments()
    cell = Cell(model="m", runtime="eager", host="cpp", batch=1, sequence=None)
    path = make_file(tmp_path)
    append_record(path, SweepCell(cell=cell, machine="gone", status="measured", values_ns=(1.0,)))
    sources = read_sources([path])
    with pytest.raises(ResultsError, match=r"some\.jsonl:2: .*'gone'.*add the file"):
        make_page(sources)
    page = Page(make_page(sources, skip_bad=True))
    assert "names machine 'gone'" in "".join(page.text)
    machine = SweepMachine.of(here)
    append_record(
        path, SweepCell(cell=cell, machine=machine.id, status="measured", values_ns=(2.0,))
    )
    append_record(path, machine)  # a line that comes later counts too
    text = make_page(read_sources([path], skip_bad=True), skip_bad=True)
    assert [p["latency"] for p in json.loads(Page(text).data)["points"]] == [1000.5, 2.0]


def test_a_file_that_is_named_twice_is_read_once(folder):
    once = read_sources([folder])
    twice = read_sources([folder, folder / "receipts.jsonl", folder / "sweep"])
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


def test_a_page_is_written_over(folder, tmp_path):
    target = tmp_path / "report.html"
    write_report([folder / "receipts.jsonl"], target)
    write_report([folder / "knees.jsonl"], target, title="Knees & more")
    text = target.read_text(encoding="utf-8")
    assert "<h1>Knees &amp; more</h1>" in text
    assert list(tmp_path.iterdir()) == [target]


def test_batches_are_all_there(page):
    batches = {p["batch"] for p in json.loads(page.data)["points"] if p["model"] == "gpt2"}
    assert batches == {*BATCHES, 256}
