"""Checks of memory: what enqueue allocates, and what a runner leaves behind.

The surprising choice: a leak is what grows again. Of the heap it is the median growth of one cycle,
and of the GPU's memory, which is given out in blocks, what is less after each of three series of
cycles. Whatever else a Python process or a driver takes, it takes now and then.
"""

from __future__ import annotations

import ctypes
import gc
import statistics
from collections.abc import Callable

import torch

from ftax.runtimes.plugins.case import CheckFailedError, CheckSkippedError, Subject
from ftax.runtimes.plugins.conform.general import warm_up

_CALLS = 200
_WARM_CYCLES, _CYCLES = 5, 25
_SERIES = 3  # of cycles, if memory of the GPU is missing after each


class _HeapStatistics(ctypes.Structure):
    """glibc's struct mallinfo2."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]  # fmt: skip


def check_allocations(subject: Subject) -> str:
    """No call of malloc and its kin, by any thread, in enqueue after the first three."""
    bound = subject.bind()
    warm_up(bound)
    subject.note("enqueue")
    count = bound.plugin.count_allocations(_CALLS)
    if count:
        raise CheckFailedError(
            f"{count} allocations in {_CALLS} calls of enqueue; allocate in bind, or in the first "
            "enqueue after it"
        )
    return f"none in {_CALLS} calls; memory mapped past malloc is not seen"


def check_leaks(subject: Subject) -> str:
    """Create, bind, run and destroy, over and over: the heap and the GPU's memory stay as they
    are."""
    read_heap_bytes = _find_heap_reader()
    for _ in range(_WARM_CYCLES):
        _cycle(subject)
    gc.freeze()  # what is there already is no garbage, and takes long to look through
    try:
        return _look_for_leaks(subject, read_heap_bytes)
    finally:
        gc.unfreeze()


def _look_for_leaks(subject: Subject, read_heap_bytes: Callable[[], int]) -> str:
    lost = 0
    for _ in range(_SERIES):
        device_before = _read_device_bytes(subject)
        leaked = _find_heap_growth(subject, read_heap_bytes)
        if leaked > 0:
            raise CheckFailedError(f"each runner leaves {leaked} bytes of the heap behind")
        lost = device_before - _read_device_bytes(subject)
        if lost <= 0:
            return f"in {_CYCLES} runners"
    raise CheckFailedError(
        f"{_CYCLES} runners left {lost} bytes of the GPU's memory behind, the last of {_SERIES} "
        "series that all did"
    )


def _find_heap_growth(subject: Subject, read_heap_bytes: Callable[[], int]) -> int:
    """The median over cycles, in bytes."""
    growth = []
    for _ in range(_CYCLES):
        before = read_heap_bytes()
        _cycle(subject)
        growth.append(read_heap_bytes() - before)
    return int(statistics.median(growth))


def _cycle(subject: Subject) -> None:
    bound = subject.bind()
    bound.run(0)


def _find_heap_reader() -> Callable[[], int]:
    """Reads how many bytes of the heap are in use."""
    libc = ctypes.CDLL(None)  # once: each opening makes Python classes
    if not hasattr(libc, "mallinfo2"):
        raise CheckSkippedError("this C library does not tell what its heap holds (no mallinfo2)")
    collect = libc.mallinfo2
    collect.restype = _HeapStatistics

    def read() -> int:
        gc.collect()
        found = collect()
        return int(found.uordblks) + int(found.hblkhd)

    return read


def _read_device_bytes(subject: Subject) -> int:
    """Free memory of the GPU; 0 on a CPU. What torch itself needs it has by now."""
    device = torch.device(subject.case.device)
    if device.type != "cuda":
        return 0
    torch.cuda.synchronize(device)
    return int(torch.cuda.mem_get_info(device)[0])
