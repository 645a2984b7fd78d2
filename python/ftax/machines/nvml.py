"""Asks NVML about one GPU: the one that torch knows by a device name.

NVML counts the devices of the machine while torch counts those that CUDA_VISIBLE_DEVICES leaves, so
the device is found by the UUID that both know, never by its number. A question that this GPU, this
driver or this user may not ask is answered None instead of failing, because there is hardly a
reading that every machine gives.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch

from ftax.errors import UnavailableError


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlGpu:
    """One GPU, open for questions. ``nvml`` is pynvml, or whatever answers like it."""

    nvml: Any
    handle: Any
    device: str  # what torch calls it

    def ask(self, question: str, *arguments: object) -> Any:
        """The answer of NVML's function ``question`` about this GPU; None if it is refused.

        Raises UnavailableError if NVML fails in any other way.
        """
        nvml = self.nvml
        try:
            return getattr(nvml, question)(self.handle, *arguments)
        except (
            nvml.NVMLError_NotSupported,
            nvml.NVMLError_NoPermission,
            nvml.NVMLError_FunctionNotFound,
        ):
            return None
        except nvml.NVMLError as error:
            raise UnavailableError(self._describe(question, error)) from error

    def require(self, question: str, *arguments: object) -> Any:
        """The answer, where there is no going on without one.

        Raises UnavailableError naming the question and NVML's reason, also if it is refused.
        """
        try:
            return getattr(self.nvml, question)(self.handle, *arguments)
        except self.nvml.NVMLError as error:
            raise UnavailableError(self._describe(question, error)) from error

    def _describe(self, question: str, error: Exception) -> str:
        return (
            f"not available here: {question} of {self.device!r} fails with {str(error)!r}; the "
            "GPU, its driver, a virtual machine or missing rights can be the cause: compare with "
            "nvidia-smi"
        )


def check_device(device: str) -> None:
    """Raise UnavailableError if torch sees no device of this name."""
    index = torch.device(device).index
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count == 0 or (index is not None and index >= count):
        raise UnavailableError(
            f"device is {device!r} but torch sees {count} CUDA devices; choose another device, or "
            "install a torch with CUDA and a driver"
        )


def find_nvml() -> ModuleType | None:
    """NVML's Python package, None where it is not installed."""
    try:
        import pynvml
    except ImportError:
        return None
    return pynvml  # type: ignore[no-any-return]  # the package has no annotations


@contextmanager
def open_gpu(device: str, *, nvml: Any = None) -> Iterator[NvmlGpu]:
    """Start NVML and find the GPU that torch calls ``device``; NVML is shut down at the end.

    ``nvml`` stands in for pynvml.

    Raises:
        UnavailableError: torch sees no such device, the Python package is missing, or NVML does
            not start or does not find the device.
    """
    check_device(device)
    nvml = find_nvml() if nvml is None else nvml
    if nvml is None:
        raise UnavailableError(
            "not available here: NVML's Python package is missing; pip install nvidia-ml-py"
        )
    with ExitStack() as stack:
        try:
            nvml.nvmlInit()
            stack.callback(_shut_down, nvml)
            uuid = torch.cuda.get_device_properties(device).uuid
            handle = nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
        except nvml.NVMLError as error:
            raise UnavailableError(
                f"NVML cannot describe {device!r}: {error}; check that nvidia-smi works here"
            ) from error
        yield NvmlGpu(nvml=nvml, handle=handle, device=device)


def _shut_down(nvml: Any) -> None:
    with suppress(nvml.NVMLError):  # a GPU that was lost meanwhile has been reported already
        nvml.nvmlShutdown()
