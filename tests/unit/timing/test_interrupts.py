"""Ctrl-C while something is not safe yet: it waits, and costs nothing that was measured."""

import signal
import threading

import pytest
import torch

import ftax
from ftax.ladders import after, measure_receipt
from ftax.ladders.tax import tax_with_traces
from ftax.runtimes.same_work import WorkWatch
from ftax.timing import interrupts
from ftax.timing.interrupts import hold, interruptible, take
from ftax.timing.plan import Plan
from support.small_models import load_function

QUICK = Plan(rounds=3, warmup=2, round_ms=1.0)


def press():
    signal.raise_signal(signal.SIGINT)


@pytest.fixture(autouse=True)
def nothing_left():
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert (interrupts._blocks, interrupts._is_waiting, interrupts._open) == (0, False, None)


def test_it_waits_for_the_end_of_the_outermost_block():
    seen = []
    with pytest.raises(KeyboardInterrupt), hold():  # noqa: PT012  (the order is the point)
        with hold():
            press()
            seen.append("inner")
        seen.append("outer")
    assert seen == ["inner", "outer"]


def test_who_asks_deals_with_it():
    with hold():
        press()
        press()
        assert take() and not take()


def test_another_error_comes_first():
    def fail():
        press()
        raise ValueError

    with pytest.raises(ValueError), hold():  # noqa: PT011  (any)
        fail()


def test_what_may_be_ended_is():
    def work():
        press()
        pytest.fail("it went on")

    def work_and_keep():
        with hold():
            press()
            done.append("kept")
        pytest.fail("it went on")

    done = []
    with hold():
        with pytest.raises(KeyboardInterrupt):
            interruptible(work)
        press()
        with pytest.raises(KeyboardInterrupt):
            interruptible(pytest.fail, "it began")
        with pytest.raises(KeyboardInterrupt):
            interruptible(work_and_keep)
        assert done == ["kept"] and not take()


def test_a_result_that_is_on_its_way_out_of_c_is_not_lost():
    """There the signal is handled when the call has returned, and before anything has its value."""
    with hold():
        assert interruptible(signal.raise_signal, signal.SIGINT) is None
        assert take()


def test_outside_of_it_and_in_other_threads_nothing_is_changed():
    with pytest.raises(KeyboardInterrupt):
        interruptible(press)

    def look():
        with hold():
            seen.append(signal.getsignal(signal.SIGINT))

    seen = []
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]
    own = signal.signal(signal.SIGINT, lambda *_: seen.append("own"))
    try:
        with hold():
            press()
        assert seen[1:] == ["own"]
    finally:
        signal.signal(signal.SIGINT, own)


# --- measurements --------------------------------------------------------------------------------


def press_before(monkeypatch, owner, name):
    """Ctrl-C, twice, as ``name`` begins."""
    real = getattr(owner, name)

    def call(*arguments, **options):
        press()
        press()
        return real(*arguments, **options)

    monkeypatch.setattr(owner, name, call)


@pytest.mark.parametrize("name", ["look_in_a_row", "compare_outputs", "judge"])
def test_ctrl_c_behind_the_rounds_keeps_them(name, monkeypatch):
    press_before(monkeypatch, WorkWatch, name)
    found = ftax.py_bench(load_function(torch.exp), plan=QUICK, progress=False)
    assert len(found.samples_ns) == 3
    assert found.stop_reason == "interrupted"


def press_in_round(number, times):
    def progress(phase, done, total):
        if (phase, done) == ("round", number):
            for _ in range(times):
                press()

    return progress


@pytest.mark.parametrize("name", ["compare_outputs", "judge"])
def test_a_second_ctrl_c_does_not_lose_what_the_first_left(name, monkeypatch):
    press_before(monkeypatch, WorkWatch, name)
    plan = Plan(rounds=50, warmup=2, round_ms=1.0)
    found = ftax.py_bench(load_function(torch.exp), plan=plan, progress=press_in_round(3, 1))
    assert (found.stop_reason, len(found.samples_ns)) == ("interrupted", 3)


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (measure_receipt, "warn_of_rounds"),
        (after, "check_crowd"),
        (measure_receipt, "warn_of_evidence"),
    ],
)
def test_a_receipt_survives_ctrl_c_wherever_it_comes_after_the_rounds(owner, name, monkeypatch):
    press_before(monkeypatch, owner, name)
    kept = []
    receipt, _ = tax_with_traces(
        load_function(torch.exp), runtimes="none", plan=QUICK, progress=False, keep=kept.append
    )
    assert len(receipt.rungs) == 3 and len(kept) == 1 and receipt.interrupted


def test_a_second_ctrl_c_keeps_the_receipt_of_the_first(monkeypatch):
    press_before(monkeypatch, after, "measure_floors")
    plan = Plan(rounds=50, warmup=2, round_ms=1.0)
    receipt = ftax.tax(
        load_function(torch.exp), runtimes="none", plan=plan, progress=press_in_round(3, 1)
    )
    assert {len(rung.samples_ns) for rung in receipt.rungs} == {3}
    assert receipt.interrupted and receipt.operator_costs and not receipt.floors_ns


def test_ctrl_c_before_the_first_round_is_raised_at_once():
    def progress(phase, done, total):
        press()
        pytest.fail("it went on")

    with pytest.raises(KeyboardInterrupt):
        ftax.py_bench(load_function(torch.exp), plan=QUICK, progress=progress)


def test_ctrl_c_while_c_runs_the_rounds_ends_them():
    """It is handled between two rounds, in the frame that waits for all of them."""
    loaded = load_function(torch.exp)
    timer = threading.Timer(1.0, signal.raise_signal, [signal.SIGINT])

    def begin(phase, done, total):
        if phase == "round" and done == 0:
            timer.start()

    plan = Plan(rounds=100_000, warmup=2, round_ms=5.0, duration_s=60.0)
    found = ftax.cpp_bench(loaded, plan=plan, progress=begin)
    assert found.stop_reason == "interrupted" and 1 <= len(found.samples_ns) < 100_000
