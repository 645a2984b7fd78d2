"""What stands around a call that is recorded: modes in which nothing can be, and other threads."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import torch

from ftax.errors import UnsupportedError
from ftax.steps.echoes import PlainMode
from ftax.steps.writes import list_tensors
from ftax.tape.flow import is_random


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


class OtherThreads(UnsupportedError):
    """The call cannot be recorded while other threads of Python live."""


def is_only_thread() -> bool:
    """Whether no other thread of Python lives in this process."""
    return len(sys._current_frames()) == 1


@contextmanager
def refuse_draws(name: str) -> Iterator[None]:
    """Raises OtherThreads before an operator inside draws on a GPU without taking a generator: from
    that of the process, which other threads may use as well."""
    watch = _Draws(name)
    with watch:
        yield
    if watch.found:  # the call has caught the error
        watch.refuse(watch.found)


class _Draws(PlainMode):
    def __init__(self, name: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found = ""
        self._name = name

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        on_gpu = any(item.is_cuda for item in list_tensors((*args, *kwargs.values())))
        if on_gpu and torch.Tag.nondeterministic_seeded in func.tags:
            names = [argument.name for argument in func._schema.arguments]
            given = {**dict(zip(names, args, strict=False)), **kwargs}
            if "generator" not in names and is_random(func._schema, given):
                self.refuse(func._schema.name)
        return func(*args, **kwargs)

    def refuse(self, found: str) -> NoReturn:
        self.found = found
        raise OtherThreads(
            f"cannot capture {self._name}: it draws random numbers ({found}), and other threads of "
            "this process may draw from the same generator meanwhile"
        )
