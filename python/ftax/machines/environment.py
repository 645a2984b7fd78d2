"""The record of an environment, put together from its parts, and what of it could disturb."""

import os
import re
from dataclasses import dataclass
from typing import Annotated

from ftax.errors import InvalidArgumentError
from ftax.machines.gpu import GpuFacts, collect_gpu
from ftax.machines.host import Condition, HostFacts, collect_condition, collect_host
from ftax.machines.settings import Settings, collect_settings
from ftax.machines.software import SoftwareFacts, SourceFacts, collect_software, collect_source
from ftax.records.fields import Rule
from ftax.records.record import Record

_DEVICE = re.compile(r"cpu|cuda(:\d+)?")
Device = Annotated[
    str,
    Rule("'cpu', 'cuda' or 'cuda:<number>'", lambda text: _DEVICE.fullmatch(text) is not None),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment(Record):
    """Where and with what a measurement was made."""

    device: Device
    machine: str = ""  # what the user calls it, by FTAX_MACHINE; a host's name is nobody's business
    host: HostFacts
    software: SoftwareFacts
    settings: Settings
    source: SourceFacts
    gpu: GpuFacts | None  # None on a CPU device, and where NVML's Python package is missing
    condition: Condition


def collect_environment(*, device: str = "cpu") -> Environment:
    """Read the machine, the versions and the switches that hold now, in this thread.

    What cannot change is read once in a process, so that the second call is cheap.

    Raises:
        InvalidArgumentError: `device` is none of "cpu", "cuda", "cuda:<number>".
        UnavailableError: torch sees no such device.
    """
    if _DEVICE.fullmatch(device) is None:
        raise InvalidArgumentError(f"device is {device!r}; it has to be 'cpu', 'cuda' or 'cuda:0'")
    on_cuda = device != "cpu"
    return Environment(
        device=device,
        machine=os.environ.get("FTAX_MACHINE", ""),
        gpu=collect_gpu(device) if on_cuda else None,
        host=collect_host(),
        software=collect_software(with_cudnn=on_cuda),
        settings=collect_settings(),
        source=collect_source(),
        condition=collect_condition(),
    )


def find_concerns(environment: Environment) -> list[str]:
    """What could disturb a measurement here, in sentences with a remedy; none on a quiet, bare
    machine."""
    host = environment.host
    concerns = []
    if host.virtualised:
        name = host.hypervisor or "an unknown hypervisor"
        concerns.append(
            f"this is a virtual machine ({name}): floors are higher than on bare metal, and others "
            "may take CPU time (steal is recorded with each round)"
        )
    if host.governor and set(host.governor.split("+")) - {"performance"}:
        concerns.append(
            f"the frequency governor is {host.governor}: `cpupower frequency-set -g performance` "
            "makes latencies steadier"
        )
    if host.smt:
        concerns.append(
            "cores run two threads each: pin to one thread a core with --cpus for steadier numbers"
        )
    load = environment.condition.load_average[0]
    if load > 0.5 * host.usable_cpus:
        concerns.append(
            f"the load average is {load:.1f} on {host.usable_cpus} CPUs: something else is running"
        )
    if environment.settings.num_threads > host.usable_cpus:
        concerns.append(
            f"torch uses {environment.settings.num_threads} threads on {host.usable_cpus} usable "
            "CPUs: set OMP_NUM_THREADS or --threads"
        )
    return concerns
