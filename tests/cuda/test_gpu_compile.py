"""A compiled call on a GPU, taken apart down to its kernels, which are the same on every rung."""

import pytest
import torch
from torch import nn

import ftax
from ftax.ladders.ladder import COMPILE
from ftax.timing.checks import Checks

pytestmark = pytest.mark.needs_cuda
PLAN = ftax.Plan(rounds=5, warmup=5, round_ms=10.0)


# The larger one has kernels for which Inductor tries several block sizes.
@pytest.mark.parametrize(("rows", "width"), [(4, 64), (1024, 3072)])
def test_each_rung_runs_the_kernels_of_the_compiled_call(rows, width):
    torch.manual_seed(0)
    norm, gelu = nn.LayerNorm(width), nn.GELU()
    model = nn.Sequential(nn.Linear(64, width), norm, gelu, nn.Linear(width, 8)).cuda()
    receipt = ftax.tax(
        model.eval(), torch.randn(rows, 64, device="cuda"), ladder="compile", plan=PLAN,
        runtimes="none", trace="here", progress=False,
    )  # fmt: skip
    assert not receipt.unavailable, receipt.unavailable
    assert [rung.place for rung in receipt.rungs] == COMPILE.list_places("cuda")
    assert all(Checks.of(rung.checks).judge_outputs().equal for rung in receipt.rungs)
    assert [item.same_kernels for item in receipt.evidence[1:]] == [True] * (len(receipt.rungs) - 1)
    assert sum(line.time_ns for line in receipt.lines) == pytest.approx(receipt.latency_ns)
    assert {"guards", "generated Python", "kernels"} <= {line.name for line in receipt.lines}
