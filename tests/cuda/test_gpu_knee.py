"""The knee on a GPU: each size is gated, and memory that runs out is a limit."""

import pytest
import torch
from torch import nn

import ftax

pytestmark = pytest.mark.needs_cuda


def make_stack():
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(20))).half().cuda()


def make_inputs(size):
    return torch.randn(size, 1024, dtype=torch.float16, device="cuda")


@pytest.mark.parametrize("host", ["python", "cpp"])
def test_a_stack_of_layers_is_host_bound_on_its_plateau_and_not_beyond(host):
    found = ftax.knee(make_stack(), make_inputs, host=host, low=8, high=1 << 20)
    assert found.verdict == "found"
    assert found.issue_ns > found.device_ns  # twenty small layers
    largest = max((p for p in found.points if p.values_ns), key=lambda point: point.size)
    assert largest.host_bound is not None
    assert largest.device_ns > found.device_ns


def test_memory_that_runs_out_ends_the_search_with_a_limit():
    free, _ = torch.cuda.mem_get_info()

    class Greedy(nn.Module):
        def forward(self, x):
            wanted = 0 if x.shape[0] < 8 else 2 * free
            return x + torch.empty(wanted, dtype=torch.uint8, device="cuda").shape[0]

    found = ftax.knee(Greedy(), lambda size: torch.ones(size, 4, device="cuda"), high=64)
    assert found.limit is not None
    assert found.limit.out_of_memory
    assert found.limit.size == 8
