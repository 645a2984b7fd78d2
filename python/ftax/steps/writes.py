"""Finds the memory that operator calls write into, and keeps what it held before.

What is kept is whole storages. A write is one of memory, whatever view of it is written through,
and memory that a call has made itself is nobody's state.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from ftax import _core
from ftax.steps.echoes import PlainMode
from ftax.steps.random_states import list_own_generators
from ftax.steps.setting import GradMode, read_grad_mode
from ftax.steps.tensors import copy_into, list_dense, same_bytes

MOST_KEPT_BYTES = 1 << 28  # of weights that may be written after the calls that are watched
_UNDECLARED = _core.list_undeclared_writes()


def list_written(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
    """Tensors that this operator call writes into: those of which its schema says so, and what a
    few operators write without saying so."""
    schema = func._schema
    flag, names = _UNDECLARED.get(schema.name, ("", ()))
    if not (schema.is_mutable or names):
        return []
    given = {
        argument.name: args[place] if place < len(args) else kwargs.get(argument.name)
        for place, argument in enumerate(schema.arguments)
    }
    declared = [
        argument.name
        for argument in schema.arguments
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    undeclared = names if not flag or given[flag] else ()
    return [tensor for name in (*declared, *undeclared) for tensor in list_tensors(given[name])]


class Made(NamedTuple):
    """Memory that a call has made, and how many bytes it is."""

    memory: StorageWeakRef
    size: int


# A tensor that was given another size, how it lay before, and what its memory held then.
_Resized = tuple[torch.Tensor, "_Layout", tuple[torch.Tensor, torch.Tensor] | None]


class Writes(PlainMode):
    """Keeps what memory held before an operator call first wrote into it, unless a call made it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.grad_modes: set[GradMode | None] = set()  # None: autograd is on and records nothing
        self._made: dict[int, Made] = {}  # so held, an address is not used again
        self._kept: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._suspected: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._layouts: dict[int, tuple[torch.Tensor, _Layout]] = {}  # before the first write
        self._resized: dict[int, _Resized] = {}
        self._generators: dict[int, tuple[torch.Generator, torch.Tensor]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self.grad_modes.add(_find_grad_mode((*args, *kwargs.values())))
        for tensor in list_written(func, args, kwargs):
            self.keep(tensor)
        for value in (*args, *kwargs.values()):
            if isinstance(value, torch.Generator):
                self.keep_generator(value)
        given = {
            key for item in list_tensors((*args, *kwargs.values())) for key in list_storages(item)
        }
        result = func(*args, **kwargs)
        if func is torch.ops.aten.lift_fresh.default:
            given.clear()  # torch.tensor has just made it
        for tensor in list_tensors(result):
            for part in list_dense(tensor):
                storage = part.untyped_storage()
                known = (given, self._kept, self._made)
                if all(storage._cdata not in places for places in known):
                    self._made[storage._cdata] = Made(StorageWeakRef(storage), storage.nbytes())
        return result

    def take_made(self) -> list[Made]:
        """What was made since the last call of this: it is not of the next call's making."""
        made = list(self._made.values())
        self._made.clear()
        return made

    def keep_generator(self, generator: torch.Generator) -> None:
        """Note the state of one that no check seeds: of the user's."""
        seeded = (torch.default_generator, *torch.cuda.default_generators, *list_own_generators())
        if all(generator is not one for one in seeded):
            self._generators.setdefault(id(generator), (generator, generator.get_state()))

    def list_generators(self) -> list[tuple[torch.Generator, torch.Tensor]]:
        """Those that were drawn from, with their states before."""
        return list(self._generators.values())

    def keep(self, tensor: torch.Tensor) -> None:
        """Copy the memory of ``tensor``, unless it is known, and note its layout."""
        keys = list_storages(tensor)
        if not keys or any(key in self._made for key in keys):
            return
        layout = _Layout.of(tensor)
        if layout is not None:
            self._layouts.setdefault(id(tensor), (tensor, layout))
        place = keys[0] if layout is not None else id(tensor)
        if place not in self._kept:
            known = self._suspected.pop(place) if place in self._suspected else None
            self._kept[place] = known or _copy_memory(tensor)

    def settle_layouts(self) -> None:
        """Keep anew what a call has given another size, as it is now: that is the first call's
        making, and `undo` alone takes it back."""
        for tensor, layout in self._layouts.values():
            if _Layout.of(tensor) == layout:
                continue
            place = tensor.untyped_storage()._cdata
            self._resized.setdefault(id(tensor), (tensor, layout, self._kept.pop(place, None)))
            self._kept[place] = _copy_memory(tensor)
        self._layouts.clear()

    def suspect(self, tensor: torch.Tensor) -> None:
        """Copy what may be written by no operator call (through numpy, or by an extension) or by a
        later one. The copy is on the host: a GPU's memory is measured."""
        place = find_storage(tensor)
        known = (self._kept, self._made, self._suspected)
        if place is not None and all(place not in places for places in known):
            memory = _find_whole_memory(tensor)
            self._suspected[place] = memory, memory.to("cpu", copy=True)

    def list_memory(self) -> list[torch.Tensor]:
        """All that was written."""
        for place, (memory, before) in list(self._suspected.items()):
            if not same_bytes(memory, before):
                self._kept[place] = self._suspected.pop(place)
        return [memory for memory, _ in self._kept.values()]

    def put_back(self) -> None:
        """Have all of it hold what it held."""
        for memory, before in self._kept.values():
            copy_into([memory], [before])
        for generator, state in self._generators.values():
            generator.set_state(state)

    def undo(self) -> None:
        """`put_back`, and the sizes that tensors had."""
        self.settle_layouts()
        self.put_back()
        for tensor, layout, kept in self._resized.values():
            layout.give(tensor)
            if kept is not None:
                copy_into([kept[0]], [kept[1]])


class _Layout(NamedTuple):
    """Where the elements of a tensor lie, and how large their storage is."""

    size: torch.Size
    stride: tuple[int, ...]
    offset: int
    bytes: int

    @classmethod
    def of(cls, tensor: torch.Tensor) -> _Layout | None:
        """None for tensors without strides."""
        if tensor.layout != torch.strided or tensor.is_nested:
            return None
        storage = tensor.untyped_storage()
        offset = int(tensor.storage_offset())
        return cls(tensor.size(), tensor.stride(), offset, storage.nbytes())

    def give(self, tensor: torch.Tensor) -> None:
        """Have ``tensor`` lie so again."""
        with torch.inference_mode():
            tensor.untyped_storage().resize_(self.bytes)
            tensor.as_strided_(self.size, self.stride, self.offset)


def count_kept(made: Sequence[Sequence[Made]], held: Set[int | None]) -> int:
    """Bytes that live on of what a call has made, if that is so of each of these calls. ``held``:
    memory of modules that were seen, which live on because they were."""
    met = Counter(item.memory.cdata for call in made for item in call)
    own = [
        [item for item in call if met[item.memory.cdata] == 1 and item.memory.cdata not in held]
        for call in made
    ]

    def count() -> int:
        return min(sum(item.size for item in c if not item.memory.expired()) for c in own)

    if count():
        gc.collect()  # a cycle is no growth
    return count()


def _find_grad_mode(given: Sequence[Any]) -> GradMode | None:
    """That of an operator call; None where autograd is on and has nothing to record."""
    if not torch.is_grad_enabled():
        return read_grad_mode()
    return "grad" if any(item.requires_grad for item in list_tensors(given)) else None


def list_tensors(value: Any) -> Iterator[torch.Tensor]:
    """Among the arguments or results of an operator call."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from list_tensors(item)


def count_bytes(tensor: torch.Tensor) -> int:
    """Of the memory that it is in; 0 for tensors that have none of their own."""
    return 0 if find_storage(tensor) is None else tensor.untyped_storage().nbytes()


def list_storages(tensor: torch.Tensor) -> list[int]:
    """What tells the memory of a tensor from other memory; of a sparse one several."""
    return [part.untyped_storage()._cdata for part in list_dense(tensor)]


def find_storage(tensor: torch.Tensor) -> int | None:
    """What tells its memory from other memory; None for tensors that have none of their own."""
    if tensor.layout != torch.strided or tensor.is_nested or tensor.is_meta:
        return None
    found: int = tensor.untyped_storage()._cdata
    return found


def _copy_memory(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    with torch.no_grad():
        memory = _find_whole_memory(tensor) if tensor.layout == torch.strided else tensor
        return memory, memory.clone()


def _find_whole_memory(tensor: torch.Tensor) -> torch.Tensor:
    """All of the memory that ``tensor`` is in, under its own shape where it is all of that."""
    plain = tensor.detach()
    count = tensor.untyped_storage().nbytes() // tensor.element_size()
    if plain.numel() == count and torch.ops.aten.is_non_overlapping_and_dense(plain):
        return plain
    return plain.as_strided((count,), (1,), 0)
