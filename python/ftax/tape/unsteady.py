"""Which operator does not give the same bits twice, where eager's outputs are not sure to be.

Outputs are not what is looked at. A kernel that adds in another order each time moves a token or a
branch in one run of many, and its bits in most. So the bits that each operator makes are summed,
and the first is told whose inputs were the same and whose results were not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from ftax.steps.echoes import PlainMode
from ftax.steps.writes import find_storage
from ftax.tape.recording import operator_name

_LOOKS = 4  # runs beside the first; most such operators show it in the second
_WHOLE = ((8, torch.int64), (4, torch.int32), (2, torch.int16), (1, torch.uint8))


def find_unsteady_operator(run: Callable[[], object], module: nn.Module) -> str:
    """The operator and the shapes that it was given, "aten::mm of 2x3, 3x4"; "" where none was
    seen in a few runs of ``run``, each of which does the same work with ``module``."""
    first = list(_log(run, module))
    for _ in range(_LOOKS):
        for before, now in zip(first, _log(run, module), strict=False):
            if (before.name, before.rest) != (now.name, now.rest):
                break  # another path: what follows is other work
            if before.inputs == now.inputs and before.results != now.results:
                return before.describe()
    return ""


class _Call(NamedTuple):
    name: str
    rest: str  # of its arguments, without tensors
    shapes: tuple[torch.Size, ...]
    inputs: tuple[int, ...]  # sums over their bits
    results: tuple[int, ...]

    def describe(self) -> str:
        shapes = ["x".join(map(str, shape)) for shape in self.shapes if shape]
        return f"{self.name} of {', '.join(shapes) or 'numbers'}"


def _log(run: Callable[[], object], module: nn.Module) -> Iterator[_Call]:
    log = _Log({find_storage(weight) for weight in module.parameters()})
    with log:
        run()
    return log.read()


class _Log(PlainMode):
    """Nothing here waits for the device, which could hide what differs."""

    def __init__(self, weights: set[int | None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.weights = weights  # gigabytes, and what differs in them would differ before
        self.sums: list[torch.Tensor] = []
        self.calls: list[tuple[str, str, tuple[torch.Size, ...], int, int]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        leaves = tree_leaves((args, kwargs or {}))
        given = [item for item in leaves if isinstance(item, torch.Tensor)]
        name = operator_name(func)
        # Memory as somebody else has left it, and numbers of a generator that nobody puts back.
        draws = any(isinstance(item, torch.Generator) for item in leaves)
        is_told = not (draws or "empty" in name or "resize" in name)
        # Before the call, which may write into them.
        varying = [item for item in given if find_storage(item) not in self.weights]
        first, middle = len(self.sums), self._add(varying if is_told else [])
        result = func(*args, **(kwargs or {}))
        # Whole numbers beside them may be a seed that nobody reads.
        floats = [item for item in tree_leaves(result) if _is_float(item)]
        self._add(floats if is_told else [])
        rest = repr([item for item in leaves if not isinstance(item, torch.Tensor)])
        shapes = tuple(item.shape for item in given if not item.is_nested)
        self.calls.append((name, rest, shapes, first, middle))
        return result

    def _add(self, items: list[torch.Tensor]) -> int:
        """How many sums there are after those of ``items``."""
        for item in items:
            if _has_bits(item):
                self.sums.append(_sum_bits(item))
        return len(self.sums)

    def read(self) -> Iterator[_Call]:
        """The calls with their sums, for which it waits."""
        sums = [0] * len(self.sums)
        for device in {item.device for item in self.sums}:
            places = [place for place, item in enumerate(self.sums) if item.device == device]
            found = torch.stack([self.sums[place] for place in places]).tolist()
            for place, value in zip(places, found, strict=True):
                sums[place] = value
        ends = [*(first for _, _, _, first, _ in self.calls[1:]), len(sums)]
        for (name, rest, shapes, first, middle), end in zip(self.calls, ends, strict=True):
            yield _Call(name, rest, shapes, tuple(sums[first:middle]), tuple(sums[middle:end]))


def _is_float(item: Any) -> bool:
    return isinstance(item, torch.Tensor) and (item.is_floating_point() or item.is_complex())


def _has_bits(item: torch.Tensor) -> bool:
    """Of its own, and that can be summed."""
    if item.layout != torch.strided or item.is_nested or item.is_meta or item.is_quantized:
        return False
    return item.numel() > 0


def _sum_bits(tensor: torch.Tensor) -> torch.Tensor:
    """In the largest whole numbers that fit, with overflow; an element that is many, once."""
    for place, (size, stride) in enumerate(zip(tensor.size(), tensor.stride(), strict=True)):
        if size > 1 and stride == 0:
            tensor = tensor.narrow(place, 0, 1)
    flat = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    if flat.is_complex():
        flat = torch.view_as_real(flat).reshape(-1)
    size = flat.numel() * flat.element_size()
    whole = next(dtype for width, dtype in _WHOLE if size % width == 0)
    offset = flat.storage_offset() * flat.element_size()  # from memory that may lie odd itself
    aligned = flat.data_ptr() % 8 == 0 and offset % 8 == 0
    return flat.view(whole if aligned else torch.uint8).sum(dtype=torch.int64)
