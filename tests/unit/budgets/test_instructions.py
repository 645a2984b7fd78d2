"""Counting instructions: where there are no counters, and that a counter counts the call alone."""

import errno
import mmap
import os
from pathlib import Path

import pytest
import torch

from ftax.budgets import instructions
from ftax.budgets.baselines import make_baseline
from ftax.budgets.budget_file import make_budget
from ftax.budgets.count_step import count
from ftax.budgets.held import hold
from ftax.errors import UnavailableError
from ftax.steps.setting import Setting

PAGE_FAULTS = (1, 2)  # PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS: without a CPU's counters
PAGES = 1000


def touch():
    size = os.sysconf("SC_PAGE_SIZE")
    with mmap.mmap(-1, size * PAGES) as memory:  # fresh each time: a heap keeps pages
        for page in range(PAGES):
            memory[page * size] = 1


def test_an_event_is_counted_inside_the_call_alone():
    try:
        with instructions.counter(PAGE_FAULTS) as count_one:
            touch()
            found = count_one(touch), count_one(lambda: None)
    except UnavailableError as error:
        pytest.skip(str(error))
    assert found[0] > PAGES / 2 > 10 * found[1]


def test_a_machine_without_counters_is_told_why(monkeypatch):
    monkeypatch.setattr(instructions, "_SYSCALL", {})
    with (
        pytest.raises(UnavailableError, match="instructions are not counted on"),
        instructions.counter(),
    ):
        pass


def count_here(**options):
    return count(lambda x: x + 1, torch.ones(2), Setting(), Path(), **options)


def test_they_are_counted_where_they_are_asked_for(monkeypatch):
    monkeypatch.setattr(instructions, "_open", lambda event: os.open(os.devnull, os.O_RDONLY))
    monkeypatch.setattr(instructions.fcntl, "ioctl", lambda *_: None)
    numbers = iter([900, 700, *[800] * 8])
    monkeypatch.setattr(instructions.os, "read", lambda *_: next(numbers).to_bytes(8, "little"))
    found = count_here(with_instructions=True)
    assert found.tallies["instructions"].total == 700
    assert "instructions" not in make_baseline(found).facts
    for number, verdict in ((700, "within"), (699, "breach")):
        held = hold("step", found, make_budget({"instructions": number}, ()), None)
        assert [item.verdict for item in held if item.kind == "instructions"] == [verdict]


def test_where_they_are_not_counted_it_cannot_be_told(monkeypatch):
    def refuse(_event):
        raise UnavailableError(os.strerror(errno.ENOENT))

    monkeypatch.setattr(instructions, "_open", refuse)
    budget = make_budget({"instructions": 10}, ())
    assert budget.asks_for("instructions")
    held = hold("step", count_here(with_instructions=True), budget, None)
    (found,) = [item for item in held if item.kind == "instructions"]
    assert found.verdict == "cannot tell"
    assert "this machine does not count them" in found.describe()
