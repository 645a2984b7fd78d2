"""What stands around a call that is recorded: modes in which nothing can be, and hooks of all
modules.

The surprising choice: hooks of all modules are put away, and not told apart: they are for what is
recorded, and would otherwise see the modules of ftax around it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from ftax.errors import UnsupportedError


def find_mode() -> str:
    """What around the caller does to each call something that a replay would not; "" for none."""
    if torch._C._len_torch_dispatch_stack() + torch._C._len_torch_function_stack():
        return (
            "a TorchDispatchMode or TorchFunctionMode (a profiler of operators, a default device)"
        )
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return "a transform of torch.func (vmap, grad, functionalize)"
    if vars(torch.autograd.forward_ad)["_current_level"] >= 0:
        return "forward-mode differentiation"
    if torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
        return "hooks of saved tensors"
    return "detect_anomaly" if torch.is_anomaly_enabled() else ""


def refuse_modes(name: str) -> None:
    """Raise UnsupportedError inside of a mode."""
    if mode := find_mode():
        raise UnsupportedError(
            f"cannot capture {name} inside of {mode}: it does to each call what a replay would "
            "not: call ftax.capture, and what it gives, outside of it, or give on_miss='eager'"
        )


class GlobalHooks:
    """Hooks of all modules, which are for what is recorded and not for modules of ftax around
    it."""

    def __init__(self) -> None:
        space = vars(nn.modules.module)
        names = [name for name in space if name.startswith("_global_") and name.endswith("_hooks")]
        self._tables = [space[name] for name in names if isinstance(space[name], dict)]
        self._held = [dict(table) for table in self._tables]

    @contextmanager
    def put_away(self) -> Iterator[None]:
        """None of them inside, but where they are `used`."""
        for table in self._tables:
            table.clear()
        try:
            yield
        finally:
            for table, held in zip(self._tables, self._held, strict=True):
                table.clear()
                table.update(held)

    @contextmanager
    def used(self) -> Iterator[None]:
        """As the caller has them."""
        around = [dict(table) for table in self._tables]  # those by which ftax looks on
        for table, held in zip(self._tables, self._held, strict=True):
            table.update(held)
        try:
            yield
        finally:
            for table, outer in zip(self._tables, around, strict=True):
                table.clear()
                table.update(outer)
