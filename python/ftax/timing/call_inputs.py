"""What a request was made with: shape, dtype and a digest of the values of every input.

Two latencies of other inputs are of other work, and a label does not say so. Floating-point numbers
of other values are told and not refused (docs/statistics.md says why).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ftax.errors import FAULTS, InvalidArgumentError
from ftax.records.record import Count, Name, Record
from ftax.steps.input_trees import list_leaves
from ftax.steps.loaded import LoadedModel, MeasuredModel
from ftax.steps.tensors import list_dense

_PLAIN = (bool, int, float, complex, str, bytes, type(None))


@dataclass(frozen=True, slots=True, kw_only=True)
class CallInput(Record):
    """One input of a request.

    Attributes:
        name: its place among the arguments, such as "argument 0" or "input_ids".
        dtype: of a tensor, as "float32"; of any other value the name of its type.
        shape: of a tensor; () of any other value.
        digest: of the values, 16 hexadecimal digits; "" where they cannot be read.
    """

    name: Name
    dtype: Name
    shape: tuple[Count, ...] = ()
    digest: str = ""

    def describe(self) -> str:
        """ "float32 (1, 64)"."""
        return f"{self.dtype} {tuple(self.shape)}" if self.shape else self.dtype


def read_inputs(loaded: MeasuredModel) -> tuple[CallInput, ...]:
    """Of the main inputs of a model; () of a file, whose runtime has them."""
    if not isinstance(loaded, LoadedModel):
        return ()
    leaves = list_leaves((loaded.args, dict(loaded.kwargs)))
    return tuple(_read(_name(path), leaf) for path, leaf in leaves)


def _name(path: Sequence[Any]) -> str:
    first, *rest = path
    if first == pytree.SequenceKey(0) and rest:
        return f"argument {rest[0].idx}{pytree.keystr(tuple(rest[1:]))}"
    if rest:
        return f"{rest[0].key}{pytree.keystr(tuple(rest[1:]))}"
    return "arguments"


def _read(name: str, value: Any) -> CallInput:
    if isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        shape = () if value.is_nested else tuple(value.shape)
        return CallInput(name=name, dtype=dtype, shape=shape, digest=_digest_tensor(value))
    digest = _hash(repr(value).encode()) if isinstance(value, _PLAIN) else ""
    return CallInput(name=name, dtype=type(value).__name__, digest=digest)


def _digest_tensor(tensor: torch.Tensor) -> str:
    try:
        parts = [_read_bytes(part) for part in list_dense(tensor)]
    except FAULTS:  # of a kind that has no bytes of its own to read
        return ""
    return _hash(*parts) if parts else ""


def _read_bytes(tensor: torch.Tensor) -> bytes:
    whole = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous().reshape(-1)
    return whole.view(torch.uint8).numpy().tobytes()


def _hash(*parts: bytes) -> str:
    found = hashlib.blake2b(digest_size=8)
    for part in parts:
        found.update(part)
    return found.hexdigest()


def find_input_differences(
    a: Sequence[CallInput], b: Sequence[CallInput], names: tuple[str, str]
) -> Iterator[tuple[str, bool]]:
    """In words, how the inputs of two requests differ, and whether that makes it other work;
    nothing where those of one are not known."""
    if not a or not b:
        return
    of_a, of_b = ({item.name: item for item in side} for side in (a, b))
    for name in dict.fromkeys([*of_a, *of_b]):
        one, other = of_a.get(name), of_b.get(name)
        if one is None or other is None:
            yield f"{name} is an input of {names[0] if one else names[1]} alone", True
        elif one.describe() != other.describe():
            text = (
                f"{name} is {one.describe()} for {names[0]} and {other.describe()} for {names[1]}"
            )
            yield text, True
        elif one.digest and other.digest and one.digest != other.digest:
            text = f"{name}, {one.describe()}, has other values for {names[1]} than for {names[0]}"
            yield text, not one.dtype.startswith(("float", "bfloat", "complex"))


def check_inputs_alike(
    a: Sequence[CallInput], b: Sequence[CallInput], names: tuple[str, str], *, is_allowed: bool
) -> list[str]:
    """How the inputs differ, in words. Raises InvalidArgumentError if that makes it other work,
    unless it is allowed."""
    found = list(find_input_differences(a, b, names))
    if (deciding := [text for text, decides in found if decides]) and not is_allowed:
        raise InvalidArgumentError(
            f"{'; '.join(deciding)}: that is other work; give both sides the same inputs (made "
            "before the model draws its weights, or seeded), or allow it "
            "(--allow-different-inputs, allow_different_inputs=True)"
        )
    return [text for text, _ in found]
