"""Counts of steps on a GPU: what the host waits for, and what CUPTI sees."""

from pathlib import Path

import pytest
import torch
from torch import nn

from ftax.budgets.count_step import count
from ftax.steps.setting import Setting

pytestmark = pytest.mark.needs_cuda


def count_here(step, inputs):
    return count(step, inputs, Setting(), Path(__file__).parents[2])


def totals(counts):
    return {kind: tally.total for kind, tally in counts.tallies.items()}


def make_model():
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU()).cuda(), torch.randn(2, 8, device="cuda")


def test_a_forward_pass_has_kernels_and_waits_for_nothing():
    found = totals(count_here(*make_model()))
    assert found["kernels"] >= 2
    assert found["launches"] == found["kernels"]
    assert found["synchronisations"] == found["host_reads"] == found["copies"] == 0
    assert "allocated_bytes" not in found


def test_a_read_and_a_copy_have_their_lines():
    def step(x):
        number = x.sum().item()
        return x.cpu() * number

    found = count_here(step, make_model()[1])
    (read,) = found.tallies["host_reads"].facts
    assert "number = x.sum().item()" in read.where
    (copy,) = found.tallies["copies"].facts
    assert "cuda to cpu" in copy.what
    assert "return x.cpu() * number" in copy.where
    assert totals(found)["synchronisations"] >= 2


def test_counts_are_the_same_in_every_run():
    assert len({str(totals(count_here(*make_model()))) for _ in range(3)}) == 1
