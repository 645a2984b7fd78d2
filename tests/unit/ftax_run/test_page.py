"""The page of a run: its numbers are those of the account, and names stay text."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from ftax_run import page as pages
from ftax_run import records
from ftax_run.account import Account, Event, ProcessAccount
from ftax_run.causes import CPP, GAP, PYTHON
from ftax_run.cli import run
from ftax_run.errors import RunError
from ftax_run.findings import Findings, find
from ftax_run.frames import Place
from ftax_run.page import find_idle, make_page, make_tree, make_values
from ftax_run.report import describe
from ftax_run.sums import Sums
from hypothesis import given
from hypothesis import strategies as st

from support.report_page import Page
from support.watched_programs import IMPORT, LOSS, MAIN, STEP, make_account, make_host, make_window


def read_values(page: str) -> Any:
    """What the page's script reads."""
    (text,) = re.findall(r'<script type="application/json" id="values">(.*?)</script>', page)
    return json.loads(text)


def test_the_numbers_are_those_of_the_account() -> None:
    values = read_values(make_page([make_account()]))
    (process,) = values["processes"]
    names = [place[0] for place in values["places"]]
    assert (process["wall"], process["busy"], process["unit"]) == (1e6, 3e5, "an iteration")
    assert dict(process["causes"]) == pytest.approx({PYTHON: 2e5, CPP: 4e5, GAP: 1e5})
    assert process["busy"] + sum(dict(process["causes"]).values()) == pytest.approx(1e6)
    first, second = process["lines"]
    assert (names[first["place"]], first["cause"]) == ("train.py:41 step", CPP)
    assert (first["time"], second["time"]) == pytest.approx((4e5, 2e5))
    assert (names[first["leaf"]], first["leaf_share"]) == ("nn/loss.py:7 forward", 0.75)
    assert second["leaf"] == second["place"]
    assert process["syncs"] == [[first["place"], 1.0, 1e4, False]]
    assert process["work"] == [["kernels", 20.0], ["launches", 20.0]]
    assert [place[2] for place in values["places"]] == [name[:5] == "train" for name in names]


def test_it_says_what_the_report_says() -> None:
    account = make_account()
    page, lines = make_page([account]), describe(account)
    values = read_values(page)
    (process,) = values["processes"]
    assert values["headline"] == process["sentence"] == lines[0]
    assert f'<p class="headline">{lines[0]}</p>' in page
    assert {*process["limits"], *process["notes"]} < set(lines)


def test_the_flame_graph() -> None:
    values = make_values([make_account()])
    rows = values["processes"][0]["stacks"]
    names = {-1: "all"} | dict(enumerate(place[0] for place in values["places"]))
    shown = {names[int(place)]: (caller, time, own) for caller, place, time, own in rows}
    # A tenth of the idle time is of stacks that were too rare to be kept.
    assert shown["all"] == (-1, pytest.approx(6e5), pytest.approx(1e5))
    assert shown["train.py:80 <module>"] == (0, pytest.approx(5e5), pytest.approx(1e5))
    assert shown["train.py:41 step"][1:] == pytest.approx((4e5, 1e5))
    assert shown["nn/loss.py:7 forward"][1:] == pytest.approx((3e5, 3e5))


STACKS = st.dictionaries(
    st.lists(st.sampled_from([MAIN, STEP, LOSS, IMPORT]), max_size=6).map(tuple),
    st.floats(1.0, 1e9),
    max_size=20,
)


@given(STACKS)
def test_a_frame_is_its_callees_and_what_is_its_own(stacks: dict[tuple[Place, ...], float]) -> None:
    total = sum(stacks.values())
    found = Findings("in all", 0, 0, total, None, Sums({PYTHON: total}), [], Sums(stacks))
    rows = make_tree(found, pages._Numbers())
    for row, (_, _, time, own) in enumerate(rows):
        callees = sum(callee[2] for callee in rows if callee[0] == row)
        assert time == pytest.approx(callees + own)
        assert own >= 0
    assert rows[0][2] == pytest.approx(total)
    # One row a caller and place, each after its caller.
    assert len({(caller, place) for caller, place, _, _ in rows}) == len(rows)
    assert all(caller < row for row, (caller, *_) in enumerate(rows))


def test_what_recording_cost_is_taken_out_of_the_flame_graph_too() -> None:
    account = make_account()
    # 20 launches an iteration, which takes 0.9 ms while only calls are recorded.
    account.processes[0].rates = [20 / 0.9e-3]
    found = find(account.processes[0])
    assert found.wall == pytest.approx(9e5)
    assert found.stacks == pytest.approx(
        {(MAIN, STEP, LOSS): 2.25e5, (MAIN, STEP): 0.75e5, (MAIN,): 1e5}
    )


HOSTILE = ("/tmp/</script><script>alert(1)</script><!--/\"'&$style.py", 3, "größe\udcff\u2028<b>")


def test_hostile_names_stay_text() -> None:
    account = make_account(make_window(HOSTILE), command="</title><script>alert(2)</script>'\"ß")
    account.processes[0].timeline.append(Event("device stream 7", "</script>", 60.0, 61.0))
    page = make_page([account])
    assert page.isascii()
    assert page.count("<script") == 2 and page.count("</script>") == 2
    assert "<b>" not in page and "<!--" not in page and page.count("</title>") == 1
    values = read_values(page)
    assert HOSTILE[0] in [place[1] for place in values["places"]]
    assert HOSTILE[2] in values["headline"]
    assert "&lt;b&gt;" in page.partition('class="headline"')[2].partition("</p>")[0]


def test_tags_are_closed_in_order() -> None:
    page = Page(make_page([make_account()]))
    assert page.open == page.mismatches == []


def test_nothing_but_its_own_script_may_run() -> None:
    page = make_page([make_account()])
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; script-src 'sha256-{digest}';" in page
    assert "http" not in re.sub(r"http-equiv", "", page)


def test_the_script_finds_all_that_it_looks_for() -> None:
    page = make_page([make_account()])
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    wanted = set(re.findall(r'(?:find|drawTable|getElementById)\("#?(\w+)', script))
    assert {"flame", "timeline", "lines", "limits"} < wanted
    assert wanted <= set(re.findall(r' id="(\w+)"', page))


def test_a_program_without_a_device() -> None:
    values = read_values(make_page([Account(["python", "train.py"], processes=[make_host()])]))
    (process,) = values["processes"]
    assert values["headline"].startswith("No work on a GPU was seen")
    assert (process["busy"], process["wall"], process["timeline"]) == (None, 2e9, None)
    assert process["causes"] == [[PYTHON, 1.5e9], [CPP, 5e8]]
    # Python's frames of an import are left out.
    assert [row[2] for row in process["stacks"]] == [2e9, 2e9, 1.5e9, 1.5e9]


def test_nothing_was_seen() -> None:
    values = read_values(make_page([Account(["true"])]))
    assert values["headline"].startswith("Nothing was seen")
    assert values["processes"] == []
    problems = [ProcessAccount(1, problem="Python 3.9 is too old"), ProcessAccount(2, problem="b")]
    values = read_values(make_page([Account(["true"], processes=problems)]))
    assert values["headline"] == "Python 3.9 is too old; b"


def test_the_main_process_comes_first() -> None:
    account = make_account()
    account.processes = [make_host(5), ProcessAccount(6), *account.processes]
    names = [process["name"] for process in make_values([account])["processes"]]
    assert names == ["process 7: train.py", "process 5: python train.py"]


def test_of_several_runs_the_last_comes_first() -> None:
    runs = [make_account(make_window(STEP)), Account(["python"], processes=[make_host()])]
    values = make_values(runs)
    names = [process["name"] for process in values["processes"]]
    assert names == ["run 2, process 8: python train.py", "run 1, process 7: train.py"]
    assert values["headline"] == values["processes"][0]["sentence"]
    first = make_values(runs[:1])["processes"][0]
    assert values["processes"][1]["lines"][0]["time"] == first["lines"][0]["time"]


def test_the_process_that_is_late_is_named() -> None:
    account = make_account()
    account.processes.append(ProcessAccount(9, windows=[make_window()]))
    for process, collectives in zip(account.processes, (4e6, 1e6), strict=True):
        process.windows[0].collectives = collectives
    for process in make_values([account])["processes"]:
        assert process["notes"][1].startswith("Process 9 is late: its collectives take 100 us")


def test_the_timeline() -> None:
    timeline = make_values([make_account()])["processes"][0]["timeline"]
    assert [row for row, _ in timeline["rows"]] == [
        "iterations", "device stream 7", "device stream 13", "Python thread 7", "calls of thread 7",
    ]  # fmt: skip
    events = dict(timeline["rows"])
    ((name, start, end),) = events["device stream 7"]
    assert (timeline["names"][name], start, end) == ("add", 30.0, 60.0)
    assert (timeline["idle"], timeline["end"]) == ([(0.0, 10.0), (60.0, 100.0)], 100.0)


def test_the_device_is_idle_where_no_stream_works() -> None:
    times = [(0, 10), (5, 8), (20, 30), (25, 26), (30, 40)]
    device = [Event("device stream 7", "k", float(a), float(b)) for a, b in times]
    assert find_idle(device, 40.0) == [(10.0, 20.0)]
    assert find_idle(device[:1], 40.0) == [(10.0, 40.0)]


def test_the_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record, page = tmp_path / "run.jsonl", tmp_path / "page.html"
    record.write_text("")
    with pytest.raises(RunError, match="has no run"):
        run(["--show", str(record), "--html", str(page)])
    records.append(make_account(), record)
    assert run(["--show", str(record), "--html", str(page)]) == 0
    assert page.read_text() == make_page([make_account()])
    capsys.readouterr()
    with pytest.raises(RunError, match=r"none/page\.html cannot be written: there is no folder"):
        run(["--show", str(record), "--html", str(tmp_path / "none" / "page.html")])
    # What was found is printed, even where the page cannot be written.
    assert run(["--show", str(record), "--html", "/dev/full", "--chrome", str(page) + "2"]) == 2
    said = capsys.readouterr()
    assert said.out.startswith("Host-bound")
    assert "/dev/full cannot be written: No space" in said.err
    assert json.loads((tmp_path / "page.html2").read_text())
