"""Host instructions of one call, as the CPU counts them (perf_event_open(2)): those of the calling
thread, in user space. They vary by a fraction of a percent from run to run, so they are counted
where a budget asks for them, and are in no baseline.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import platform
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ftax.errors import UnavailableError

_SYSCALL = {"x86_64": 298, "aarch64": 241}
INSTRUCTIONS = (0, 1)  # PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS
_ATTRIBUTES = struct.Struct("=IIQQQQQIIQ")  # the first version of struct perf_event_attr
_FLAGS = 1 << 0 | 1 << 5 | 1 << 6  # disabled, exclude_kernel, exclude_hv
_ENABLE, _DISABLE, _RESET = 0x2400, 0x2401, 0x2403

Count = Callable[[Callable[[], object]], int]


@contextmanager
def counter(event: tuple[int, int] = INSTRUCTIONS) -> Iterator[Count]:
    """What counts the instructions of a call, or another ``event``, by its type and number.

    Raises UnavailableError where this machine does not count them.
    """
    descriptor = _open(event)

    def count(call: Callable[[], object]) -> int:
        fcntl.ioctl(descriptor, _RESET, 0)
        fcntl.ioctl(descriptor, _ENABLE, 0)
        try:
            call()
        finally:
            fcntl.ioctl(descriptor, _DISABLE, 0)
        return int.from_bytes(os.read(descriptor, 8), "little")

    try:
        yield count
    finally:
        os.close(descriptor)


def _open(event: tuple[int, int]) -> int:
    kind, number = event
    machine = platform.machine()
    if machine not in _SYSCALL:
        raise UnavailableError(f"instructions are not counted on {machine}")
    attributes = _ATTRIBUTES.pack(kind, _ATTRIBUTES.size, number, 0, 0, 0, _FLAGS, 0, 0, 0)
    library = ctypes.CDLL(None, use_errno=True)
    this_thread, any_cpu, no_group, no_flags = map(ctypes.c_long, (0, -1, -1, 0))
    found = library.syscall(
        ctypes.c_long(_SYSCALL[machine]), attributes, this_thread, any_cpu, no_group, no_flags
    )
    if found < 0:
        raise UnavailableError(
            f"this machine counts no instructions (perf_event_open: "
            f"{os.strerror(ctypes.get_errno())}): virtual machines often hide the counters, and "
            "/proc/sys/kernel/perf_event_paranoid has to be 2 or less"
        )
    return int(found)
