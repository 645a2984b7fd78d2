"""Peak memory of a call: what is asked of torch, in which order, and a real allocation."""

import pytest
import torch

from ftax.instruments.readings import PeakMemory, measure_peak_memory


class FakeCuda:
    """A torch.cuda whose allocator holds 100 bytes; each call of `run` peaks at 700 more."""

    def __init__(self):
        self.events = []
        self.peak = 9999  # of a time before

    def run(self):
        self.events.append("run")
        self.peak = max(self.peak, 800)

    def synchronize(self, device):
        self.events.append("synchronize")

    def empty_cache(self):
        self.events.append("empty_cache")

    def reset_peak_memory_stats(self, device):
        self.events.append("reset")
        self.peak = 100

    def memory_allocated(self, device):
        return 100

    def max_memory_allocated(self, device):
        self.events.append("peak")
        return self.peak

    def max_memory_reserved(self, device):
        return 1024

    def mem_get_info(self, device):
        return 6000, 10_000


def test_the_peak_is_of_the_second_call_alone():
    cuda = FakeCuda()
    peak = measure_peak_memory(cuda.run, device="cuda", cuda=cuda)
    assert peak == PeakMemory(
        held_bytes=100, allocated_bytes=800, reserved_bytes=1024, device_bytes=4000
    )
    assert peak.call_bytes == 700
    assert cuda.events == [
        "run",
        "synchronize",
        "empty_cache",
        "reset",
        "run",
        "synchronize",
        "peak",
    ]


@pytest.mark.needs_cuda
def test_a_real_allocation_is_seen():
    held = torch.zeros(2**20, device="cuda")  # 4 MiB

    def call():
        large = torch.ones(2**24, device="cuda")  # 64 MiB
        return large.sum()

    before = torch.cuda.memory_allocated()
    peak = measure_peak_memory(call, device="cuda")
    assert peak.held_bytes == before >= held.nbytes
    assert 64 * 2**20 <= peak.call_bytes <= 66 * 2**20
    assert peak.reserved_bytes >= peak.allocated_bytes
    assert peak.device_bytes >= peak.allocated_bytes
