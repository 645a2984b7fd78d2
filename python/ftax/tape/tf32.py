"""Whether torch computes fp32 products on this GPU with TF32's 10 bits of mantissa.

The surprising part is torch's: it has two switches whose defaults differ (off for matrix products,
on for convolutions), each under an old and a new name, and reading the old one raises once the new
one was used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def allows_products() -> bool:
    """In matrix products (cuBLAS)."""
    backends: Any = torch.backends  # parts of which torch leaves untyped
    matmul = backends.cuda.matmul
    return _read(lambda: matmul.allow_tf32, lambda: matmul.fp32_precision)


def allows_convolutions() -> bool:
    """In convolutions (cuDNN)."""
    cudnn: Any = torch.backends.cudnn
    return _read(lambda: cudnn.allow_tf32, lambda: cudnn.conv.fp32_precision)


def _read(read_old: Callable[[], bool], read_new: Callable[[], str]) -> bool:
    try:
        return bool(read_old())
    except RuntimeError:
        return read_new() == "tf32"
