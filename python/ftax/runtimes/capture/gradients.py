"""What a call does to `.grad` of the weights, which a replay has to do too.

The surprising choice: it is found by trying. A gradient is put there before a run, which the call
writes into, replaces, or takes away; and a run as the call finds them shows which ones it makes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import nn

_OWN_REFERENCES = 3  # to a tensor: `handed`, a name here, the argument that asks


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradients:
    """Leaves by what becomes of their gradients.

    Attributes:
        added: the call writes into what it finds, so whether there is one decides what it does.
        made: after the call there is one that the call made.
        dropped: after the call there is none.
        handed: those that were left behind last, by place in ``made``.
    """

    added: tuple[torch.Tensor, ...]
    made: tuple[torch.Tensor, ...]
    dropped: tuple[torch.Tensor, ...]
    handed: dict[int, torch.Tensor] = field(default_factory=dict, repr=False)

    @property
    def own(self) -> set[int]:
        """Leaves whose gradients are the call's, whatever there was before."""
        replaced = {id(leaf) for leaf in (*self.made, *self.dropped)}
        return replaced - {id(leaf) for leaf in self.added}

    def collect(self) -> list[torch.Tensor]:
        """Those that the call just made."""
        return [grad for leaf in self.made if (grad := leaf.grad) is not None]

    def hand_out(self, grads: Iterable[torch.Tensor]) -> None:
        """Leave behind what eager would: these, of the leaves in ``made``.

        Where the call adds to gradients, they are put where the ones before were, if nobody else
        holds those: what was recorded to add to them does so by their address.
        """
        for place, (leaf, grad) in enumerate(zip(self.made, grads, strict=True)):
            leaf.grad = self._put_in_place(place, grad) if self.added else grad
        for leaf in self.dropped:
            leaf.grad = None

    def _put_in_place(self, place: int, grad: torch.Tensor) -> torch.Tensor:
        before = self.handed.get(place)
        is_free = before is not None and sys.getrefcount(before) <= _OWN_REFERENCES
        if before is not None and is_free and before is not grad and before.shape == grad.shape:
            with torch.no_grad():
                return before.copy_(grad)
        self.handed[place] = grad
        return grad


def find_gradients(run: Callable[[], object], leaves: Iterable[torch.Tensor]) -> Gradients:
    """Tell by one run of ``run``, which is to change nothing else for good."""
    # That of a frozen weight can still be dropped.
    found = [
        leaf
        for leaf in leaves
        if leaf.is_leaf and (leaf.requires_grad or isinstance(leaf, nn.Parameter))
        if leaf.is_floating_point() or leaf.is_complex()
    ]
    if not found:
        return Gradients(added=(), made=(), dropped=())
    with keep_gradients(found):
        before = [leaf.grad for leaf in found]
        run()
        made = [
            leaf.grad is not None and leaf.grad is not grad
            for leaf, grad in zip(found, before, strict=True)
        ]
        planted = [torch.zeros_like(leaf) for leaf in found]
        for leaf, grad in zip(found, planted, strict=True):
            leaf.grad = grad
        run()
        gone = [leaf.grad is None for leaf in found]
        # Also one that is gone: a pass added to it before it was dropped.
        written = [bool(grad._version) for grad in planted]

    def choose(which: Iterable[bool]) -> tuple[torch.Tensor, ...]:
        return tuple(leaf for leaf, is_it in zip(found, which, strict=True) if is_it)

    return Gradients(added=choose(written), made=choose(made), dropped=choose(gone))


@contextmanager
def keep_gradients(leaves: Iterable[torch.Tensor]) -> Iterator[None]:
    """Gradients are afterwards the tensors that they were."""
    before = [(leaf, leaf.grad) for leaf in leaves]
    try:
        yield
    finally:
        for leaf, grad in before:
            leaf.grad = grad
