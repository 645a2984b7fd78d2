"""Alternatives that take their process down cost a receipt one row."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch import nn, ones

import ftax
from ftax.errors import InvalidArgumentError
from ftax.ladders.job import Job
from ftax.ladders.rehearsal import rehearse
from ftax.steps.setting import Setting
from ftax.timing.session import Plan

QUICK = Plan(rounds=3, warmup=2, round_ms=1.0)
RUNTIMES = """
import os

def prepare_sound(loaded):
    return loaded.bind()

def prepare_broken(loaded):
    raise RuntimeError("it cannot be had")

def prepare_fatal(loaded):
    calls = iter(range(6))

    def call():
        if next(calls, None) is None:
            os.write(2, b"an illegal memory access was encountered\\n")
            os.abort()
        return loaded.call()

    return call
"""
ENTRY_POINTS = """
[ftax.runtimes]
sound = rehearsed:prepare_sound
broken = rehearsed:prepare_broken
fatal = rehearsed:prepare_fatal
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package with three runtimes, in this process and in those that it starts."""
    (tmp_path / "rehearsed.py").write_text(RUNTIMES)
    folder = tmp_path / "rehearsed-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: rehearsed\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("installed")
def test_what_takes_its_process_down_costs_one_row():
    receipt = ftax.tax(
        "bert-1x64",
        runtimes=["sound", "broken", "fatal"],
        hosts=("python",),
        rehearse=True,
        operators=False,
        plan=QUICK,
    )
    assert [m.cell.runtime for m in receipt.others] == ["sound"]
    reasons = {item.runtime: item.reason for item in receipt.unavailable}
    assert set(reasons) == {"broken", "fatal"}
    assert "SIGABRT" in reasons["fatal"]
    assert "an illegal memory access" in reasons["fatal"]
    assert "it cannot be had" in reasons["broken"]


@pytest.mark.usefixtures("installed")
def test_a_process_that_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ftax.ladders.rehearsal._AFTER_PREPARING_S", 0.0)
    monkeypatch.setenv("FTAX_PREPARE_SECONDS", "0.2")
    job = Job(model="resnet-50", setting=Setting(tiny=True), places=(("sound", "python"),))
    assert rehearse(job) == {
        ("sound", "python"): "tried in a process of its own: the worker process ran past 0.2 s and "
        "was ended"
    }


def test_a_module_of_this_process_cannot_be_tried_in_another():
    with pytest.raises(InvalidArgumentError, match="lives in this process"):
        ftax.tax(nn.Linear(2, 2), ones(1, 2), rehearse=True, plan=QUICK)
