"""Energy, utilisation and memory of each runtime, and for each that could not be had, why.

Memory comes last, for all runtimes: emptying torch's cache for it would make whatever runs next
allocate anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import torch

from ftax.errors import FtaxError, InvalidArgumentError, UnavailableError
from ftax.instruments.energy import Energy, IdlePower, measure_energy, measure_idle_power
from ftax.instruments.memory import PeakMemory, measure_peak_memory
from ftax.instruments.utilisation import Utilisation, measure_utilisation
from ftax.machines.nvml import NvmlGpu, check_device, open_gpu
from ftax.records.record import Name, Record
from ftax.timing.candidate import Candidate, Placed
from ftax.timing.session import Mode

_T = TypeVar("_T")


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
    prepared: Sequence[Candidate],
    *,
    device: str,
    mode: Mode = "latency",
    energy_s: float = 2.5,
    utilisation_s: float = 1.0,
    nvml: Any = None,
) -> tuple[GpuReadings, ...]:
    """Read each of ``prepared`` in turn: 2 to 15 s of waiting first, then about 5 s for each.

    For after the rounds. A reading that cannot be had is None with its reason. Raises
    UnavailableError only if torch sees no such device.
    """
    check_device(device)
    with ExitStack() as stack:
        gpu = _attempt(lambda: stack.enter_context(open_gpu(device, nvml=nvml)))
        idle = _attempt(lambda: _measure_idle(_require(gpu), device))

        def count(item: Candidate) -> tuple[Energy | Exception, Utilisation | Exception]:
            energy = _attempt(
                lambda: measure_energy(
                    item.runner, gpu=_require(gpu), idle=_require(idle), mode=mode, seconds=energy_s
                )
            )
            utilisation = _attempt(
                lambda: measure_utilisation(
                    item.runner, gpu=_require(gpu), mode=mode, seconds=utilisation_s
                )
            )
            return energy, utilisation

        counted = [count(item) for item in prepared]
    return tuple(
        _make_readings(item, energy, utilisation, _measure_memory(item, device))
        for item, (energy, utilisation) in zip(prepared, counted, strict=True)
    )


def _measure_idle(gpu: NvmlGpu, device: str) -> IdlePower:
    torch.cuda.synchronize(device)
    return measure_idle_power(gpu)


def _measure_memory(item: Candidate, device: str) -> PeakMemory | Exception:
    return _attempt(lambda: measure_peak_memory(item.runner.run_once, device=device))


def _attempt(measure: Callable[[], _T]) -> _T | Exception:
    """What ``measure`` returns, or the error that it raised: of ours, or of torch."""
    try:
        return measure()
    except (FtaxError, RuntimeError) as error:
        return error


def _require(value: _T | Exception) -> _T:
    """A value that an earlier attempt gave; its error, raised anew, if it gave none."""
    if isinstance(value, Exception):
        raise UnavailableError(str(value))
    return value


def _make_readings(
    item: Candidate,
    energy: Energy | Exception,
    utilisation: Utilisation | Exception,
    memory: PeakMemory | Exception,
) -> GpuReadings:
    found = {"energy": energy, "utilisation": utilisation, "memory": memory}
    return GpuReadings(
        runtime=item.runtime,
        host=item.host,
        energy=None if isinstance(energy, Exception) else energy,
        utilisation=None if isinstance(utilisation, Exception) else utilisation,
        memory=None if isinstance(memory, Exception) else memory,
        missing={
            name: " ".join(str(value).split())
            for name, value in found.items()
            if isinstance(value, Exception)
        },
    )
