"""Facts of results that compare: bits of tensors, and types of all else."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch


def describe(value: Any) -> Any:
    """Something that compares: bits of tensors, and types of all else."""
    if isinstance(value, torch.Tensor):
        return describe_tensor(value)
    if isinstance(value, np.ndarray):
        return value.tobytes()
    if isinstance(value, dict):
        return type(value).__name__, [(describe(k), describe(v)) for k, v in value.items()]
    if isinstance(value, list | tuple):
        return type(value).__name__, [describe(item) for item in value]
    if dataclasses.is_dataclass(value):
        return type(value).__name__, describe(vars(value))
    if value is None or isinstance(value, bool | int | float | str | complex):
        return type(value).__name__, repr(value)
    return type(value).__name__


def describe_tensor(tensor: torch.Tensor) -> Any:
    facts: list[Any] = [tensor.dtype, tuple(tensor.shape), tensor.device.type, tensor.layout]
    if tensor.is_meta:
        return facts
    tensor = tensor.detach()
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    else:
        facts += [tensor.stride(), tensor.is_conj(), tensor.is_neg()]
    if tensor.is_quantized:
        tensor = tensor.int_repr()
    if type(tensor) is not torch.Tensor:
        tensor = tensor.as_subclass(torch.Tensor)
    tensor = tensor.resolve_conj().resolve_neg().contiguous().clone()
    return [*facts, bytes(tensor.reshape(-1).view(torch.uint8).tolist())]
