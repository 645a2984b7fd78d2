"""Tensors that a call makes and leaves in Python: an attribute that each forward pass sets anew,
the output that a hook puts into a dictionary. A replay puts its own there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True, eq=False)
class KeptTensor:
    """A key of a dictionary, such as that of an object's attributes. ``name``: in words."""

    space: dict[Any, Any]
    key: Any
    name: str

    def read(self) -> Any:
        """What is there now."""
        return self.space.get(self.key)

    def write(self, tensor: torch.Tensor) -> None:
        """Leave a tensor there; of an object, no ``__setattr__`` is asked."""
        self.space[self.key] = tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Unguarded:
    """What a call may find changed: attributes and variables of these names, and tensors that each
    call leaves anew."""

    names: frozenset[str] = frozenset()
    places: tuple[KeptTensor, ...] = ()

    def has(self, space: dict[Any, Any], key: Any) -> bool:
        """Whether a key of a dictionary is among them."""
        if key in self.names:
            return True
        return any(item.space is space and item.key == key for item in self.places)

    def choose(self, space: dict[Any, Any], keys: Iterable[Any]) -> list[Any]:
        """Those of ``keys`` that are not among them."""
        if not self.names and not self.places:
            return list(keys)
        return [key for key in keys if not self.has(space, key)]


NOTHING_UNGUARDED = Unguarded()
