"""Energy, utilisation and memory of each runtime, and for each that could not be had, why.

Memory comes last, for all runtimes: emptying torch's cache for it would make whatever runs next
allocate anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar

import torch

from ftax import _core
from ftax.errors import FtaxError, InvalidArgumentError, UnavailableError, attempt, describe
from ftax.instruments.energy import Energy, IdlePower, measure_energy, measure_idle_power
from ftax.instruments.utilisation import Utilisation, watch_utilisation
from ftax.machines.nvml import NvmlGpu, check_device, open_gpu
from ftax.records.record import Count, Name, Record
from ftax.timing.candidate import Candidate, Placed


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


_T = TypeVar("_T")
_UNREAD = UnavailableError("interrupted before memory was read")


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReadings(Placed, Record):
    """What one runtime does to the GPU. ``missing`` has the reason for every None, by name."""

    runtime: Name
    host: Literal["python", "cpp"]
    energy: Energy | None
    utilisation: Utilisation | None
    memory: PeakMemory | None
    missing: Mapping[str, str]

    def check(self) -> None:
        """Raise InvalidArgumentError unless exactly what is missing has a reason."""
        absent = {
            name for name in ("energy", "utilisation", "memory") if getattr(self, name) is None
        }
        if absent != set(self.missing):
            raise InvalidArgumentError(
                f"GpuReadings.missing names {sorted(self.missing)}, but {sorted(absent)} are None; "
                "each None has to have its reason there"
            )


def collect_gpu_readings(
    prepared: Sequence[Candidate], *, device: str, nvml: Any = None
) -> Iterator[GpuReadings]:
    """Read each of ``prepared`` in turn: 2 to 15 s of waiting first, then about 5 s for each.

    For after the rounds. Readings come once without memory, and once more with it after the last
    of them. One that cannot be had is None with its reason. Raises UnavailableError only if torch
    sees no such device.
    """
    check_device(device)
    with ExitStack() as stack:
        gpu = attempt(lambda: stack.enter_context(open_gpu(device, nvml=nvml)))
        idle = attempt(lambda: _measure_idle(_require(gpu), device))

        def count(runner: _core.Runner) -> dict[str, Any]:
            return {
                "energy": attempt(
                    lambda: measure_energy(runner, gpu=_require(gpu), idle=_require(idle))
                ),
                "utilisation": attempt(lambda: watch_utilisation(runner, gpu=_require(gpu))[0]),
            }

        counted = []
        for item in prepared:
            counted.append(count(item.runner))
            yield _make_readings(item, {**counted[-1], "memory": _UNREAD})
    for item, found in zip(prepared, counted, strict=True):
        memory = attempt(partial(measure_peak_memory, item.runner.run_once, device=device))
        yield _make_readings(item, {**found, "memory": memory})


def _measure_idle(gpu: NvmlGpu, device: str) -> IdlePower:
    torch.cuda.synchronize(device)
    return measure_idle_power(gpu)


def _require(value: _T | FtaxError) -> _T:
    """A value that an earlier attempt gave; its error, raised anew, if it gave none."""
    if isinstance(value, FtaxError):
        raise UnavailableError(str(value))
    return value


def _make_readings(item: Candidate, found: Mapping[str, Any]) -> GpuReadings:
    """With the error of each reading that has one as its reason."""
    missing = {
        name: describe(value) for name, value in found.items() if isinstance(value, FtaxError)
    }
    fields = {name: None if name in missing else value for name, value in found.items()}
    return GpuReadings(runtime=item.runtime, host=item.host, missing=missing, **fields)
