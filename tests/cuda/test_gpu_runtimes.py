"""Alternatives on a GPU: their kernels are traced, their speed-up is split."""

import pytest

import ftax
from ftax.timing.plan import Plan

pytestmark = pytest.mark.needs_cuda


@pytest.mark.parametrize("trace", ["worker", "here"])
def test_an_alternative_is_traced_and_its_saving_split(trace: str) -> None:
    found = ftax.tax(
        "bert-base",
        tiny=True,
        device="cuda",
        dtype="fp16",
        runtimes=["torchscript", "cuda-graph"],
        plan=Plan(rounds=10, duration_s=20),
        operators=False,
        throughput=True,
        trace=trace,
    )
    rows = {row.label: row for row in found.runtimes}
    assert {"torchscript/python", "torchscript/cpp", "cuda-graph/python"} <= set(rows)
    for label in ("torchscript/cpp", "cuda-graph/python", "cuda-graph/cpp"):
        row = rows[label]
        assert row.kernels and row.kernel_ns, found.collect_warnings()
        assert row.tax_removed_ns is not None and row.busy_removed_ns is not None
        assert row.tax_removed_ns + row.busy_removed_ns == pytest.approx(row.saved_ns)
        assert row.examples_per_s
    assert "bound at batch 1" in found.recommendation
    assert rows["cuda-graph/python"].difference.startswith("the same")
