"""Peak device memory of one call, as torch's allocator counts it.

Two numbers, because they answer different questions: what the tensors needed, and what torch took
from the device to serve them. A runtime with an allocator of its own is in neither; for it the use
of the whole device is read too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from ftax.records.record import Count, Record


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakMemory(Record):
    """Bytes of one device.

    Attributes:
        held_bytes: in tensors before the call: weights, inputs, other models.
        allocated_bytes: most in tensors at one time during the call, ``held_bytes`` included.
        reserved_bytes: most that torch's allocator held at one time, rounding, fragments and the
            private pools of CUDA graphs included.
        device_bytes: in use on the whole device after the call, by all allocators and processes.
    """

    held_bytes: Count
    allocated_bytes: Count
    reserved_bytes: Count
    device_bytes: Count

    @property
    def call_bytes(self) -> int:
        """What the call itself added at its peak."""
        return self.allocated_bytes - self.held_bytes


def measure_peak_memory(
    function: Callable[[], object], *, device: str, cuda: Any = torch.cuda
) -> PeakMemory:
    """Call ``function`` twice and return the peak of the second call.

    The first call lets libraries take workspaces that they keep. Unused memory that torch has
    cached goes back to the device in between, so call this after all timing. ``cuda`` stands in
    for torch.cuda.
    """
    function()
    cuda.synchronize(device)
    cuda.empty_cache()
    cuda.reset_peak_memory_stats(device)
    held_bytes = cuda.memory_allocated(device)
    result = function()  # outputs count: they live at the same time as what made them
    cuda.synchronize(device)
    free_bytes, total_bytes = cuda.mem_get_info(device)
    peak = PeakMemory(
        held_bytes=held_bytes,
        allocated_bytes=cuda.max_memory_allocated(device),
        reserved_bytes=cuda.max_memory_reserved(device),
        device_bytes=total_bytes - free_bytes,
    )
    del result
    return peak
