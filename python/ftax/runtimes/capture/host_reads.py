"""What a call reads of tensors on the host, and whether that may be baked into a replay.

Control flow, sizes and arguments can depend on the values of tensors only through such reads. The
surprising choice: a read is let pass where the tape shows that its value flows from no input, no
state and no random number. Then it is the same each time, and baking it in changes nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from ftax import _core
from ftax.errors import FtaxError, UnsupportedError
from ftax.runtimes.tape.capture import list_output_slots
from ftax.runtimes.tape.recording import MEMORY_READS, operator_name
from ftax.runtimes.tape.tape import describe_place, preserve_state
from ftax.runtimes.tape.waits import READS, find_line
from ftax.steps.echoes import PlainMode
from ftax.steps.loaded import LoadedModel
from ftax.steps.outputs import call_model

_SIZES = frozenset(
    (
        *("shape", "size", "numel", "nelement", "__len__", "__iter__", "stride", "nbytes"),
        # Into so many results.
        *("unbind", "split", "chunk", "tensor_split", "hsplit", "vsplit", "dsplit"),
    )
)
_REMEDY = (
    "compute with the tensor instead (torch.where, a mask, an index that is a tensor), read the "
    "value before the call and give it as an argument, or give on_host_read='check'"
)


def refuse_memory_reads(loaded: LoadedModel) -> None:
    """Raises UnsupportedError, naming the line, where Python reads by itself a tensor's memory, or
    a size that depends on values: what it then computes no tape can know."""
    log = _Reads()
    with preserve_state(loaded), loaded.guard(), log.sizes, log:
        call_model(loaded.call)
    if log.reads:
        raise UnsupportedError(
            f"cannot capture {loaded.name}: it reads {log.reads[0]}, and what Python makes of that "
            f"is not recorded; {_REMEDY.rpartition(', or')[0]}"
        )


def find_dependent_reads(tape: _core.Tape) -> tuple[int, ...]:
    """Calls of the tape that return a number which depends on inputs, state or random numbers."""
    dependent = find_flow(tape)
    return tuple(index for index in tape.host_reads if index in dependent)


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


def find_flow(tape: _core.Tape) -> set[int]:
    """Calls of which an argument depends on inputs, weights, other tensors that outlive the call,
    or random numbers: directly, through memory that such a call wrote, or through a view."""
    return _Flow(tape).follow()


class _Flow:
    """Slots are grouped by the memory that they may share; a group depends or does not."""

    def __init__(self, tape: _core.Tape) -> None:
        self._calls = tape.calls
        self._parents: dict[int, int] = {}
        self._dependent: set[int] = set()
        outside = [slot for slot, item in tape.constants if not _core.is_wrapped_number(item)]
        self._dependent.update((*tape.input_slots, *outside))

    def follow(self) -> set[int]:
        changed = True
        found: set[int] = set()
        while changed:  # a write through a view is seen by views that were made before it
            before = len(found), len(self._dependent)
            for index, call in enumerate(self._calls):
                if self._depends(call):
                    found.add(index)
            changed = (len(found), len(self._dependent)) != before
        return found

    def _depends(self, call: Mapping[str, Any]) -> bool:
        given = [slot for argument in call["arguments"] for slot in _list_slots(argument)]
        made = list_output_slots(call["outputs"])
        schema = _find_schema(call["operator"])
        for slot in _list_aliased(call, schema):
            for result in made:
                self._join(slot, result)
        depends = any(self._find(slot) in self._dependent for slot in given)
        depends = depends or (schema is not None and _is_random(schema))
        if depends:
            written = [*made, *_list_written(call, schema)]
            self._dependent.update(self._find(slot) for slot in written)
        return depends

    def _find(self, slot: int) -> int:
        while (parent := self._parents.get(slot, slot)) != slot:
            slot = parent
        return slot

    def _join(self, a: int, b: int) -> None:
        a, b = self._find(a), self._find(b)
        if a == b:
            return
        self._parents[b] = a
        if b in self._dependent:
            self._dependent.add(a)


def _find_schema(name: str) -> Any:
    """The schema of an operator as the tape writes it; None for bytes that Python filled in, which
    are constants of the tape."""
    if name.startswith("ftax::"):
        return None
    operator, _, overload = name.partition(".")
    return torch._C._get_schema(operator, overload)


def _is_random(schema: Any) -> bool:
    namespace, _, name = schema.name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), name)
    tags = getattr(packet, schema.overload_name or "default").tags
    return torch.Tag.nondeterministic_seeded in tags


def _list_aliased(call: Mapping[str, Any], schema: Any) -> Iterator[int]:
    """Slots of arguments with which results may share memory: those of which the schema says so,
    and all of an operator that is made of others, which may return what it was given (dropout
    does) and say nothing of it."""
    if schema is None:
        return
    name = f"{schema.name}.{schema.overload_name}".rstrip(".")
    is_composite = torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeImplicitAutograd")
    for described, argument in zip(schema.arguments, call["arguments"], strict=False):
        if described.alias_info is not None or is_composite:
            yield from _list_slots(argument)


def _list_written(call: Mapping[str, Any], schema: Any) -> Iterator[int]:
    if schema is None:
        return
    for described, argument in zip(schema.arguments, call["arguments"], strict=False):
        if described.alias_info is not None and described.alias_info.is_write:
            yield from _list_slots(argument)


def _list_slots(argument: tuple[str, Any]) -> Iterator[int]:
    kind, value = argument
    if kind == "slot":
        yield value
    elif kind == "list":
        for item in value:
            yield from _list_slots(item)


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
        self.made = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.dynamic_output_shape in func.tags and not _is_index_of_numbers(func, args):
            self.made = True
        return func(*args, **(kwargs or {}))


def _is_index_of_numbers(func: Any, args: Any) -> bool:
    """Indexing makes a size of values where a mask is among the indices."""
    if func._schema.name not in ("aten::index", "aten::_unsafe_index"):
        return False
    return all(item is None or item.dtype not in (torch.bool, torch.uint8) for item in args[1])


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
