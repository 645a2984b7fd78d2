"""What it costs to make a runtime ready: seconds, and the most memory that it took.

Host memory is read as the kernel's high-water mark of the process, which is reset first. Exporters
and compilers allocate outside torch, and a sampling thread would slow them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from ftax.timing.candidate import Preparation

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


@dataclass(slots=True, kw_only=True)
class Cost:
    """Filled when its block ends. Bytes are peaks beyond what was in use before; None where this
    machine does not tell."""

    seconds: float = 0.0
    peak_host_bytes: int | None = None
    peak_device_bytes: int | None = None

    def to_preparation(self, **details: object) -> Preparation:
        """Of what was made meanwhile."""
        return Preparation(
            made_seconds=self.seconds,
            peak_host_bytes=self.peak_host_bytes,
            peak_device_bytes=self.peak_device_bytes,
            details=details,
        )


@contextmanager
def measure_cost(device: str) -> Iterator[Cost]:
    """Measure what the block costs. Blocks do not nest: an inner one resets the peaks."""
    cost = Cost()
    on_gpu = torch.device(device).type == "cuda"
    host_before = _read_kib("VmRSS") if _reset_peak() else None
    if on_gpu:
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
    device_before = torch.cuda.memory_allocated(device) if on_gpu else 0
    start = time.perf_counter()
    try:
        yield cost
    finally:
        if on_gpu:
            torch.cuda.synchronize(device)
            cost.peak_device_bytes = torch.cuda.max_memory_allocated(device) - device_before
        cost.seconds = time.perf_counter() - start
        host_peak = _read_kib("VmHWM")
        if host_before is not None and host_peak is not None:
            cost.peak_host_bytes = max(0, host_peak - host_before) * 1024


def _reset_peak() -> bool:
    try:
        _RESET.write_text("5")  # proc(5): resets the high-water mark
    except OSError:
        return False
    return True


def _read_kib(name: str) -> int | None:
    try:
        for line in _STATUS.read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1])
    except (OSError, ValueError):
        pass
    return None
