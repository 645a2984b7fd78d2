"""A capture as the forward of a module, which stays what it is to whoever looks at it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn


def stand_in(module: nn.Module, forward: Callable[..., Any]) -> Callable[[], None]:
    """Have calls of ``module`` come to ``forward``; what undoes it. Copies and pickles of the
    module know nothing of it."""
    space = vars(module)
    own: dict[str, Any] = {
        name: space[name] for name in ("forward", "__getstate__") if name in space
    }

    def get_state() -> Any:
        state = (
            own["__getstate__"]() if "__getstate__" in own else type(module).__getstate__(module)
        )
        if not isinstance(state, dict):
            return state
        kept = {k: v for k, v in state.items() if v is not forward and v is not get_state}
        return kept | own

    def undo() -> None:
        for name, ours in (("forward", forward), ("__getstate__", get_state)):
            if space.get(name) is ours:
                del space[name]
        space.update(own)

    space["forward"], space["__getstate__"] = forward, get_state
    return undo
