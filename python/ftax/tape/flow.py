"""What of a tape depends on inputs, weights, other tensors that outlive the call, random numbers,
or other processes: directly, through memory that such a call wrote, or through a view.

Slots are grouped by the memory that they may share, and a group depends or does not, whenever it
was written. What depends on nothing is the same in every run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from ftax import _core
from ftax.steps.writes import find_storage

# By which other processes have a say. Schemas do not tell.
COLLECTIVES = ("c10d::", "_c10d_functional::")

_OVERWRITING = ("aten::copy_", "aten::fill_.Scalar", "aten::fill_.Tensor", "aten::zero_")


class Flow:
    """Attributes:
    calls: of which an argument depends.
    """

    def __init__(self, tape: _core.Tape) -> None:
        self.calls: set[int] = set()
        self._tape_calls = tape.calls
        self._parents: dict[int, int] = {}
        passing = frozenset(tape.passing_slots)
        outside = [
            slot
            for slot, item in tape.constants
            if slot not in passing and not _core.is_wrapped_number(item)
        ]
        self._dependent = {*tape.input_slots, *outside}
        self._writes: set[tuple[int, int]] = set()  # calls and what they write into
        self._follow()

    def depends(self, slot: int) -> bool:
        """Whether what is in it may be another in another run."""
        return self._find(slot) in {self._find(item) for item in self._dependent}

    def is_written(self, slot: int, *, after: int) -> bool:
        """Whether a call behind that one writes into its memory."""
        return any(
            index > after and self._find(item) == self._find(slot) for index, item in self._writes
        )

    def list_written(self, index: int) -> set[int]:
        """What this call was given and writes into."""
        return {slot for writer, slot in self._writes if writer == index}

    def shares(self, slot: int, others: Sequence[int]) -> bool:
        """Whether it may be in the memory of one of these."""
        return self._find(slot) in map(self._find, others)

    def _follow(self) -> None:
        changed = True
        while changed:  # a write through a view is seen by views that were made before it
            before = len(self.calls), len(self._dependent)
            for index, call in enumerate(self._tape_calls):
                if self._depends(index, call):
                    self.calls.add(index)
            changed = (len(self.calls), len(self._dependent)) != before

    def _depends(self, index: int, call: Mapping[str, Any]) -> bool:
        given = [slot for argument in call["arguments"] for slot in list_slots(argument)]
        made = list_output_slots(call["outputs"])
        schema = _find_schema(call["operator"])
        for slot in _list_aliased(call, schema):
            for result in made:
                self._join(slot, result)
        depends = any(self._find(slot) in self._dependent for slot in given)
        depends = depends or _draws(schema, call) or call["operator"].startswith(COLLECTIVES)
        written = call["written"]
        self._writes.update((index, slot) for slot in written)
        if depends:
            self._dependent.update(self._find(slot) for slot in (*made, *written))
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


def list_output_slots(outputs: Sequence[int | Sequence[int]]) -> list[int]:
    """Slots of a call's outputs, lists included; -1 stands for none."""
    slots: list[int] = []
    for output in outputs:
        slots.extend([output] if isinstance(output, int) else output)
    return [slot for slot in slots if slot >= 0]


def list_collectives(tape: _core.Tape) -> list[Mapping[str, Any]]:
    """Calls by which it communicates."""
    return [call for call in tape.calls if call["operator"].startswith(COLLECTIVES)]


def draws_random_numbers(tape: _core.Tape) -> bool:
    """Whether an operator may draw from a generator of torch's."""
    return any(_draws(_find_schema(call["operator"]), call) for call in tape.calls)


def _draws(schema: Any, call: Mapping[str, Any]) -> bool:
    if schema is None:
        return False
    pairs = zip(schema.arguments, call["arguments"], strict=False)
    constants = {item.name: value for item, (kind, value) in pairs if kind == "const"}
    return is_random(schema, constants)


def is_random(schema: Any, constants: Mapping[str, Any]) -> bool:
    """Whether an operator draws random numbers, called with these constants among its arguments:
    dropout does not in eval mode."""
    if constants.get("train") is False or constants.get("training") is False:
        return False
    if 0.0 in (constants.get("dropout_p"), constants.get("dropout")):
        return False
    namespace, _, name = schema.name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), name)
    tags = getattr(packet, schema.overload_name or "default").tags
    return torch.Tag.nondeterministic_seeded in tags


def _list_aliased(call: Mapping[str, Any], schema: Any) -> Iterator[int]:
    """Slots of arguments with which results may share memory: those of which the schema says so,
    and those where they were seen to (dropout may return what it was given, and its schema says
    nothing of it), which layouts decide and not values."""
    yield from call["shared"]
    if schema is None:
        return
    for described, argument in zip(schema.arguments, call["arguments"], strict=False):
        if described.alias_info is not None:
            yield from list_slots(argument)


def find_dependent_reads(tape: _core.Tape) -> tuple[int, ...]:
    """Calls of the tape that return a number which depends on inputs, state or random numbers."""
    if not tape.host_reads:
        return ()
    dependent = Flow(tape).calls
    return tuple(index for index in tape.host_reads if index in dependent)


def list_slots(argument: tuple[str, Any]) -> Iterator[int]:
    """Of an argument as the tape describes it."""
    kind, value = argument
    if kind == "slot":
        yield value
    elif kind == "list":
        for item in value:
            yield from list_slots(item)


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
