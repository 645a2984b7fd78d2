"""The page without a browser: its sections and tables, every number with its record, nothing that
could run, machines apart, and results that cannot be read."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from ftax.paper.claims.page import make_claims_views
from ftax.reports.html.machines import Machines
from ftax.reports.html.page import _read_plotly, make_page
from ftax.reports.html.points import describe_options
from ftax.reports.html.sources import read_sources
from ftax.reports.html.theme import DARK, LIGHT, SERIES, compute_contrast
from ftax.timing.cell import Cell
from ftax.timing.units import format_time
from support.report_page import Page
from support.report_results import BATCHES, SCRIPT, make_environments, make_receipts, write_results


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_results(tmp_path_factory.mktemp("results"))


@pytest.fixture(scope="module")
def text(folder: Path) -> str:
    return make_page(read_sources([folder]), describe_claims=make_claims_views)


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
    assert [row["cells"][4] for row in claims["rows"][1:]] == ["holds"]
    untested = page.find_table("Claims that cannot be tested here: 1")
    assert untested["rows"][1]["cells"][6] == "no cell of c was measured"
    assert "2 claims: holds 1, cannot be tested here 1." in "".join(page.text)
    assert claims["rows"][1]["cells"][5] == "97%"
    body = "".join(page.text)
    for words in ("a warning of a knee", "a warning of a receipt", f"warned by {SCRIPT}"):
        assert words in body


def test_the_same_results_give_the_same_page(folder, text):
    assert make_page(read_sources([folder]), describe_claims=make_claims_views) == text


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


def test_batches_are_all_there(page):
    batches = {p["batch"] for p in json.loads(page.data)["points"] if p["model"] == "gpt2"}
    assert batches == {*BATCHES, 256}
