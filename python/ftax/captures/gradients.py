"""What a call does to `.grad` of the weights, which a replay has to do too.

It is found by trying. A gradient is put there before a run, which the call reads, writes into,
replaces, or takes away; and a run as the call finds them shows which ones it makes.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from ftax import _core
from ftax.steps.echoes import PlainMode
from ftax.steps.writes import Writes, find_storage, list_tensors

_OWN_REFERENCES = 3  # to a tensor: the attribute, a name, the argument that asks


@dataclass(slots=True)
class _Handed:
    """A gradient that was left behind, and how often recordings hold its memory."""

    grad: torch.Tensor
    holds: int = 0

    def is_free(self) -> bool:
        """Whether nobody has it but its leaf: not the tensor, nor by another its memory."""
        grad = self.grad
        is_held = sys.getrefcount(grad) > _OWN_REFERENCES
        return not is_held and _core.count_holders(grad) <= 1 + self.holds


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradients:
    """Leaves by what becomes of their gradients.

    Attributes:
        added: the call writes into what it finds, so whether there is one decides what it does.
        made: after the call there is one that the call made.
        dropped: after the call there is none.
        read: the call gives the one before to another leaf; or, of those in ``made``, it reads the
            one before, or does other work where there is none.
        handed: those that were left behind last, by place in ``made``.
    """

    added: tuple[torch.Tensor, ...]
    made: tuple[torch.Tensor, ...]
    dropped: tuple[torch.Tensor, ...]
    read: tuple[torch.Tensor, ...] = ()
    handed: dict[int, _Handed] = field(default_factory=dict, repr=False)

    @property
    def has_any(self) -> bool:
        """Whether the call does anything to gradients."""
        return bool(self.added or self.made or self.dropped)

    @property
    def own(self) -> set[int]:
        """Leaves whose gradients are the call's, whatever there was before."""
        return set(map(id, self.made)) - set(map(id, self.added))

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

    def list_handed(self) -> list[torch.Tensor | None]:
        """The gradients of leaves in ``made`` as they are now."""
        return [leaf.grad for leaf in self.made]

    def put_into(self, handed: Sequence[torch.Tensor | None]) -> None:
        """Have leaves in ``made`` keep their gradients in these, as a replay left them: recordings
        know them by their memory."""
        with torch.no_grad():
            for leaf, grad in zip(self.made, handed, strict=True):
                if grad is not None and leaf.grad is not None and leaf.grad is not grad:
                    leaf.grad = grad.copy_(leaf.grad)

    def _put_in_place(self, place: int, grad: torch.Tensor) -> torch.Tensor:
        before = self.handed.get(place)
        if before is not None and before.grad is grad:
            return grad
        if before is not None and before.grad.shape == grad.shape and before.is_free():
            with torch.no_grad():
                return before.grad.copy_(grad)
        self.handed[place] = _Handed(grad)
        return grad


@contextmanager
def note_holders(programs: Iterable[Gradients]) -> Iterator[None]:
    """What is recorded or dropped inside may hold the memory of gradients that were handed out."""
    handed = [item for gradients in programs for item in gradients.handed.values()]
    before = [_core.count_holders(item.grad) for item in handed]
    try:
        yield
    finally:
        if handed:
            gc.collect()  # cycles of what recorded hold it too
        for item, count in zip(handed, before, strict=True):
            item.holds += _core.count_holders(item.grad) - count


def find_gradients(
    run: Callable[[AbstractContextManager[Any]], object], leaves: Iterable[torch.Tensor]
) -> Gradients:
    """Tell by some runs of ``run``, each of which is to change nothing else for good, and to have
    the call inside of the mode that it is given."""
    leaves = [leaf for leaf in leaves if can_hold_gradient(leaf)]
    if not leaves:
        return Gradients(added=(), made=(), dropped=())
    with keep_gradients(leaves):
        earlier = [leaf.grad for leaf in leaves]
        plain = _Touches(())
        run(plain)
        pairs = zip(leaves, earlier, strict=True)
        found = [leaf for leaf, grad in pairs if is_weight(leaf) or leaf.grad is not grad]
        known = {id(leaf): grad for leaf, grad in zip(leaves, earlier, strict=True)}
        before = [known[id(leaf)] for leaf in found]
        made = [
            leaf.grad is not None and leaf.grad is not grad
            for leaf, grad in zip(found, before, strict=True)
        ]
        for leaf, grad in zip(leaves, earlier, strict=True):
            leaf.grad = grad
        planted = _plant(found)
        with _undone_writes():
            run(nullcontext())
        gone = [leaf.grad is None for leaf in found]
        own = {id(grad): leaf for leaf, grad in zip(found, planted, strict=True)}
        moved = [own.get(id(leaf.grad), leaf) is not leaf for leaf in found]
        # Also one that is gone: a pass added to it before it was dropped.
        written = [bool(grad._version) for grad in planted]
        for leaf, grad in zip(found, before, strict=True):
            leaf.grad = grad
        replaced = [leaf for leaf, is_made in zip(found, made, strict=True) if is_made]
        planted = _plant(replaced)
        touches = _Touches(planted)
        with _undone_writes():
            run(touches)
    touched = {
        id(leaf)
        for leaf, grad in zip(replaced, planted, strict=True)
        if find_storage(grad) in touches.found
    }
    # Others had in both runs what they had: weights of another function of the same code, say.
    had_none = all(grad is None for grad, is_made in zip(before, made, strict=True) if is_made)
    if not any(written) and had_none and plain.names != touches.names:
        touched = set(map(id, replaced))
    read = [
        is_moved if is_written or is_moved else id(leaf) in touched
        for leaf, is_moved, is_written in zip(found, moved, written, strict=True)
    ]

    def choose(which: Iterable[bool]) -> tuple[torch.Tensor, ...]:
        return tuple(leaf for leaf, is_it in zip(found, which, strict=True) if is_it)

    return Gradients(
        added=choose(written),
        made=choose(made),
        dropped=choose(gone),
        read=choose(read),
    )


def can_hold_gradient(tensor: torch.Tensor) -> bool:
    """Whether torch takes an assignment to its ``.grad``; a frozen weight keeps the one it has."""
    return tensor.is_leaf and (tensor.is_floating_point() or tensor.is_complex())


def is_weight(tensor: torch.Tensor) -> bool:
    """Whether a call may use its gradient: of a weight, frozen or not, and of what has one."""
    return tensor.requires_grad or isinstance(tensor, nn.Parameter) or tensor.grad is not None


@contextmanager
def _undone_writes() -> Iterator[None]:
    """An optimizer moves also weights to which only a planted gradient has led it."""
    writes = Writes()
    try:
        with writes:
            yield
    finally:
        writes.undo()


def _plant(leaves: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    planted = []
    for leaf in leaves:
        leaf.grad = torch.zeros_like(leaf)
        planted.append(leaf.grad)
    return planted


class _Touches(PlainMode):
    """Which operators are called, and which memory they are given."""

    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._looked_for = {find_storage(tensor) for tensor in tensors}
        self.found: set[int | None] = set()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self.names.append(str(func))
        for tensor in list_tensors((*args, *kwargs.values())):
            if (place := find_storage(tensor)) in self._looked_for:
                self.found.add(place)
        return func(*args, **kwargs)


@contextmanager
def keep_gradients(leaves: Iterable[torch.Tensor]) -> Iterator[None]:
    """Gradients are afterwards the tensors that they were."""
    before = [(leaf, leaf.grad) for leaf in leaves]
    try:
        yield
    finally:
        for leaf, grad in before:
            leaf.grad = grad
