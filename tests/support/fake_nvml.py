"""A pretended NVML: one GPU whose answers a test chooses, and that refuses everything else.

It is an object where the real thing is a module, which nobody who asks can tell.
"""

from __future__ import annotations

import types
from typing import Any

import pytest
import torch

from ftax.machines.nvml import NvmlGpu

UUID = "1234-abcd"


class NVMLError(Exception):
    pass


class NotSupportedError(NVMLError):
    pass


class NoPermissionError(NVMLError):
    pass


class FunctionNotFoundError(NVMLError):
    pass


class FakeNvml:
    """``answers`` are values, exceptions to raise, or functions of what is asked."""

    NVMLError = NVMLError
    NVMLError_NotSupported = NotSupportedError
    NVMLError_NoPermission = NoPermissionError
    NVMLError_FunctionNotFound = FunctionNotFoundError
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    def __init__(self, **answers: Any) -> None:
        self.open = 0
        self.asked: list[str] = []
        self.answers = {
            "nvmlDeviceGetName": "Fictional GPU",
            "nvmlDeviceGetMemoryInfo": types.SimpleNamespace(total=2**37),
            **answers,
        }

    def nvmlInit(self):
        self.open += 1

    def nvmlShutdown(self):
        self.open -= 1

    def nvmlSystemGetDriverVersion(self):
        return "999.1"

    def nvmlDeviceGetHandleByUUID(self, uuid):
        if uuid != f"GPU-{UUID}":
            raise NVMLError("Not Found")
        return "handle"

    def __getattr__(self, question):
        if not question.startswith(("nvmlDeviceGet", "nvmlGpm")):
            raise AttributeError(question)

        def answer(*arguments):
            self.asked.append(question)
            found = self.answers.get(question, NotSupportedError("Not Supported"))
            found = found(*arguments) if isinstance(found, types.FunctionType) else found
            if isinstance(found, Exception):
                raise found
            return found

        return answer


def open_fake(**answers: Any) -> NvmlGpu:
    """The one GPU of a `FakeNvml`, found already."""
    return NvmlGpu(nvml=FakeNvml(**answers), handle="handle", device="cuda")


def pretend_cuda(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Make torch see ``count`` devices, each with the UUID that `FakeNvml` knows."""
    properties = types.SimpleNamespace(uuid=UUID)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: properties)


def list_processes(*pids_and_bytes: tuple[int, int | None]) -> list[Any]:
    """A list of processes as NVML gives it."""
    return [types.SimpleNamespace(pid=pid, usedGpuMemory=size) for pid, size in pids_and_bytes]
