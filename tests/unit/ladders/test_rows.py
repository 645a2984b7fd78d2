"""Rows of runtimes from receipts made by hand: what is saved, of what, and when it has paid."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ftax.ladders.receipt import Receipt, Unavailable
from ftax.reports.tables.runtime_table import make_runtime_tables
from ftax.reports.terminal import to_text
from ftax.timing.candidate import Preparation
from support.evidence import EAGER, GRAPH, TAPE
from support.runtimes_receipt import (
    CLOSE,
    ORT,
    WRONG,
    make_cpu_receipt,
    make_gpu_receipt,
    make_runtime,
    make_work,
)
from support.tables import read_column


def find(receipt, place):
    (row,) = [row for row in receipt.runtimes if row.label == "/".join(place)]
    return row


def test_rows_are_sorted_and_split_by_their_own_traces():
    receipt = make_gpu_receipt(
        make_runtime(ORT, 800.0, outputs=CLOSE, noise=-0.002),
        evidence=[make_work(ORT, 440.0, kernels=60, same=False)],
    )
    assert [row.label for row in receipt.runtimes][:2] == ["cuda-graph/cpp", "onnxruntime/cpp"]
    row = find(receipt, ORT)
    assert row.saved_ns == pytest.approx(3_800_000)
    assert row.tax_left_ns == pytest.approx(360_000)
    assert row.tax_removed_ns == pytest.approx(3_600_000)  # (4600 - 640) - (800 - 440)
    assert row.busy_removed_ns == pytest.approx(200_000)
    assert (row.kernels, row.kernel_ns) == (60, 439_500.0)
    # 439.5 us of 60 against 639.5 us of 100: 7.325 against 6.395 us each.
    assert row.difference == "40 fewer, each 1.15x as long on average"
    assert row.speedup_ratio == pytest.approx(5.75, rel=1e-3)
    assert row.speedup_interval[0] < row.speedup_ratio < row.speedup_interval[1]
    assert find(receipt, GRAPH).difference == "the same, 1.00x as long"
    assert find(receipt, EAGER).saved_ns == 0.0


numbers = st.floats(1.0, 1e5)


@given(numbers, numbers, numbers, numbers)
@settings(max_examples=40, deadline=None)
def test_the_two_parts_of_a_saving_sum_to_it(eager_us, busy_ratio, latency_us, own_ratio):
    busy_us, own_us = (value / 1e5 * total for value, total in
                       ((busy_ratio, eager_us), (own_ratio, latency_us)))  # fmt: skip
    receipt = make_gpu_receipt(
        make_runtime(ORT, latency_us),
        evidence=[make_work(ORT, own_us + 1, same=False)],
        eager_us=eager_us + 1000,
        busy_us=busy_us + 1,
    )
    row = find(receipt, ORT)
    if row.tax_removed_ns is not None:
        assert row.tax_removed_ns + row.busy_removed_ns == pytest.approx(row.saved_ns, abs=1e-3)


def test_busy_time_longer_than_the_latency_is_not_believed():
    receipt = make_gpu_receipt(
        make_runtime(ORT, 400.0), evidence=[make_work(ORT, 440.0, same=False)]
    )
    row = find(receipt, ORT)
    assert (row.busy_ns, row.tax_left_ns, row.tax_removed_ns) == (None, None, None)


def test_on_a_cpu_there_is_no_split_and_no_column_for_it():
    receipt = make_cpu_receipt(make_runtime(ORT, 500.0))
    assert find(receipt, ORT).tax_left_ns is None
    latencies, costs, percentiles = make_runtime_tables(receipt)
    assert percentiles.columns[2:] == ("p50", "p90", "p99", "slowest")
    assert "throughput" not in latencies.columns
    assert "tax left" not in latencies.columns
    assert "paid back after" in costs.columns


@pytest.mark.parametrize(
    ("facts", "seconds"),
    [
        ({"ready_seconds": 2.0}, 2.0),
        ({"ready_seconds": 12.0, "seconds": 10.0, "from_cache": False}, 12.0),
        ({"ready_seconds": 2.0, "seconds": 10.0, "from_cache": True}, 12.0),
        ({"seconds": 10.0}, 10.0),
    ],
)
def test_preparation_is_making_and_loading_wherever_it_came_from(facts, seconds):
    assert Preparation.of(facts).seconds == seconds


def test_preparation_pays_for_itself_after_so_many_calls():
    assert Preparation().seconds is None
    receipt = make_gpu_receipt(
        make_runtime(ORT, 600.0, seconds=7.0, from_cache=True),
        make_runtime(("torchscript", "cpp"), 9000.0),
    )
    assert find(receipt, ORT).calls_to_pay_back == 2000  # 8 s at 4 ms saved a call
    assert find(receipt, ("torchscript", "cpp")).calls_to_pay_back is None
    assert find(receipt, EAGER).calls_to_pay_back is None


def test_a_row_with_a_baseline_is_compared_with_it_under_the_same_host():
    receipt = make_gpu_receipt(
        make_runtime(("padded", "cpp"), 700.0),
        make_runtime(("padded", "python"), 1000.0),
        make_runtime(("nested", "python"), 500.0, baseline="padded"),
    )
    row = find(receipt, ("nested", "python"))
    assert row.speedup_ratio == pytest.approx(2.0, rel=1e-3)
    assert "compared with padded" in row.excluded
    padded = find(receipt, ("padded", "python"))
    assert padded.speedup_ratio == 1.0 and padded.excluded
    table = make_runtime_tables(receipt)[0]
    of = dict(zip(read_column(table, "runtime"), read_column(table, "of"), strict=True))
    assert (of["nested"], of["padded"], of["eager"]) == ("padded", "-", "-")


def test_a_baseline_that_was_not_measured_leaves_no_speed_up():
    receipt = make_gpu_receipt(make_runtime(("nested", "python"), 500.0, baseline="padded"))
    row = find(receipt, ("nested", "python"))
    assert (row.saved_ns, row.speedup_ratio, row.is_faster) == (None, None, False)
    assert make_runtime_tables(receipt)[0].rows


def test_outputs_beyond_tolerance_exclude_a_row():
    receipt = make_cpu_receipt(make_runtime(ORT, 100.0, outputs=WRONG))
    row = find(receipt, ORT)
    assert row.excluded == "outputs differ by 5.0e-01 (limit 1e-02)"
    assert not find(receipt, TAPE).excluded


def test_all_of_a_receipt_tells_why_a_runtime_is_faster(tmp_path):
    receipt = make_gpu_receipt(
        make_runtime(ORT, 800.0, outputs=CLOSE),
        evidence=[make_work(ORT, 440.0, kernels=60, same=False)],
        unavailable=(Unavailable(runtime="jax", host="python", reason="no jax", error="long"),),
    )
    assert [row.label for row in receipt.runtimes][:2] == ["cuda-graph/cpp", "onnxruntime/cpp"]
    receipt.save(tmp_path / "r.jsonl")
    (loaded,) = Receipt.load(tmp_path / "r.jsonl")
    assert loaded.runtimes == receipt.runtimes
    text = " ".join(to_text(receipt.details, width=160).split())
    for words in ("no jax", "Why: tax or kernels", "40 fewer", "input 1e-02", "Host-bound"):
        assert words in text
