"""Reads the calls of a tape: where in the model one stands, and which copy to the host.

Such a copy matters twice: one that waits makes the host wait for the device, and one that does not
(``non_blocking=True``) is waited for by something that is no operator, so no tape can hold it.
The surprising part: a copy names where it goes but not where it comes from, so in a tape of a model
on a CPU every ``.to("cpu")`` counts. The caller asks only on a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from ftax import _core
from ftax.errors import UnsupportedError

_COPIES = ("aten::_to_copy", "aten::to")  # with all their overloads


def describe_place(call: dict[str, Any]) -> str:
    """``aten::add.Tensor in encoder.layer.0``."""
    module = call["module"]
    return f"{call['operator']} in {module or 'the model itself'}"


def find_copies_to_host(calls: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Where they stand, of those that make a tensor: `tolist` and `cpu` are made of them."""
    for call in calls:
        if _names_host(call) and call["operator"].partition(".")[0] in _COPIES:
            yield describe_place(call)


def refuse_unawaited_copies(tape: _core.Tape) -> None:
    """Raises UnsupportedError for a copy to the host that nobody waits for: the wait that comes
    later (of an event, a stream) is no operator call, and a replay would read too early."""
    on_host = {slot for slot, tensor in tape.constants if tensor.device.type == "cpu"}
    for call in tape.calls:
        name, _, overload = call["operator"].partition(".")
        to_host = _names_host(call)
        if to_host:
            on_host.update(call["outputs"])
        if name in _COPIES:
            schema = torch._C._get_schema(name, overload)
            place = [item.name for item in schema.arguments].index("non_blocking")
            early = to_host and call["arguments"][place][1] is True
        elif name == "aten::copy_":
            target, source, is_early = (value for _, value in call["arguments"])
            early = is_early is True and target in on_host and source not in on_host
        else:
            continue
        if early:
            raise UnsupportedError(
                f"cannot tape this model: {describe_place(call)} copies to the host without "
                "waiting (non_blocking=True), and what waits for it later is no operator that a "
                "tape could hold; leave non_blocking out"
            )


def _names_host(call: dict[str, Any]) -> bool:
    constants = [value for kind, value in call["arguments"] if kind == "const"]
    return any(isinstance(item, torch.device) and item.type == "cpu" for item in constants)
