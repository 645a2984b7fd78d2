"""What a call reads of tensors on the host, and whether that may be baked into a replay.

Control flow, sizes and arguments can depend on the values of tensors only through such reads. The
surprising choice: a read is let pass where the tape shows that its value flows from no input, no
state and no random number. Then it is the same each time, and baking it in changes nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ftax import _core
from ftax.errors import UnsupportedError
from ftax.runtimes.tape.recording import MEMORY_READS, is_sized_by_values, operator_name
from ftax.runtimes.tape.tape import describe_place, preserve_state
from ftax.runtimes.tape.waits import find_line
from ftax.steps.echoes import PlainMode
from ftax.steps.loaded import LoadedModel
from ftax.steps.outputs import call_model

_READS = ("aten::_local_scalar_dense", "aten::item", "aten::is_nonzero", "aten::equal")
_REMEDY = (
    "compute with the tensor instead (torch.where, a mask, an index that is a tensor), or read the "
    "value before the call and give it as an argument"
)
_OR_CHECK = "; on_host_read='check' compares the number after each replay"


def refuse_memory_reads(loaded: LoadedModel) -> None:
    """Raises UnsupportedError, naming the line, where Python reads a tensor's memory by itself:
    what it then computes no tape can know."""
    log = _MemoryReads()
    with preserve_state(loaded), loaded.guard(), log:
        call_model(loaded.call)
    if log.reads:
        raise UnsupportedError(
            f"cannot capture {loaded.name}: it reads a tensor's memory by {log.reads[0]}, and what "
            f"Python makes of that is not recorded; {_REMEDY}"
        )


def find_dependent_reads(loaded: LoadedModel, tape: _core.Tape) -> tuple[int, ...]:
    """Calls of the tape that return a number which depends on inputs, state or random numbers.

    Raises UnsupportedError, naming the line, for a result whose size depends so on values: Python
    reads sizes without any call.
    """
    dependent = find_flow(tape)
    names = [call["operator"] for call in tape.calls]
    fixed = set(names) - {names[index] for index in dependent}
    for name, line in _watch_reads(loaded).sized:
        if name not in fixed:
            raise UnsupportedError(
                f"cannot capture {loaded.name}: the size of what {name} at {line} gives depends on "
                "values, and the rest of the call may depend on that size: keep sizes fixed "
                "(torch.where, a mask that is multiplied, topk)"
            )
    return tuple(index for index in tape.host_reads if index in dependent)


def add_line(loaded: LoadedModel, error: UnsupportedError) -> UnsupportedError:
    """``error`` with the first line that reads a number, if there is one: where two inputs take two
    paths, that is where they part."""
    lines = _watch_reads(loaded).lines
    if not lines:
        return error
    return UnsupportedError(f"{error}. It reads a number at {lines[0]}; {_REMEDY}{_OR_CHECK}")


def refuse(loaded: LoadedModel, tape: _core.Tape, reads: Sequence[int]) -> UnsupportedError:
    """The error that names operator and line of the first of these reads."""
    lines = _watch_reads(loaded).lines
    order = list(tape.host_reads).index(reads[0])
    where = f"at {lines[order]} " if order < len(lines) else ""
    return UnsupportedError(
        f"cannot capture {loaded.name}: {describe_place(tape.calls[reads[0]])} {where}reads a "
        "number that depends on inputs or state, on which the rest of the call may depend; "
        f"{_REMEDY}{_OR_CHECK}"
    )


def find_flow(tape: _core.Tape) -> set[int]:
    """Calls of which an argument depends on inputs, weights, other tensors that outlive the call,
    or random numbers: directly, through memory that such a call wrote, or through a view."""
    flow = _Flow(tape)
    return set(flow.follow())


class _Flow:
    """Slots are grouped by the memory that they may share; a group depends or does not."""

    def __init__(self, tape: _core.Tape) -> None:
        self._calls = tape.calls
        self._parents: dict[int, int] = {}
        self._dependent: set[int] = set()
        outside = [slot for slot, item in tape.constants if not _core.is_wrapped_number(item)]
        self._dependent.update((*tape.input_slots, *outside))

    def follow(self) -> Iterator[int]:
        changed = True
        found: set[int] = set()
        while changed:  # a write through a view is seen by views that were made before it
            before = len(found), len(self._dependent)
            for index, call in enumerate(self._calls):
                if self._depends(call):
                    found.add(index)
            changed = (len(found), len(self._dependent)) != before
        yield from sorted(found)

    def _depends(self, call: Mapping[str, Any]) -> bool:
        given = [slot for argument in call["arguments"] for slot in _list_slots(argument)]
        made = [slot for output in call["outputs"] for slot in _flatten(output) if slot >= 0]
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
        for argument in call["arguments"]:
            yield from _list_slots(argument)
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


def _flatten(output: int | Sequence[int]) -> Sequence[int]:
    return [output] if isinstance(output, int) else output


class _MemoryReads(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.reads: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in MEMORY_READS:
            self.reads.append(f"Tensor.{name} at {find_line(sys._getframe(1))}")
        return func(*args, **(kwargs or {}))


def _watch_reads(loaded: LoadedModel) -> _ReadLog:
    log = _ReadLog()
    with preserve_state(loaded), loaded.guard(), log:
        call_model(loaded.call)
    return log


class _ReadLog(PlainMode):
    """Lines of Python that read numbers, and operators, with lines, whose results values size."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.lines: list[str] = []
        self.sized: list[tuple[str, str]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = operator_name(func)
        if name.partition(".")[0] in _READS:
            self.lines.append(find_line(sys._getframe(1)))
        elif is_sized_by_values(func, args):
            self.sized.append((name, find_line(sys._getframe(1))))
        return func(*args, **(kwargs or {}))
