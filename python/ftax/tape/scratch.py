"""Memory that a tape only works in: all that it reads there it has written before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from ftax import _core
from ftax.steps.writes import find_storage
from ftax.tape.flow import list_slots

_OVERWRITING = ("aten::copy_", "aten::fill_.Scalar", "aten::fill_.Tensor", "aten::zero_")


def is_scratch(tape: _core.Tape, memory: torch.Tensor) -> bool:
    """Whether what is in ``memory`` before a replay does not matter to it."""
    key = find_storage(memory)
    views = {slot: item for slot, item in tape.constants if find_storage(item) == key}
    if key is None or len({item.dtype for item in views.values()}) != 1:
        return False
    size = next(iter(views.values())).element_size()
    is_new = torch.zeros(memory.untyped_storage().nbytes() // size, dtype=torch.bool)

    def see(slot: int) -> torch.Tensor:
        item = views[slot]
        return is_new.as_strided(item.shape, item.stride(), item.storage_offset())

    for call in tape.calls:
        given = [slot for argument in call["arguments"] for slot in list_slots(argument)]
        overwritten = [slot for slot in _list_overwritten(call) if slot in views]
        read = Counter(slot for slot in given if slot in views) - Counter(overwritten)
        if not all(bool(see(slot).all()) for slot in read):
            return False
        for slot in overwritten:
            see(slot).fill_(True)
    return True


def _list_overwritten(call: Mapping[str, Any]) -> Iterable[int]:
    """Slots that it writes whole, without reading them."""
    name = call["operator"]
    if name.endswith(".out"):
        return call["written"]  # type: ignore[no-any-return]
    return list_slots(call["arguments"][0]) if name in _OVERWRITING else ()
