"""Counts of steps on a GPU: what the host waits for, and what CUPTI sees."""

import ctypes
from pathlib import Path

import pytest
import torch
from torch import nn

from ftax.budgets.budget_file import make_budget
from ftax.budgets.count_step import count
from ftax.budgets.held import hold
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


def test_waits_and_launches_have_their_lines():
    driver = ctypes.CDLL("libcuda.so.1")
    event = torch.cuda.Event()

    def step(x):
        y = x * 2
        event.record()
        event.synchronize()
        driver.cuCtxSynchronize()  # torch knows nothing of it
        y.sum().item()
        return y + 1

    found = count_here(step, torch.ones(4, device="cuda"))
    waits = [fact.where.partition(": ")[2] for fact in found.tallies["synchronisations"].facts]
    assert sorted(waits) == [
        "driver.cuCtxSynchronize() # torch knows nothing of it", "event.synchronize()",
        "y.sum().item()",
    ]  # fmt: skip
    kernels = {fact.where.partition(": ")[2] for fact in found.tallies["kernels"].facts}
    assert {"y = x * 2", "y.sum().item()", "return y + 1"} == kernels
    assert kernels == {
        fact.where.partition(": ")[2] for fact in found.tallies["launches"].facts
    }  # fmt: skip


def test_a_backward_pass_is_at_the_line_that_begins_it():
    layer, x = nn.Linear(8, 8).cuda(), torch.randn(2, 8, device="cuda")

    def step(x):
        layer.zero_grad()
        loss = layer(x).sum()
        loss.backward()

    facts = count_here(step, x).tallies["launches"].facts
    wheres = {fact.where.partition(" at ")[2].partition(": ")[2] for fact in facts}
    assert "loss.backward()" in wheres
    assert all(fact.lines for fact in facts)


def test_a_place_that_is_allowed_does_not_count():
    def step(x):
        torch.cuda.synchronize()
        return x + 1

    counts = count_here(step, torch.ones(4, device="cuda"))
    budget = make_budget({"synchronisations": 0}, ["torch.cuda.synchronize"])
    (held,) = [item for item in hold("step", counts, budget, None)
               if item.kind == "synchronisations"]  # fmt: skip
    assert (held.verdict, held.measured) == ("within", 0)
    budget = make_budget({"synchronisations": 0}, [])
    (held,) = [item for item in hold("step", counts, budget, None)
               if item.kind == "synchronisations"]  # fmt: skip
    assert held.verdict == "breach"
    assert "in test_a_place" in next(held.list_places())
