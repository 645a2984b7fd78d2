"""The receipt as a record: it survives a file, agrees with its samples, and reads well."""

import json
from dataclasses import replace

import pytest

from ftax import InvalidArgumentError, ResultsError
from ftax.ladders.receipt import OperatorCost, Receipt, Unavailable
from ftax.reports.tables.operator_table import draw_operators
from ftax.reports.terminal import to_text
from support.records import make_measurement

EQUAL = {"outputs": {"bitwise": True, "within_tolerance": True, "difference": 0.0, "problem": None}}
CLOSE = {
    "outputs": {"bitwise": False, "within_tolerance": True, "difference": 2e-6, "problem": None}
}
WRONG = {
    "outputs": {
        "bitwise": False,
        "within_tolerance": False,
        "difference": 0.5,
        "problem": "outputs differ by 5.0e-01 (limit 1e-04)",
    }
}


def make_receipt(**changes):
    fields = {
        "rungs": (
            make_measurement([1000, 1010, 990] * 2, checks=EQUAL),
            make_measurement([600, 615, 585] * 2, runtime="flat", checks=EQUAL),
            make_measurement([400, 404, 396] * 2, host="cpp", checks=EQUAL),
        ),
        "others": (
            make_measurement([500, 505, 495] * 2, runtime="torchscript", host="cpp", checks=CLOSE),
            make_measurement([100, 101, 99] * 2, runtime="onnxruntime", host="cpp", checks=WRONG),
        ),
        "unavailable": (Unavailable(runtime="jax", host="python", reason="not installed"),),
        "operator_costs": (
            OperatorCost(
                index=0, operator="aten::add", module="a", build_ns=10, call_ns=100, release_ns=5
            ),
            OperatorCost(
                index=1, operator="aten::linear", module="b", build_ns=20, call_ns=300, release_ns=5
            ),
        ),
        "floors_ns": {"clock read": 20.0},
    }
    return Receipt(**{**fields, **changes})


def test_a_receipt_survives_a_file(tmp_path):
    receipt = make_receipt()
    receipt.save(tmp_path / "receipts.jsonl")
    (loaded,) = Receipt.load(tmp_path / "receipts.jsonl")
    assert loaded.to_dict() == receipt.to_dict()
    assert loaded.lines == receipt.lines


def test_lines_that_contradict_the_samples_are_refused(tmp_path):
    path = tmp_path / "receipts.jsonl"
    make_receipt().save(path)
    record = json.loads(path.read_text())
    record["record"]["lines"][0]["time_ns"] *= 2
    path.write_text(json.dumps(record) + "\n")
    with pytest.raises(ResultsError, match="stored lines are not those of the samples"):
        Receipt.load(path)


def test_python_tax_is_eager_minus_tape():
    time_ns, interval = make_receipt().python_tax_ns
    assert time_ns == pytest.approx(600.0)
    assert interval[0] <= 600.0 <= interval[1]


def test_without_a_tape_there_is_no_python_tax():
    assert make_receipt(rungs=make_receipt().rungs[:2]).python_tax_ns is None


def test_alternatives_are_sorted_and_say_what_they_save():
    first, second = make_receipt().alternatives
    assert first.measurement.cell.runtime == "onnxruntime"
    assert first.speedup_ratio == pytest.approx(10.0)
    assert not first.outputs_equal
    assert second.saved_ns == pytest.approx(500.0)
    assert second.outputs == "equal within 2e-06, on one input"


def test_a_runtime_with_wrong_outputs_is_not_recommended():
    text = str(make_receipt().details)
    advice = make_receipt().recommendation
    assert "eager/cpp" not in advice and "torchscript called from C++ gives back 500 ns" in advice
    assert "Faster still, but not recommended, is onnxruntime/cpp (outputs differ by" in advice
    assert "outputs differ" in text


def test_operators_that_took_longer_than_the_tape_are_not_resolved():
    receipt = make_receipt()
    assert receipt.operator_doubt == ""  # 440 ns, and the tape takes 400
    assert "not resolved" not in to_text(draw_operators(receipt, limit=5, by_kind=True))
    slow = replace(receipt.operator_costs[1], call_ns=900.0)
    slow_receipt = make_receipt(operator_costs=(receipt.operator_costs[0], slow))
    text = to_text(draw_operators(slow_receipt, limit=5, by_kind=True), width=160)
    assert text.startswith("Nothing below is resolved: looked at one by one the calls took 2.6 ")
    assert "by host time (1.04 us, not resolved)" in text


def test_operators_come_dearest_first():
    assert [cost.operator for cost in make_receipt().operators()] == ["aten::linear", "aten::add"]


def test_what_could_not_be_measured_is_listed_with_its_reason():
    assert "not installed" in str(make_receipt().details)


@pytest.mark.parametrize("order", [(1, 0, 2), (1, 2), (0, 0)])
def test_rungs_out_of_order_are_refused(order):
    rungs = make_receipt().rungs
    with pytest.raises(InvalidArgumentError, match="starts with Python eager"):
        make_receipt(rungs=tuple(rungs[i] for i in order))


def test_measurements_of_different_rounds_are_refused():
    with pytest.raises(InvalidArgumentError, match="same rounds"):
        make_receipt(others=(make_measurement([5, 5], runtime="torchscript"),))


def test_an_unresolved_tax_says_how_many_rounds_it_needs():
    rungs = (
        make_measurement([1000, 1400, 900, 1300, 1100]),
        make_measurement([1100, 1200, 1000, 1100, 1250], host="cpp"),
    )
    text = str(make_receipt(rungs=rungs, others=(), operator_costs=()).details)
    assert "not resolved, needs about" in text
    assert "Python's cost is not resolved" in text
