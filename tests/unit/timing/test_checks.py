"""Checks and preparation as they are stored: what is read again comes back, the rest stays."""

import json
import math

from ftax.ladders.receipt import Receipt
from ftax.timing.candidate import Launches, Preparation
from ftax.timing.checks import Checks, Equality, SameWork

WORSE = Equality(
    bitwise=False,
    within_tolerance=False,
    difference=math.inf,
    tolerance=1e-4,
    problem="2 outputs instead of 1",
)
CHECKS = Checks(
    outputs=WORSE,
    second_input=WORSE,
    same_work=SameWork(observed=3, in_a_row=2, calls=10, problem=""),
    details={"operators": 7},
)


def test_checks_come_back_as_they_were_stored():
    stored = json.loads(json.dumps(CHECKS.to_dict()))
    assert stored["outputs"]["difference"] is None  # JSON has no infinity
    assert stored["operators"] == 7
    assert Checks.of(stored) == CHECKS
    assert Checks.of({}) == Checks() and Checks().to_dict() == {}


def test_what_an_old_record_lacks_is_not_made_up():
    outputs = {"bitwise": True, "within_tolerance": True, "difference": 0.0, "problem": None}
    checks = Checks.of({"outputs": outputs, "same_work": {"problem": "it grows"}})
    assert checks.judge_outputs().words == "bitwise equal, on one input"
    assert checks.judge_outputs().tolerance is None
    assert checks.work_problem == "it grows"


def test_what_is_no_check_at_all_is_a_detail_nobody_reads():
    assert Checks.of({"outputs": 3, "same_work": "x"}) == Checks()


def test_a_preparation_is_stored_under_the_names_of_old():
    made = Preparation(
        made_seconds=2.0,
        peak_host_bytes=5,
        from_cache=True,
        ready_seconds=1.0,
        baseline="padded",
        launches=Launches(
            count=3,
            types={"kernel": 2, "memset": 1},
            attributes={},
            is_chain=True,
            lost_programmatic_edges=0,
        ),
        details={"lengths": [3]},
    )
    stored = made.to_dict()
    assert stored == {
        "seconds": 2.0, "peak_host_bytes": 5, "peak_device_bytes": None, "from_cache": True,
        "ready_seconds": 1.0, "baseline": "padded", "lengths": [3], "launches": 3,
        "launch_types": {"kernel": 2, "memset": 1}, "launch_attributes": {}, "is_chain": True,
        "lost_programmatic_edges": 0,
    }  # fmt: skip
    read = Preparation.of(stored)
    assert read.to_dict() == stored
    assert (read.seconds, read.baseline) == (3.0, "padded")
    assert Preparation().to_dict() == {}


def test_numbers_that_are_none_are_not_believed():
    read = Preparation.of({"seconds": "long", "ready_seconds": True, "baseline": 3})
    assert (read.seconds, read.baseline) == (None, "")


def test_costs_of_a_variant_replace_those_of_what_it_was_made_of():
    tape = Preparation(made_seconds=1.0, details={"a": 1})
    variant = tape.costing(Preparation(made_seconds=5.0, peak_host_bytes=7)).also(b=2)
    assert (variant.made_seconds, variant.peak_host_bytes) == (5.0, 7)
    assert variant.details == {"a": 1, "b": 2}


def test_a_receipt_of_a_measurement_reads_its_own_checks(mlp):
    import ftax

    receipt = ftax.tax(mlp, runtimes="none", plan=ftax.Plan(rounds=3, warmup=2, round_ms=1.0))
    tape = Receipt.from_dict(json.loads(json.dumps(receipt.to_dict()))).rungs[-1]
    checks = Checks.of(tape.checks)
    assert checks.outputs.bitwise and checks.second_input.bitwise
    assert checks.same_work.observed > 0
    assert checks.details["operators"] == 3
    assert Preparation.of(tape.preparation).seconds > 0
