"""Watches one run of a step: each operator call with its place, what it allocates, whether Python
reads its result, and whether it copies from one device to another.

The places come from a run under a TorchDispatchMode, which is not the run that is counted: what a
backward pass calls differs a little under a mode. So the names of the calls are those of a run
without one, and places are given to them as far as the two agree.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode

from ftax import _core
from ftax.budgets.counts import Notes
from ftax.budgets.places import Place, Places
from ftax.steps.echoes import Echoes, PlainMode
from ftax.tape.recording import is_tagged_as_sized, operator_name
from ftax.tape.waits import READS

# By which Python reads values without an operator call, on a CPU. An address is no value. What is
# printed or logged is made text by `__repr__`.
_MEMORY_READS = frozenset(("tolist", "numpy", "__array__", "__dlpack__", "__repr__"))
_MAKES_OF_NUMBERS = frozenset(("tensor", "as_tensor", "asarray", "new_tensor"))
_COPIES = ("aten::to", "aten::_to_copy", "aten::copy_")


class PlacedCall(NamedTuple):
    """One operator call; ``copy`` is "cpu to cuda" if it is one between devices."""

    name: str
    place: Place
    allocations: int = 0
    allocated_bytes: int = 0
    is_read: bool = False
    copy: str = ""


class PlacedCalls(PlainMode):
    """Notes calls while it is active; ``module`` tells which module is running."""

    def __init__(self, places: Places, module: Callable[[], str], device: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[PlacedCall] = []
        self._places, self._module, self._device = places, module, device
        self._echoes = Echoes()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        is_echo = self._echoes.has(func, args)
        place = Place() if is_echo else self._places.find(sys._getframe(1), self._module())
        result, allocated = self._run(func, args, kwargs or {})
        if not is_echo:
            self.calls.append(
                PlacedCall(
                    operator_name(func),
                    place,
                    *allocated,
                    is_read=_is_read(func, args),
                    copy=_name_copy(func._schema.name, args, result),
                )
            )
        return self._echoes.keep(func, args, result)

    def pass_on(self, func: Any, args: Any, kwargs: Any) -> Any:
        """As one call."""
        place = self._places.find(sys._getframe(1), self._module())
        result, allocated = self._run(func, args, kwargs)
        self.calls.append(PlacedCall(str(func), place, *allocated))
        return result

    def _run(self, func: Any, args: Any, kwargs: Any) -> tuple[Any, tuple[int, int]]:
        results = []
        allocated = _core.count_allocations(
            lambda: results.append(func(*args, **kwargs)), self._device
        )
        return results[0], allocated


def _is_read(func: Any, args: Sequence[Any]) -> bool:
    """Whether the host reads values: a number, or on a GPU a size that depends on them."""
    if func._schema.name in READS:
        return True
    return is_tagged_as_sized(func, args) and args[0].device.type != "cpu"


def _name_copy(name: str, args: Sequence[Any], result: Any) -> str:
    if name not in _COPIES:
        return ""
    target, source = args[:2] if name == "aten::copy_" else (result, args[0])
    if not isinstance(source, torch.Tensor) or target.device == source.device:
        return ""
    ends = (source.device, target.device)
    names = [end.type for end in ends] if ends[0].type != ends[1].type else map(str, ends)
    return " to ".join(names)


def match_names(calls: Sequence[PlacedCall], names: Counter[str]) -> Iterator[PlacedCall]:
    """As many calls as there are ``names``: those that were seen with a place, then without."""
    left = Counter(names)
    for call in calls:
        if left[call.name] > 0:
            left[call.name] -= 1
            yield call
    for name, count in left.items():
        yield from [PlacedCall(name, Place())] * count


def _count_listed(data: Any) -> int:
    """How many tensors stand in a list, and in lists in it; each is read as a number."""
    if not isinstance(data, (list, tuple)):
        return 0
    return sum(isinstance(item, torch.Tensor) or _count_listed(item) for item in data)


class MemoryReads(TorchFunctionMode):
    """Notes reads of memory that are no operator call, in a run for that alone: torch takes other
    paths where such a mode is active."""

    def __init__(self, notes: Notes, places: Places) -> None:
        super().__init__()
        self._notes, self._places = notes, places

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        # A tensor without dimensions formats its number, which is an operator call.
        if name in _MEMORY_READS or (name == "__format__" and args[0].dim()):
            self._notes.add(f"Tensor.{name}", *self._places.find(sys._getframe(1)))
        elif name in _MAKES_OF_NUMBERS:
            given = (*args, *(kwargs or {}).values())
            if number := sum(map(_count_listed, given)):
                place = self._places.find(sys._getframe(1))
                self._notes.add(f"{name} of tensors in a list", *place, count=number)
        return func(*args, **(kwargs or {}))
