"""The record of an environment, put together from its parts."""

import os
import re
from dataclasses import dataclass
from typing import Annotated

from ftax.errors import InvalidArgumentError
from ftax.machines.condition import Condition, collect_condition
from ftax.machines.gpu import GpuFacts, collect_gpu
from ftax.machines.host import HostFacts, collect_host
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
