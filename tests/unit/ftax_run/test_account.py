"""What was found is written, read back and said."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from ftax_run import records
from ftax_run.account import Account, Event, HostTime, ProcessAccount
from ftax_run.causes import CPP, PYTHON, WAIT
from ftax_run.cli import make_command, run, split_options
from ftax_run.errors import RunError
from ftax_run.report import describe, make_verdict, name_verdict
from ftax_run.sums import Sums
from ftax_run.timeline import write_chrome, write_speedscope
from ftax_run.watcher import add_window
from ftax_run.window import Window

OTHER = ("train.py", 9, "other")
VALIDATE = ("train.py", 80, "validate")
STEP, LOSS = ("train.py", 41, "step"), ("/env/site-packages/torch/nn/loss.py", 7, "Loss.forward")


def make_window(cause: str = CPP, idle: float = 6e6, busy: float = 4e6) -> Window:
    return Window(
        count=10, wall=idle + busy, busy=busy, idle=Sums({(STEP, cause): idle}),
        leaves=Sums({(STEP, LOSS): idle}), stacks=Sums({(STEP, LOSS): idle}),
        syncs=Sums({STEP: 10.0}), sync_idle=Sums({STEP: 1e5}),
        work=Sums({"kernels": 200.0, "launches": 200.0}), launched=Sums({(STEP, cause): 5.0}),
    )  # fmt: skip


def make_account(window: Window, rates: list[float] | None = None) -> Account:
    process = ProcessAccount(
        7, "python train.py", windows=[window], rates=rates or [],
        timeline=[Event("device stream 7", "gemm", 0.0, 5e4)],
    )  # fmt: skip
    return Account(["python", "train.py"], 0, 100, 20.0, processes=[process])


def test_a_record_is_what_was_written(tmp_path: Path) -> None:
    account = make_account(make_window(), [21_000.0])
    account.processes.append(
        ProcessAccount(8, host=HostTime(5, 1e9, Sums({(STEP, PYTHON): 5.0}), Sums(), Sums()))
    )
    path = tmp_path / "run.jsonl"
    records.append(account, path)
    records.append(account, path)
    assert records.read(path) == [account, account]
    assert len(path.read_text().splitlines()) == 2


def test_a_launcher_that_waits_is_not_the_main_process() -> None:
    launcher = ProcessAccount(7, host=HostTime(90, 1e9, Sums({(STEP, WAIT): 88, (STEP, CPP): 2.0})))
    worker = ProcessAccount(8, host=HostTime(60, 1e9, Sums({(STEP, WAIT): 40, (STEP, CPP): 20.0})))
    account = Account(["torchrun"], processes=[launcher, worker])
    assert account.find_main() is worker


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{}",
        "[1]",
        '{"ftax_schema": 99, "kind": "run", "record": {}}',
        '{"ftax_schema": 6, "kind": "run", "record": {"places": []}}',
    ],
)
def test_another_file_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "other.jsonl"
    path.write_text(content)
    with pytest.raises(RunError, match=r"other\.jsonl has no run"):
        records.read(path)


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(RunError, match=r"nowhere\.jsonl cannot be read: No such file"):
        records.read(Path("nowhere.jsonl"))


@pytest.mark.parametrize(
    ("window", "words"),
    [
        (make_window(), "Host-bound: the device idles 60 % of the time, most for C++ below"),
        (make_window(WAIT), "Waiting for input: the device idles 60 %"),
        (make_window(idle=1e4), "Device-bound: the device is never kept waiting"),
        (make_window(idle=4.5e5), "Device-bound: the device idles 10 % of the time, most for C++"),
        (make_window(WAIT, idle=1e6), "Device-bound: the device idles 20 % of the time, most for"),
        (
            Window(wall=1000.0, busy=700.0, blocked=200.0, gaps=100.0),
            "Device-bound: the device is never kept waiting, but for 10 % in gaps between kernels; "
            "for 20 % work that was launched waits for others",
        ),
        (
            Window(wall=1000.0, busy=600.0, blocked=400.0),
            "Kept waiting by others: for 40 % of the time work that was launched does not begin",
        ),
    ],
)
def test_the_first_sentence(window: Window, words: str) -> None:
    assert name_verdict(window).startswith(words)
    assert make_verdict(make_account(window))["verdict"] == words.partition(":")[0]


def test_what_is_said_of_a_step() -> None:
    text = "\n".join(describe(make_account(make_window())))
    assert "1.00 ms an iteration = 400 us device busy (40 %)" in text
    assert "600 us  train.py:41 step  C++ below Python; 100 % in nn/loss.py:7 forward" in text
    assert "1.0  train.py:41 step; 10 us of idle begin in it" in text
    assert len(text.splitlines()) <= 35


def test_iterations_that_are_little_of_the_time_say_so() -> None:
    account = make_account(make_window())
    (process,) = account.processes
    wall = process.windows[0].wall
    process.recorded = 1.5 * wall
    assert "of the recorded time" not in "\n".join(describe(account))
    process.recorded = 5 * wall
    assert "They are 20 % of the recorded time\n" in "\n".join(describe(account))


def test_what_is_beside_the_iterations_has_a_line(tmp_path: Path) -> None:
    account = make_account(make_window(idle=30e6))
    (process,) = account.processes
    add_window(process, make_window())  # much faster: what was before is warm-up
    process.recorded = 40e6
    said = "\n".join(describe(account))
    assert "10 iterations of one kind were recorded; 10 others (warm-up, evaluation)" in said
    assert "25 % of the recorded time; the rest idles most at train.py:41 step, in nn/loss" in said
    records.append(account, tmp_path / "run.jsonl")
    assert records.read(tmp_path / "run.jsonl") == [account]
    evaluation = Window(count=3, wall=5e6, leaves=Sums({(VALIDATE, VALIDATE): 40e6}))
    process.windows.append(evaluation)
    assert "most at train.py:80 validate\n" in "\n".join(describe(account))
    # More than both, in twenty lines of a library.
    process.rest.add(Sums({(OTHER, ("loss.py", line, "f")): 4e6 for line in range(20)}))
    assert "most at train.py:9 other, in loss.py:0 f\n" in "\n".join(describe(account))


def test_what_recording_cost_is_found_by_how_fast_it_launches() -> None:
    # 20 launches in 1 ms while all is recorded, in 0.9 ms while only calls are.
    account = make_account(make_window(), [5.0, 20 / 0.9e-3, 20 / 0.9e-3, 900_000.0])
    window, cost = account.processes[0].correct()
    assert cost == pytest.approx(1 / 0.9 - 1)
    assert window.wall / window.count == pytest.approx(0.9e6)
    assert "an iteration took 11.1 % longer; that is taken out" in "\n".join(describe(account))
    assert make_account(make_window(), [5.0]).processes[0].correct()[1] is None
    assert account.processes[0].list_turns() == pytest.approx([0.9e6, 0.9e6])


def test_turns_of_iterations_that_the_program_marks() -> None:
    process = ProcessAccount(7)
    starts = np.arange(0, 2_500_000_000, 100_000_000)
    for piece in np.split(np.stack([starts, starts + 30_000_000], axis=1), [3, 3, 11]):
        process.add_marks(piece)
    assert process.marked == 25
    assert process.list_turns() == [30e6, 30e6]


def test_of_processes_that_communicate_the_late_one_is_named() -> None:
    account = make_account(make_window())
    account.processes.append(ProcessAccount(8, windows=[make_window()]))
    assert "late" not in "\n".join(describe(account))
    for process, collectives in zip(account.processes, (9e6, 2e6), strict=True):
        process.windows[0].collectives = collectives
    text = "\n".join(describe(account))
    assert "  8: 1.00 ms an iteration, device busy 40 %" in text
    assert "Process 8 is late: its collectives take 200 us an iteration, those of the" in text


def test_records_that_end_before_the_program_does() -> None:
    text = "Towards the end no launch was recorded"
    for rates, is_said in (([5.0] * 9, False), ([5.0, 0, 0, 0, 0], True), ([0.0] * 9, False)):
        assert (text in "\n".join(describe(make_account(make_window(), rates)))) == is_said


def test_forms_for_other_programs(tmp_path: Path) -> None:
    account = make_account(make_window())
    write_chrome(account, tmp_path / "chrome.json")
    (event,) = json.loads((tmp_path / "chrome.json").read_text())["traceEvents"]
    assert (event["name"], event["tid"], event["dur"]) == ("gemm", "device stream 7", 50.0)
    write_speedscope(account, tmp_path / "scope.json")
    scope = json.loads((tmp_path / "scope.json").read_text())
    (profile,) = scope["profiles"]
    frames = [scope["shared"]["frames"][place]["name"] for place in profile["samples"][0]]
    assert frames == ["step", "Loss.forward"]
    assert profile["weights"] == pytest.approx([6e5])


def test_the_programs_options_are_its_own() -> None:
    words = ["--rate", "50", "-o", "a", "train.py", "--rate", "7", "-o", "b"]
    assert split_options(words) == (words[:4], words[4:])
    assert split_options(["--json", "--", "make", "-j"]) == (["--json"], ["--", "make", "-j"])
    assert split_options(["-m", "json.tool", "-h"]) == ([], ["-m", "json.tool", "-h"])
    assert make_command(["--", "make", "-j"]) == ["make", "-j"]


@pytest.mark.parametrize("words", [[], ["-m"], ["--"], ["--rate", "9"]])
def test_no_program(words: list[str]) -> None:
    with pytest.raises(RunError, match="no program is given"):
        run(words)


def test_a_rate_that_no_thread_could_keep() -> None:
    with pytest.raises(RunError, match="--rate is 1e\\+06: give 1 to 20000"):
        run(["--rate", "1000000", __file__])


def test_a_run_of_before_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.jsonl"
    records.append(make_account(make_window()), path)
    assert run(["--show", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["iterations"] == 10


def test_sums_keep_the_largest() -> None:
    sums = Sums({str(key): float(key) for key in range(9)})
    sums.keep_largest(5, lambda _: "rest")
    assert len(sums) == 9
    sums.keep_largest(4, lambda _: "rest")
    assert sums == {"5": 5.0, "6": 6.0, "7": 7.0, "8": 8.0, "rest": 10.0}
    assert sums["none"] == 0.0
