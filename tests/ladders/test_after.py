"""What follows the rounds of a receipt, interrupted and failing at each place."""

import pytest
import torch

import ftax
from ftax.ladders.after import AFTER
from ftax.timing.session import Plan
from support.small_models import load_function

QUICK = Plan(rounds=3, warmup=2, round_ms=1.0)
RUNGS = [("eager", "python"), ("flat", "python"), ("eager", "cpp")]


def interrupt(*_arguments, **_options):
    raise KeyboardInterrupt


def take(**options):
    return ftax.tax(load_function(torch.exp), runtimes="none", plan=QUICK, **options)


@pytest.mark.parametrize(
    ("where", "missing"),
    [
        ("check_crowd", "whether runners disturb each other was not tested"),
        ("measure", "throughput was not measured"),
        ("OperatorCost", "operators were not timed"),
        ("measure_floors", "the floors of this machine were not timed"),
    ],
)
def test_ctrl_c_after_the_rounds_keeps_them_and_says_what_is_missing(where, missing, monkeypatch):
    monkeypatch.setattr(f"ftax.ladders.after.{where}", interrupt)
    receipt = take(throughput=True)
    assert [rung.place for rung in receipt.rungs] == RUNGS
    assert receipt.interrupted
    assert any(
        text.startswith("interrupted after the rounds: ") and missing in text
        for text in receipt.warnings
    )
    assert ftax.Receipt.from_dict(receipt.to_dict()).interrupted
    before = [item.missing for item in AFTER].index(missing)
    assert bool(receipt.operator_costs) is (before > 3)  # what came before it is kept
    assert not receipt.floors_ns


def test_a_receipt_that_nobody_interrupted_does_not_say_so():
    receipt = take()
    assert not receipt.interrupted
    assert receipt.operator_costs and receipt.floors_ns and receipt.throughputs == ()
    assert "interrupted" not in receipt.preparation


def test_back_to_back_requests_that_are_interrupted_are_kept_and_end_the_looks(monkeypatch):
    from ftax.ladders import after

    whole = after.measure

    def measure_half(*arguments, **options):
        session = whole(*arguments, **options)
        return type(session)(
            measurements=session.measurements,
            errors=session.errors,
            stop_reason="interrupted",
            elapsed_s=session.elapsed_s,
            gc_ms=session.gc_ms,
        )

    monkeypatch.setattr(after, "measure", measure_half)
    receipt = take(throughput=True)
    assert len(receipt.throughputs) == 3 and receipt.interrupted
    assert not receipt.operator_costs
