"""A module seen as a function from tensors to tensors, which is all that exporters understand."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from ftax.steps.input_trees import is_data, map_leaves
from ftax.steps.loaded import LoadedModel
from ftax.steps.outputs import flatten_outputs


class Flattened(nn.Module):
    """``forward(*tensors)`` around any model and its nested arguments; gives a tuple of tensors, or
    the one that the model returns by itself, since to make a tuple of it takes time in a call."""

    def __init__(self, loaded: LoadedModel) -> None:
        super().__init__()
        self.module = loaded.module
        tree = (loaded.args, dict(loaded.kwargs))
        leaves, self._structure = pytree.tree_flatten(tree)
        self._objects = tree if any(map(is_data, leaves)) else None
        self._leaves: list[Any] = [
            None if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves
        ]
        self._places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        self.eval()

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """Put the tensors back where they came from, and call the model."""
        args, kwargs = self._put(tensors)
        output = self.module(*args, **kwargs)
        return output if isinstance(output, torch.Tensor) else tuple(flatten_outputs(output))

    def _put(self, tensors: tuple[torch.Tensor, ...]) -> Any:
        if self._objects is not None:
            rest = iter(tensors)
            is_tensor = torch.is_tensor
            return map_leaves(
                lambda _, leaf: next(rest) if is_tensor(leaf) else leaf, self._objects
            )
        leaves = list(self._leaves)
        for place, tensor in zip(self._places, tensors, strict=True):
            leaves[place] = tensor
        return pytree.tree_unflatten(leaves, self._structure)
