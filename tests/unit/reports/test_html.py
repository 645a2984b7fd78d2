"""The page without a browser: its sections and tables, every number with its record, nothing that
could run, machines apart, and results that cannot be read."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from ftax.paper.study_page import describe_study
from ftax.reports.columns import describe_options
from ftax.reports.html.machines import Machines
from ftax.reports.html.page import make_page
from ftax.reports.html.sources import read_sources
from ftax.timing.cell import Cell
from ftax.timing.units import format_time
from support.report_page import Page
from support.report_results import SCRIPT, make_environments, make_receipts, write_results
from support.runtimes_receipt import make_cpu_receipt, make_runtime


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_results(tmp_path_factory.mktemp("results"))


@pytest.fixture(scope="module")
def text(folder: Path) -> str:
    return make_page(read_sources([folder]), describe_study=describe_study)


@pytest.fixture(scope="module")
def page(text: str) -> Page:
    return Page(text)


def test_every_section_is_there_and_linked(page):
    sections = {"receipts", "figures", "latency", "overhead", "numbers", "knees",
                "comparisons", "claims", "method", "warnings"}  # fmt: skip
    assert sections <= set(page.ids())
    links = {a["href"] for tag, a in page.tags if tag == "a"}
    assert {f"#{name}" for name in sections} <= links
    assert {link.removeprefix("#") for link in links} <= set(page.ids())
    assert len(page.ids()) == len(set(page.ids()))


def test_tags_are_closed_in_order(page):
    assert page.mismatches == []
    assert page.open == []


def test_each_bar_of_a_ladder_begins_where_the_one_above_it_ends(page):
    for receipt, (_, bars) in zip(make_receipts(), page.bars_of(r"Where \d"), strict=True):
        *lines, whole = bars
        assert len(lines) == len(receipt.lines)
        assert whole["parts"][0][0] == pytest.approx(lines[0]["parts"][0][0])
        for above, below in pairwise(lines):
            start, width = above["parts"][0][:2]
            assert start + width == pytest.approx(below["parts"][0][0], abs=0.02)
        for line, bar in zip(receipt.lines, lines, strict=True):
            share = bar["parts"][0][1] / whole["parts"][0][1]
            assert share == pytest.approx(line.share_ratio, abs=0.001)
            assert bar["text"].startswith(f"{line.name}: ")
            assert bar["text"].endswith(("receipts.jsonl:1", "receipts.jsonl:2"))


def test_bars_of_one_chart_have_one_unit(page):
    charts = page.bars_of(r"Where|Latency of \d|latency of")
    assert len(charts) >= 5
    for label, bars in charts:
        units = {unit for bar in bars for unit in ("ns", "µs", "ms") if f" {unit}" in bar["value"]}
        assert len(units) == 1, label


def test_a_receipt_is_a_table_too(page):
    receipt = make_receipts()[0]
    table = page.find_table("Receipt: mlp, cpu, fp32, batch 1")
    assert table["record"] == "receipts.jsonl:1"
    names = [row["cells"][0] for row in table["rows"][1:]]
    assert names == [*(line.name for line in receipt.lines), "= eager, called from Python"]
    total = table["rows"][-1]["cells"][1]
    assert total == format_time(receipt.latency_ns).replace("us", "µs")


def test_every_row_of_numbers_names_a_line_that_has_a_record(page, folder):
    lines = {}
    for file in folder.rglob("*.jsonl"):
        for number, line in enumerate(file.read_text().splitlines(), start=1):
            lines[f"{file.relative_to(folder).as_posix()}:{number}"] = json.loads(line)
    # What is no record's, is the list of them, or is made of many.
    free = ("Files", "What each machine is", "Records", "Table ")
    checked = 0
    for table in page.tables:
        if table["caption"].startswith(free):
            continue
        for row in table["rows"][1:]:
            assert (table["record"] or row["record"]) in lines, table["caption"]
            checked += 1
    assert checked > 300
    marks = [text for text in page.marks if "the paper" not in text and "here" not in text]
    assert len(marks) > 500
    for text in marks:
        assert text.splitlines()[-1] in lines


def test_a_point_says_what_its_record_says(page, folder):
    cells = (folder / "sweep" / "cells.jsonl").read_text().splitlines()
    rows = page.find_points()
    swept = [row for row in rows if row["record"].startswith("sweep/")]
    assert len(swept) == 321
    for row in swept:
        record = json.loads(cells[int(row["record"].rpartition(":")[2]) - 1])["record"]
        assert (row["model"], row["batch"]) == (
            record["cell"]["model"],
            str(record["cell"]["batch"]),
        )
        values = record["values_ns"]
        told = format_time(sum(values) / len(values)).replace("us", "\N{MICRO SIGN}s")
        assert row["latency"] in (told, f"{told}, not resolved")


def test_what_is_in_doubt_has_a_ring_and_says_why(page):
    doubted = [text for text in page.marks if "the interval holds latencies below 0" in text]
    assert doubted
    rings = [attributes for tag, attributes in page.tags if attributes.get("class") == "ring"]
    assert len(rings) >= len(doubted)
    assert "not resolved, or disturbed" in page.text


def test_a_name_that_looks_like_a_script_is_text(text, page):
    assert SCRIPT in "".join(page.text)
    assert "<script>window" not in text
    assert "<img" not in text
    scripts = [a for tag, a in page.tags if tag == "script"]
    assert scripts == [{}]  # the page's own


def test_nothing_may_be_fetched_and_only_its_own_scripts_may_run(page, text):
    (policy,) = [a["content"] for _, a in page.tags if a.get("http-equiv")]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-inline" not in policy.split("style-src")[0]
    for _, attributes in page.tags:
        assert not {"src", "srcset", "onclick", "onerror"} & set(attributes)
        assert (attributes.get("href") or "#").startswith("#")
    assert "@import" not in text.split("<script", 1)[0]
    assert "url(" not in text.split("<script", 1)[0]


def test_machines_stand_apart(page):
    latencies = (
        page.marks_of("latency of bert-base, cuda"),
        page.marks_of("latency of bert-base, cpu"),
    )
    records = [{text.splitlines()[-1] for text in marks} for marks in latencies]
    assert all(records) and not records[0] & records[1]
    titles = [table["caption"] for table in page.tables if "Measurements of" in table["caption"]]
    assert [title.split(":")[0] for title in titles] == [
        "Measurements of Machine A", "Measurements of Machine B",
    ]  # fmt: skip
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
    assert ("today", "cannot be tested here") in boxes
    assert {name for name, _ in boxes} == {
        "runtime", "host", "dtype", "device", "sequence", "today", "paper",
    }  # fmt: skip


def test_charts_have_words_for_those_who_do_not_see_them(page):
    charts = [a["aria-label"] for tag, a in page.tags if tag == "svg" and a.get("role") == "img"]
    for what in ("latency of", "overhead share of", "latency over that of batch 1"):
        assert any(label.startswith(what) for label in charts), what
    assert all(len(label) > 25 for label in charts)


def test_an_axis_has_one_unit(text):
    axes = re.findall(r"<text x=\"0\" y=\"11\">([^<]*)</text>", text)
    assert len(axes) > 20
    assert {axis for axis in axes if "latency" in axis or "time" in axis} <= {
        f"{what} ({unit})" for what in ("latency",) for unit in ("ns", "µs", "ms")
    } | {"latency over that of batch 1"}
    ticks = re.findall(r"<text x=[^>]*>([^<]*)</text>", text.split('<g class="up">', 1)[1])
    assert not [tick for tick in ticks if re.search(r"\d ?(ns|µs|ms)$", tick)]


def test_tables_have_captions_and_can_be_scrolled_by_key(page):
    assert all(table["caption"].strip() for table in page.tables)
    regions = [a for _, a in page.tags if a.get("role") == "region"]
    assert len(regions) == len(page.tables)
    assert all(a["tabindex"] == "0" and a["aria-label"] for a in regions)


def test_the_page_begins_with_a_headline_and_a_chart(text):
    first = text.split('<nav class="top"')[0]
    assert re.search(
        r'class="headline">\d+% of the latency of mlp, .* is framework tax\.</p>', first
    )
    assert '<ul class="bars"' in first and "<table" not in first
    for lead in (
        "Of 2 claims and checks of the paper, 1 holds today",
        "bert-base in eager/python: knee",
    ):
        assert lead in first


def test_the_only_receipt_answers_as_its_first_screen_does(tmp_path):
    receipt = make_cpu_receipt(make_runtime(("capture", "python"), 250.0))
    receipt.save(tmp_path / "r.jsonl")
    first = make_page(read_sources([tmp_path])).split('<nav class="top"')[0]
    assert "1,000 \N{MICRO SIGN}s a call, of which 30 % (30 to 30) is Python.</p>" in first
    page = Page(first)
    (row,) = page.find_table("What gives it back")["rows"][1:]
    assert row["cells"] == ["ftax.capture", "250", "4.0x", "bitwise equal", "1.0 s"]
    assert "<pre>import ftax\nmodel.eval()" in first and "print(receipt" not in first


def test_a_label_is_in_every_table_and_chart(tmp_path):
    for label in ("before", "after"):
        make_receipts()[0].with_label(label).save(tmp_path / "r.jsonl")
    page = Page(make_page(read_sources([tmp_path / "r.jsonl"])))
    assert {"before", "after"} <= {*page.text}  # the bars of the chart of all receipts
    assert [heading.partition(",")[0] for heading in page.headings[:2]] == ["before", "after"]
    titles = [table["caption"] for table in page.tables]
    assert sum(title.startswith("Receipt before:") for title in titles) == 1
    (every,) = [table for table in page.tables if table["caption"].startswith("Measurements")]
    column = [row["cells"][0] for row in every["rows"]]
    assert column[0] == "label" and {*column[1:]} == {"before", "after"}


def test_claims_are_told_with_their_numbers(page, text):
    today = [(a["data-today"], a["data-paper"]) for _, a in page.tags if "data-today" in a]
    assert today == [("holds", "holds"), ("cannot be tested here", "no data")]
    body = " ".join("".join(page.text).split())
    assert "1 holds today, 1 cannot be tested." in body
    assert (
        "c-one, section 3.1; the paper's own data: holds; certainty 97%; verdicts.jsonl:1" in body
    )
    assert "the paper 2.5; today 2 (1.9 to 2.1)" in body
    assert "no cell of c was measured" in body
    assert "a note of a claim" in body


def test_the_papers_figures_stand_beside_the_claims(page):
    titles = [title for title in page.headings if title.startswith("Figure ")]
    assert [title.split(":")[0] for title in titles[:4]] == [f"Figure {n}" for n in range(1, 5)]
    marks = page.marks_of("BERT, fp16: latency: split")
    assert any(
        text.startswith("eager, Test 200, measured here\nbatch 8: 2,700 µs") for text in marks
    )
    assert any(text.startswith("eager, RTX-8000, the paper\nbatch 8: 14.8 ms") for text in marks)
    assert page.find_table("Table 3: BERT, fp16, on Test 200")
    assert "These results have nothing of Figure 11" in "".join(page.text)


def test_without_verdicts_nothing_is_said_of_the_paper(folder):
    alone = Page(make_page(read_sources([folder / "sweep"]), describe_study=describe_study))
    assert not [title for title in alone.headings if title.startswith("Figure ")]
    assert "claims" not in alone.ids()


def test_models_stand_in_the_order_of_the_zoo(folder):
    alone = Page(make_page(read_sources([folder / "others.jsonl", folder / "sweep"])))
    titles = [title.split()[0] for title in alone.captions if "128 tokens" in title]
    assert list(dict.fromkeys(titles))[:2] == ["bert-base", "gpt2"]  # others as they were measured
    models = [row["model"] for row in alone.find_points()]
    assert models.index("mlp") < models.index(SCRIPT)


def test_knees_comparisons_and_warnings_are_told(page):
    knees = page.find_table("Knee over batch: bert-base")
    assert [row["record"] for row in knees["rows"][1:]] == ["knees.jsonl:1", "knees.jsonl:2"]
    assert "knee between batch 16" in " ".join(knees["rows"][1]["cells"])
    assert page.find_table("Against a")["rows"][2]["cells"][-1] == "cannot tell"
    ((_, bars),) = page.bars_of("b against a")[1:]  # of two receipts, one twice as fast
    assert [bar["parts"][1][2] for bar in bars] == ["whole"] * len(bars)
    for after, before in (bar["parts"] for bar in bars):
        assert after[1] == pytest.approx(before[1] / 2, abs=0.02)
        told = before[1] / 2 > 0.055 * bars[-3]["parts"][1][1]  # 5 % of the whole, and the error
        assert after[2] == ("tax" if told else "unsure")
    assert [bar["value"] for bar in bars][-3] == "-500 µs, -50.0%"
    assert page.find_table("b against a, line by line")["record"] == "others.jsonl:5"
    body = "".join(page.text)
    for words in ("a warning of a knee", "a warning of a receipt", f"warned by {SCRIPT}"):
        assert words in body


def test_the_same_results_give_the_same_page(folder, text):
    assert make_page(read_sources([folder]), describe_study=describe_study) == text


def test_nothing_tells_where_the_page_was_made(text, folder):
    assert str(folder) not in text
    assert str(Path(__file__).parents[3]) not in text


def compute_contrast(one, other):
    """The ratio of WCAG 2.2 (relative luminance), from 1 to 21, of two ``#rrggbb`` colours."""

    def shine(colour):
        parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        red, green, blue = (
            p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts
        )
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    lighter, darker = sorted((shine(one), shine(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("dark", [0, 1])
def test_colours_have_contrast(text, dark):
    found = re.findall(r"--([a-z0-9-]+): light-dark\((#\w{6}), (#\w{6})\)", text)
    theme = {name: both[dark] for name, *both in found}
    for ground in ("paper", "sheet"):
        for name in ("ink", "faint", "accent", "warn"):
            assert compute_contrast(theme[name], theme[ground]) >= 4.5, (name, ground)
    for name in ("quiet", *(f"series-{place}" for place in range(1, 9))):
        assert compute_contrast(theme[name], theme["paper"]) >= 3.0, name


def test_usual_options_are_not_told():
    usual = {"seed": 0, "inputs": "random", "tiny": False, "use_cache": None}
    cell = Cell(model="m", runtime="eager", host="cpp", batch=1, sequence=None, options=usual)
    assert describe_options(cell) == ""
    odd = replace(cell, options={**usual, "tiny": True, "attention": "eager"})
    assert describe_options(odd) == "attention eager, tiny"
