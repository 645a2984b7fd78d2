"""A key-value cache of transformers as it was at one moment, and putting it back.

Nothing is known of its classes but two names, `keys` and `values`. Whatever else a layer holds
(lengths as integers or as tensors, states of a scan) is kept by looking, since what counts the
positions has changed with the library's versions.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn


def name_cache(module: nn.Module) -> str:
    """The argument by which a model takes its keys and values, and the field in which it returns
    them: transformers 5.24 gave it another name. "" for a model without."""
    arguments = inspect.signature(module.forward).parameters
    return next((name for name in ("cache", "past_key_values") if name in arguments), "")


class KeptCache:
    """What `cache` holds now.

    Tensors that a layer replaces are referred to, and copied only where a layer writes into them. A
    static layer that has memory for `length` positions writes behind those that are there now, and
    a mask hides what it wrote: its keys and values are not copied either. That of an encoder with a
    decoder is of two: what its decoder attends to of the encoder is there, and stays.
    """

    def __init__(self, cache: Any, *, length: int) -> None:
        self._containers: list[tuple[dict[Any, Any], dict[Any, Any]]] = []
        self._written: list[tuple[torch.Tensor, torch.Tensor]] = []
        for container in _list_containers(cache):  # which layers are filled from the encoder
            self._containers.append((container, container.copy()))
        decoded = getattr(cache, "self_attention_cache", cache)
        self._keep_layers(decoded, int(decoded.get_seq_length()), length)
        if decoded is not cache:
            filled = int(cache.cross_attention_cache.get_seq_length())
            self._keep_layers(cache.cross_attention_cache, filled, filled)

    def _keep_layers(self, cache: Any, filled: int, length: int) -> None:
        for layer in cache.layers:
            for container in _list_containers(layer):
                self._containers.append((container, container.copy()))
            for tensor in _list_written(layer, filled, length):
                self._written.append((tensor, tensor.clone()))

    def put_back(self) -> None:
        """Make the cache what it was, in the same objects and memory."""
        for container, before in self._containers:
            container.update(before)
        with torch.inference_mode():
            for tensor, values in self._written:
                tensor.copy_(values)


def _list_containers(holder: Any) -> Iterator[dict[Any, Any]]:
    attributes = vars(holder)
    yield attributes
    yield from (value for value in attributes.values() if isinstance(value, dict))


def _list_written(layer: Any, filled: int, length: int) -> Iterator[torch.Tensor]:
    """The tensors, or parts of them, that the layer may write into and that are read again."""
    capacity = getattr(layer, "max_cache_len", None)
    for container in _list_containers(layer):
        for name, tensor in container.items():
            if not isinstance(tensor, torch.Tensor):
                continue
            slides = capacity is not None and capacity < length
            if name not in ("keys", "values") or slides:
                yield tensor
            elif capacity is not None and not hasattr(layer, "cumulative_length"):
                # transformers 5.0 counts the positions that are not zero.
                yield tensor.narrow(-2, filled, capacity - filled)
