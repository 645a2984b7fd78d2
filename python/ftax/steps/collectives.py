"""Refuses a call that communicates with other processes, before it communicates.

ftax runs a call more often than its user does, and on one rank perhaps more often than on another.
Collectives would no longer pair, and a rank would wait for ever. So the first run of a call ends at
the first module, tensor or operator that communicates.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import torch
from torch import nn

from ftax.errors import UnsupportedError
from ftax.steps.echoes import PlainMode
from ftax.steps.module_calls import watch_module_calls

_NAMESPACES = ("c10d", "_c10d_functional", "_c10d_functional_autograd", "symm_mem")
_WRAPPERS = ("torch.distributed.", "torch.nn.parallel.distributed")
_ALONE = ("torch.distributed.algorithms._checkpoint.",)  # recomputes activations on its own rank


def is_distributed() -> bool:
    """Whether this process belongs to a process group."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


@contextmanager
def refuse_collectives(name: str, reached: Iterable[object] = ()) -> Iterator[None]:
    """In a process group, raises UnsupportedError for a call inside that communicates; at once if
    anything in ``reached`` is a wrapper such as DistributedDataParallel."""
    if not is_distributed():
        yield
        return
    watch = _Watch(name)
    for item in reached:
        watch.look_at(item)
    with watch_module_calls(lambda part, _: watch.look_at(part)), watch:
        yield
    if watch.found:  # the call has caught the error, and went on without its collective
        watch.refuse(watch.found)


class _Watch(PlainMode):
    def __init__(self, name: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found = ""
        self._name = name

    def look_at(self, item: object) -> None:
        """Refuse a module, an optimizer or a tensor that communicates."""
        for part in item.modules() if isinstance(item, nn.Module) else (item,):
            own = part.parameters(recurse=False) if isinstance(part, nn.Module) else ()
            for each in (part, *own):
                if _communicates(type(each)):
                    self.refuse(f"a {type(each).__name__}")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace in _NAMESPACES:
            self.refuse(func._schema.name)
        for kind in types:
            if _communicates(kind):
                self.refuse(f"a {kind.__name__}")
        return func(*args, **(kwargs or {}))

    def refuse(self, found: str) -> NoReturn:
        self.found = found
        raise UnsupportedError(
            f"{self._name} communicates with other processes ({found}), and ftax would run it more "
            "often on one rank than on another: give the part of it that needs one rank alone, or "
            "use the original"
        )


def _communicates(kind: type) -> bool:
    return any(
        base.__module__.startswith(_WRAPPERS) and not base.__module__.startswith(_ALONE)
        for base in kind.__mro__
    )
