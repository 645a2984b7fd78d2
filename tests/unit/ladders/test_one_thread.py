"""A receipt whose requests waited for CPUs is measured again on one thread, and says so first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

import ftax
from ftax.ladders import measure_receipt
from ftax.reports.tables.receipt_table import draw_receipt
from support.small_models import normal

PLAN = ftax.Plan(rounds=3, warmup=2, round_ms=2.0, duration_s=5.0)


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine on which requests of several threads wait."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    monkeypatch.setattr(
        measure_receipt,
        "find_doubt_of_waits",
        lambda ratio: "it waited" if torch.get_num_threads() > 1 else "",
    )
    yield
    torch.set_num_threads(before)


def tax(*, plan: ftax.Plan = PLAN, **options: int) -> ftax.Receipt:
    return ftax.tax(
        torch.nn.Linear(4, 4), (normal(3, 4),), plan=plan, runtimes="none", operators=False,
        progress=False, **options,
    )  # fmt: skip


def count_threads(receipt: ftax.Receipt) -> int:
    return receipt.rungs[0].environment.settings.num_threads


@pytest.mark.usefixtures("busy")
def test_it_is_measured_on_one_thread_and_the_first_line_says_so():
    receipt = tax()
    assert count_threads(receipt) == 1 and torch.get_num_threads() == 2
    first = draw_receipt(receipt).head[0]
    assert first.startswith("Measured on one thread: on 2, requests waited for CPUs")


@pytest.mark.usefixtures("busy")
def test_threads_that_were_asked_for_are_kept():
    receipt = tax(threads=2)
    assert count_threads(receipt) == 2
    assert not any("Measured on one" in text for text in draw_receipt(receipt).head)


@pytest.mark.usefixtures("busy")
def test_two_seconds_tell_before_a_long_measurement(monkeypatch: pytest.MonkeyPatch):
    plans, measure = [], measure_receipt.measure

    def note(loaded, prepared, plan, *more, **options):
        plans.append((plan.duration_s, torch.get_num_threads()))
        return measure(loaded, prepared, plan, *more, **options)

    monkeypatch.setattr(measure_receipt, "measure", note)
    receipt = tax(plan=replace(PLAN, duration_s=60.0))
    assert count_threads(receipt) == 1 and plans[:2] == [(2.0, 2), (60.0, 1)]


def test_a_machine_that_is_left_alone_keeps_its_threads(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(measure_receipt, "find_doubt_of_waits", lambda ratio: "")
    assert count_threads(tax()) == torch.get_num_threads()
