"""The switches that change what is measured: of torch, and of the environment variables."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ftax.records.record import Name, PositiveInt, Record

_VARIABLE_PREFIXES = (
    "CUBLAS_",
    "CUDA_",
    "CUDNN_",
    "DNNL_",
    "GOMP_",
    "KMP_",
    "LD_PRELOAD",  # another allocator, perhaps
    "MALLOC_",
    "MKL_",
    "NVIDIA_TF32_OVERRIDE",
    "OMP_",
    "ONEDNN_",
    "ORT_",
    "PYTHONHASHSEED",
    "PYTORCH_",
)
_WITHHELD = "(set; the value holds a path)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(Record):
    """Torch's switches as they were when read, in torch's own words, and the variables."""

    num_threads: PositiveInt  # within an operator
    num_interop_threads: PositiveInt
    default_dtype: Name
    grad_enabled: bool
    inference_mode: bool
    deterministic_algorithms: bool
    # None: torch's old and new switches contradict each other.
    float32_matmul_precision: Name | None
    matmul_fp32_precision: Name  # CUDA: "tf32", "ieee", or "none" (torch's default holds)
    conv_fp32_precision: Name  # cuDNN, likewise
    onednn_matmul_fp32_precision: Name
    cudnn_enabled: bool
    cudnn_benchmark: bool
    cudnn_deterministic: bool
    sdpa_backends: tuple[str, ...]  # that torch may choose from
    variables: Mapping[str, str]  # environment variables that are set


def collect_settings() -> Settings:
    """Read the switches of the calling thread."""
    backends: Any = torch.backends  # parts of which torch leaves untyped
    return Settings(
        num_threads=torch.get_num_threads(),
        num_interop_threads=torch.get_num_interop_threads(),
        default_dtype=str(torch.get_default_dtype()).removeprefix("torch."),
        grad_enabled=torch.is_grad_enabled(),
        inference_mode=torch.is_inference_mode_enabled(),
        deterministic_algorithms=torch.are_deterministic_algorithms_enabled(),
        float32_matmul_precision=_read_float32_matmul_precision(),
        matmul_fp32_precision=_read_precision(
            lambda: backends.cuda.matmul.fp32_precision, lambda: backends.cuda.matmul.allow_tf32
        ),
        conv_fp32_precision=_read_precision(
            lambda: backends.cudnn.conv.fp32_precision, lambda: backends.cudnn.allow_tf32
        ),
        onednn_matmul_fp32_precision=_read_precision(
            lambda: backends.mkldnn.matmul.fp32_precision, lambda: backends.mkldnn.allow_tf32
        ),
        cudnn_enabled=backends.cudnn.enabled,
        cudnn_benchmark=backends.cudnn.benchmark,
        cudnn_deterministic=backends.cudnn.deterministic,
        sdpa_backends=_list_sdpa_backends(),
        variables=_collect_variables(),
    )


def _read_float32_matmul_precision() -> str | None:
    # torch refuses to answer once the same precision was set through both of its interfaces.
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return None


def _read_precision(read: Callable[[], str], read_old: Callable[[], bool]) -> str:
    try:
        return read()
    except AttributeError:  # torch before 2.9, which has the old switches alone
        return "tf32" if read_old() else "ieee"


def _list_sdpa_backends() -> tuple[str, ...]:
    cuda: Any = torch.backends.cuda
    enabled = {
        "cudnn": cuda.cudnn_sdp_enabled(),
        "efficient": cuda.mem_efficient_sdp_enabled(),
        "flash": cuda.flash_sdp_enabled(),
        "math": cuda.math_sdp_enabled(),
    }
    return tuple(name for name, is_on in enabled.items() if is_on)


def _collect_variables() -> dict[str, str]:
    return {
        name: _WITHHELD if "/" in value else value
        for name, value in sorted(os.environ.items())
        if name.startswith(_VARIABLE_PREFIXES)
    }


def list_portable_variables() -> dict[str, str]:
    """The variables among them that mean the same on another machine: no paths, and no choice of
    this machine's GPUs."""
    found = {**_collect_variables()}
    found.pop("CUDA_VISIBLE_DEVICES", None)
    return {name: value for name, value in found.items() if value != _WITHHELD}
