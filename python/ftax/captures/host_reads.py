"""What a call reads of tensors on the host, and whether that may be baked into a replay.

Control flow, sizes and arguments can depend on the values of tensors only through such reads. A
read is let pass where the tape shows that its value flows from no input, no state and no random
number. Then it is the same each time, and baking it in changes nothing.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from ftax import _core
from ftax.errors import FtaxError, UnsupportedError
from ftax.steps.echoes import PlainMode
from ftax.steps.loaded import LoadedModel
from ftax.steps.outputs import call_model
from ftax.steps.reach import PACKAGES
from ftax.tape.recording import MEMORY_READS, describe_place, is_sized_by_values, operator_name
from ftax.tape.tape import preserve_state
from ftax.tape.waits import READS, find_line

FindPrint = Callable[[str], str]  # the line that prints what is read at this one, "" for none

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


@contextmanager
def watch_memory_reads(log: MemoryReads) -> Iterator[None]:
    """Note in ``log`` what is read inside."""
    with log.sizes, log:
        yield


def refuse_memory_reads(log: MemoryReads, name: str, find_print: FindPrint) -> bool:
    """Whether values make the size of any tensor. Raises UnsupportedError, naming the line, where
    Python reads by itself a tensor's memory, or such a size: what it then computes no tape can
    know."""
    for what, line in log.reads:
        printing = find_print(line)
        remedy = _say_print(printing) if printing else _REMEDY.rpartition(", or")[0]
        raise UnsupportedError(
            f"cannot capture {name}: it reads {what} at {line}, and what Python makes of that "
            f"is not recorded; {remedy}"
        )
    return log.sizes.ever


def _say_print(line: str) -> str:
    return (
        f"move {line.partition(' ')[0]}, which prints it, out of what is captured: return the "
        "tensor, and print what the capture gives"
    )


def refuse_size_reads(loaded: LoadedModel, tape: _core.Tape) -> None:
    """Raises UnsupportedError where TorchScript asks for sizes, by operator calls, in a call in
    which values make some."""
    for call in tape.calls:
        if call["operator"].partition(".")[0] in _SIZE_CALLS:
            raise UnsupportedError(
                f"cannot capture {loaded.name}: {describe_place(call)} reads a size, and values "
                f"make the sizes of some of its tensors; {_REMEDY.rpartition(', or')[0]}"
            )


def explain_failure(
    loaded: LoadedModel, error: UnsupportedError, find_print: FindPrint, text: str
) -> UnsupportedError:
    """``error``, of a call that could not be recorded, with the line where it read a number of a
    tensor, if it did: that is most often why. ``text``: the line where a tensor became text."""
    if text:
        remedy = _say_print(text) if find_print(text) else _REMEDY.rpartition(", or")[0]
        return UnsupportedError(
            f"cannot capture {loaded.name}: at {text} it makes text of a tensor; {remedy} ({error})"
        )
    try:
        reads = _watch_reads(loaded).reads
    except FtaxError:
        reads = []
    if not reads:
        return UnsupportedError(f"cannot capture {loaded.name}: {error}")
    return UnsupportedError(
        f"cannot capture {loaded.name}: at {reads[0].line} {reads[0].what}; {reads[0].remedy} "
        f"({error})"
    )


def refuse(
    loaded: LoadedModel, tape: _core.Tape, reads: Sequence[int], find_print: FindPrint
) -> UnsupportedError:
    """The error that names operator and line of the first of these reads."""
    log = _watch_reads(loaded)
    order = list(tape.host_reads).index(reads[0])
    read = log.reads[order] if order < len(log.reads) else HostRead(line="")
    where = describe_place(tape.calls[reads[0]])
    where = f"at {read.line}, {where}" if read.line else where
    printing = find_print(read.line)
    remedy = _say_print(printing) if printing else read.remedy
    return UnsupportedError(f"cannot capture {loaded.name}: {where}: {read.what}; {remedy}")


def list_library_reads(
    loaded: LoadedModel, tape: _core.Tape, reads: Sequence[int]
) -> tuple[int, ...]:
    """Of these reads those that are compared after each replay without being asked for: a library
    asks a count whether this is the first call, and nearly never gets another answer."""
    log = _watch_reads(loaded)
    order = list(tape.host_reads)
    known = [read.is_first_call for read in log.reads]
    return tuple(
        index for index in reads if order.index(index) < len(known) and known[order.index(index)]
    )


class MemoryReads(TorchFunctionMode):
    """What Python is told of tensors beside their places in operators.

    Sizes are followed by whole calls. What is made of a tensor whose size depends on values has
    such a size too, unless it has no dimensions.
    """

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[tuple[str, str]] = []  # of what, and the line
        self.sizes = _MadeSizes()
        self._unsure: dict[int, torch.Tensor] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        kwargs = kwargs or {}
        if name in MEMORY_READS:
            line = find_line(sys._getframe(1))
            self.reads.append((f"a tensor's memory by Tensor.{name}", line))
        given = [id(item) for item in pytree.tree_leaves((args, kwargs))]
        is_unsure = any(item in self._unsure for item in given)
        if is_unsure and (read := _name_size(func, name)):
            line = find_line(sys._getframe(1))
            self.reads.append((f"a size that depends on values by Tensor.{read}", line))
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


def _watch_reads(loaded: LoadedModel) -> _ReadLog:
    log = _ReadLog()
    with preserve_state(loaded), loaded.guard(), log:
        call_model(loaded.call)
    return log


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRead:
    """Where a number is read, what that is, and what to do about it."""

    line: str
    what: str = (
        "it reads a number that depends on inputs or state, and what follows may depend on it"
    )
    remedy: str = _REMEDY
    is_first_call: bool = False  # whether it asks if there was a call before


class _ReadLog(PlainMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.reads: list[HostRead] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if operator_name(func).partition(".")[0] in READS:
            self.reads.append(_find_read(sys._getframe(1)))
        return func(*args, **(kwargs or {}))


def _find_read(frame: FrameType) -> HostRead:
    """By the frames that led there: libraries are known, and what they offer instead."""
    line = find_line(frame)
    for inner in _list_frames(frame):
        file = inner.f_code.co_filename.replace("\\", "/")
        owner = inner.f_locals.get("self")
        if isinstance(owner, torch.optim.Optimizer):
            return _find_read_of_optimizer(line, owner)
        if isinstance(owner, torch.amp.GradScaler):
            return HostRead(
                line=line,
                what="GradScaler looks on the host whether the step overflowed",
                remedy="give the optimizer fused=True, which looks on the device",
            )
        if "/torch/distributions/" in file:
            return HostRead(
                line=line,
                what="torch.distributions checks its values on the host",
                remedy="give the distribution validate_args=False",
            )
        if file.endswith("/torch/optim/swa_utils.py"):
            return HostRead(line=line, is_first_call=True)
    user = next((item for item in _list_frames(frame) if not _is_library(item)), None)
    if user is not None and _is_subscript(user):
        return HostRead(
            line=line,
            what=(
                "an index that is a tensor without dimensions is read on the host, a number that "
                "depends on inputs or state"
            ),
            remedy=(
                "use table.index_select(0, index.reshape(1)) of a table that is a tensor, or give "
                "the number as an argument"
            ),
        )
    return HostRead(line=line)


def _find_read_of_optimizer(line: str, optimizer: torch.optim.Optimizer) -> HostRead:
    kind, defaults = type(optimizer).__name__, optimizer.defaults
    offers = [
        words
        for name, words in (
            ("fused", "fused=True"),
            ("capturable", "capturable=True, on a GPU"),
        )
        if name in defaults and not defaults[name]
    ]
    if isinstance(defaults.get("lr"), torch.Tensor) and "betas" not in defaults:
        return HostRead(
            line=line,
            what=f"{kind} reads its learning rate, a tensor, on the host",
            remedy=f"give it {' or '.join([*offers, 'a number as lr'])}",
        )
    without = "an optimizer that keeps its count on the device, such as AdamW with fused=True"
    return HostRead(
        line=line,
        what=(
            f"its optimizer reads a number on the host, such as {kind}'s count of steps, at which "
            "a replay would stop"
        ),
        remedy=f"give it {' or '.join(offers or [without])}",
    )


def _list_frames(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _is_library(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith((*PACKAGES, "<frozen"))


def _is_subscript(frame: FrameType) -> bool:
    """Whether a frame is about to take an item of something."""
    instruction = next(
        (item for item in dis.get_instructions(frame.f_code) if item.offset == frame.f_lasti), None
    )
    return instruction is not None and (
        "SUBSCR" in instruction.opname or instruction.argrepr == "[]"
    )
