"""Looks on while modules and operators are called, whichever they are, by torch's hooks.

A warning of torch is kept from the user. A compiled module tells of global hooks that they see it
besides what it was compiled of, which is what these are for.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from ftax import _core

_FEW = 3  # shapes in a message


@contextmanager
def watch_module_calls(
    enter: Callable[[nn.Module, Any], None],
    leave: Callable[[nn.Module, Any, Any], None] | None = None,
) -> Iterator[None]:
    """Inside, ``enter`` is told of each module's forward before it begins, and ``leave`` when it
    has ended, whether or not it raised: of this thread, and of backward passes."""
    thread = threading.get_ident()

    def is_here() -> bool:
        return threading.get_ident() == thread or torch._C._current_graph_task_id() >= 0

    def begin(part: nn.Module, inputs: Any) -> None:
        if is_here():
            enter(part, inputs)

    def end(part: nn.Module, inputs: Any, output: Any) -> None:
        if leave is not None and is_here():
            leave(part, inputs, output)

    handles = [register_module_forward_pre_hook(begin)]
    if leave is not None:
        handles.append(register_module_forward_hook(end, always_call=True))
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Using `torch.compile")
            yield
    finally:
        for handle in handles:
            handle.remove()


class Call(NamedTuple):
    """One operator call: its name as the tape writes it, and the shapes of its tensors."""

    name: str
    shapes: tuple[tuple[int, ...] | None, ...]  # None: a nested tensor, which has none
    sized_by_values: bool = False  # the shape of its result depends on values of its arguments
    integers: tuple[int, ...] = ()  # among its arguments
    depth: int = 0  # where autograd runs: how many calls it was made within
    raised: bool = False  # and whether it ended with an error

    def describe(self) -> str:
        """``aten::cat on (1, 8), (1, 8), 0``."""
        few = ["nested" if shape is None else str(shape) for shape in self.shapes[:_FEW]]
        if len(self.shapes) > _FEW:
            few.append(f"{len(self.shapes) - _FEW} more")
        few += [str(number) for number in self.integers[:_FEW]]
        return f"{self.name} on {', '.join(few)}" if few else self.name


def log_operators(call: Callable[[], object]) -> list[Call]:
    """The operator calls that ``call`` makes, with those that they make in turn, as torch's
    profiling hooks see them."""
    log = _core.CallLog()
    log.start()
    try:
        call()
    finally:
        log.stop()
    return [
        Call(name, tuple(map(tuple, shapes)), integers=tuple(integers), depth=depth, raised=raised)
        for name, shapes, integers, depth, raised in log.calls
    ]


def describe_change(first: Sequence[Call], later: Sequence[Call]) -> str:
    """How a later call is other work than the first, by their operator calls; "" if it is not."""
    if len(first) != len(later):
        return f"a later call makes {len(later)} operator calls where the first made {len(first)}"
    for place, (before, now) in enumerate(zip(first, later, strict=True)):
        if before != now:
            return (
                f"operator call {place} of a later call is {now.describe()} where the first made "
                f"{before.describe()}"
            )
    return ""
