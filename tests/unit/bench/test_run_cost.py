"""How what watching costs is told from turns of a program that is watched and one that is not."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import run_cost
from run_cost import compare_turns, list_figures, start, take, take_turn, time_iteration, trim

from ftax.errors import RunnerError

COUNTS = """
import os, sys, time
file = os.open(f"{sys.argv[-1]}.{os.getpid()}", os.O_WRONLY | os.O_CREAT)
while True:
    os.write(file, time.monotonic_ns().to_bytes(8, "little"))
    time.sleep(0.01)
"""


def write(folder: Path, source: str) -> None:
    (folder / "programs").mkdir()
    (folder / "programs" / "program.py").write_text(source)


def test_a_turn_is_all_in_which_a_program_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(run_cost, "_TURN_S", (0.4, 0.4))
    write(tmp_path, COUNTS)
    with start(tmp_path, [sys.executable, "program.py"], "plain") as program:
        program.wait()
        program.signal(signal.SIGSTOP)
        time.sleep(0.3)
        turn = take_turn(program)
        time.sleep(0.3)
        starts = program.list_starts()
    inside = starts[(starts >= turn[0]) & (starts < turn[1])]
    assert inside.size > 5
    assert starts[-1] - turn[1] < 100_000_000
    assert time_iteration(starts, turn) > 10_000


def test_a_program_that_ends_is_told_with_what_it_said(tmp_path):
    write(tmp_path, "raise SystemExit('no such device')")
    with (
        pytest.raises(RunnerError, match=r"the program ended: .*no such device"),
        start(tmp_path, [sys.executable, "program.py"], "plain") as program,
    ):
        program.wait()


def test_too_few_iterations_of_a_turn_tell_nothing():
    starts = np.arange(0, 10_000, 1000)
    assert time_iteration(starts, (1500, 6500)) == 1.0
    assert np.isnan(time_iteration(starts, (1500, 3500)))


def test_a_turn_is_compared_with_those_beside_it():
    """A machine that becomes slower makes no cost."""
    assert compare_turns([100.0, 200.0, 300.0], [150.0, 250.0]) == [1.0, 1.0]
    assert compare_turns([100.0, 100.0, np.nan], [110.0, 120.0]) == [pytest.approx(1.1)]


def test_iterations_of_less_than_a_millisecond_are_not_asked():
    parts = {"short": {"iteration_us": 900.0, "cost": 0.2},
             "long": {"iteration_us": 1100.0, "cost": 0.03}}  # fmt: skip
    figures = {item.name: item for item in list_figures(parts)}
    assert figures["worst of 1 ms and more"].value == pytest.approx(3)
    assert figures["short, longer while watched"].value == pytest.approx(20)


@pytest.mark.timing
def test_a_program_on_the_cpu_costs_little(monkeypatch):
    monkeypatch.setattr(run_cost, "_TURN_S", (0.3, 0.3))
    found = take("generate", 12.0, "cpu")
    assert len(found["ratios"]) >= 15
    assert -0.3 < found["cost"] < 0.3


def test_a_program_that_ends_while_it_is_timed_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(run_cost, "_TURN_S", (0.4, 0.4))
    write(tmp_path, COUNTS.replace("while True:", "for _ in range(3):"))
    with start(tmp_path, [sys.executable, "program.py"], "plain") as program:
        program.wait()
        with pytest.raises(RunnerError, match="the program ended"):
            take_turn(program)


def test_the_mean_is_without_a_tenth_at_either_end():
    assert trim([1.0, 2.0, 90.0]) == 2.0
    assert trim([0.0, *[1.0] * 18, 99.0]) == 1.0
