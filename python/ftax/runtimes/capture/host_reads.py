"""What a call reads of tensors on the host, and whether that may be baked into a replay.

Control flow, sizes and arguments can depend on the values of tensors only through such reads. The
surprising choice: a read is let pass where the tape shows that its value flows from no input, no
state and no random number. Then it is the same each time, and baking it in changes nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from ftax import _core
from ftax.errors import FtaxError, UnsupportedError
from ftax.runtimes.tape.calls import describe_place
from ftax.runtimes.tape.recording import MEMORY_READS, is_sized_by_values, operator_name
from ftax.runtimes.tape.tape import preserve_state
from ftax.runtimes.tape.waits import READS, find_line
from ftax.steps.echoes import PlainMode
from ftax.steps.loaded import LoadedModel
from ftax.steps.outputs import call_model

_SIZES = frozenset(
    (
        *("shape", "size", "numel", "nelement", "__len__", "__iter__", "stride", "nbytes"),
        # Into so many results.
        *("unbind", "split", "chunk", "tensor_split", "hsplit", "vsplit", "dsplit"),
        *("unsafe_chunk", "unsafe_split", "unsafe_split_with_sizes", "split_with_sizes"),
    )
)
_SIZE_CALLS = ("aten::size", "aten::numel", "aten::stride", "aten::len")
_REMEDY = (
    "compute with the tensor instead (torch.where, a mask, an index that is a tensor), read the "
    "value before the call and give it as an argument, or give on_host_read='check'"
)


def refuse_memory_reads(loaded: LoadedModel) -> bool:
    """Whether values make the size of any tensor. Raises UnsupportedError, naming the line, where
    Python reads by itself a tensor's memory, or such a size: what it then computes no tape can
    know."""
    log = _Reads()
    with preserve_state(loaded), loaded.guard(), log.sizes, log:
        call_model(loaded.call)
    if log.reads:
        raise UnsupportedError(
            f"cannot capture {loaded.name}: it reads {log.reads[0]}, and what Python makes of that "
            f"is not recorded; {_REMEDY.rpartition(', or')[0]}"
        )
    return log.sizes.ever


def refuse_size_reads(loaded: LoadedModel, tape: _core.Tape) -> None:
    """Raises UnsupportedError where TorchScript asks for sizes, by operator calls, in a call in
    which values make some."""
    for call in tape.calls:
        if call["operator"].partition(".")[0] in _SIZE_CALLS:
            raise UnsupportedError(
                f"cannot capture {loaded.name}: {describe_place(call)} reads a size, and values "
                f"make the sizes of some of its tensors; {_REMEDY.rpartition(', or')[0]}"
            )


def explain_failure(loaded: LoadedModel, error: UnsupportedError) -> UnsupportedError:
    """``error``, of a call that could not be recorded, with the line where it read a number of a
    tensor, if it did: that is most often why."""
    try:
        lines = _watch_lines(loaded).lines
    except FtaxError:
        lines = []
    if not lines:
        return UnsupportedError(f"cannot capture {loaded.name}: {error}")
    return UnsupportedError(
        f"cannot capture {loaded.name}: at {lines[0]} it reads a number that depends on inputs or "
        f"state, on which the rest of the call may depend; {_REMEDY} ({error})"
    )


def refuse(loaded: LoadedModel, tape: _core.Tape, reads: Sequence[int]) -> UnsupportedError:
    """The error that names operator and line of the first of these reads."""
    log = _watch_lines(loaded)
    order = list(tape.host_reads).index(reads[0])
    where = f"at {log.lines[order]} " if order < len(log.lines) else ""
    if log.in_optimizer:
        return UnsupportedError(
            f"cannot capture {loaded.name}: its optimizer reads a number {where}on the host, such "
            "as its count of steps, at which a replay would stop: give it fused=True (or "
            "capturable=True on a GPU), or an optimizer that keeps no count, such as SGD"
        )
    return UnsupportedError(
        f"cannot capture {loaded.name}: {describe_place(tape.calls[reads[0]])} {where}reads a "
        "number that depends on inputs or state, on which the rest of the call may depend; "
        f"{_REMEDY}"
    )


class _Reads(TorchFunctionMode):
    """What Python is told of tensors beside their places in operators.

    The surprising choice: sizes are followed by whole calls. What is made of a tensor whose size
    depends on values has such a size too, unless it has no dimensions.
    """

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[str] = []
        self.sizes = _MadeSizes()
        self._unsure: dict[int, torch.Tensor] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        kwargs = kwargs or {}
        if name in MEMORY_READS:
            self.reads.append(
                f"a tensor's memory by Tensor.{name} at {find_line(sys._getframe(1))}"
            )
        given = [id(item) for item in pytree.tree_leaves((args, kwargs))]
        is_unsure = any(item in self._unsure for item in given)
        if is_unsure and (read := _name_size(func, name)):
            line = find_line(sys._getframe(1))
            self.reads.append(f"a size that depends on values by Tensor.{read} at {line}")
        self.sizes.made = False
        result = func(*args, **kwargs)
        if is_unsure or self.sizes.made:
            made = [item for item in pytree.tree_leaves(result) if isinstance(item, torch.Tensor)]
            self._unsure.update((id(item), item) for item in made if item.dim())
        return result


class _MadeSizes(PlainMode):
    """Whether an operator ran whose result has a size that depends on values."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.made = self.ever = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if is_sized_by_values(func, args):
            self.made = self.ever = True
        return func(*args, **(kwargs or {}))


def _name_size(func: Any, name: str) -> str:
    """By which attribute or method ``func`` tells a size, or depends on one in Python; "" if it
    does not."""
    if name == "__get__":
        name = getattr(getattr(func, "__self__", None), "__name__", "")
    return name if name in _SIZES else ""


def _watch_lines(loaded: LoadedModel) -> _ReadLines:
    log = _ReadLines()
    with preserve_state(loaded), loaded.guard(), log:
        call_model(loaded.call)
    return log


class _ReadLines(PlainMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.lines: list[str] = []
        self.in_optimizer = False  # all of them

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if operator_name(func).partition(".")[0] in READS:
            is_there = _is_in_optimizer(sys._getframe(1))
            self.in_optimizer = is_there and (self.in_optimizer or not self.lines)
            self.lines.append(find_line(sys._getframe(1)))
        return func(*args, **(kwargs or {}))


def _is_in_optimizer(frame: FrameType | None) -> bool:
    while frame is not None:
        if isinstance(frame.f_locals.get("self"), torch.optim.Optimizer):
            return True
        frame = frame.f_back
    return False
