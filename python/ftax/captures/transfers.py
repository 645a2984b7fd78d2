"""Copies from the host to the GPU that are the same in each call, taken out of a tape.

A model that makes a mask on the host, or indexes by a list, copies it to the GPU each time. A graph
cannot hold a copy from memory that dies with the call, and need not: the tape shows that nothing in
it depends on inputs, state or random numbers. The surprising choice: what such a copy gives is kept
from one run, so that the graph computes less than the original does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from ftax import _core
from ftax.steps.input_trees import flatten_tensors
from ftax.steps.loaded import LoadedModel
from ftax.tape.capture import list_output_slots, moves_data
from ftax.tape.flow import Flow, list_slots
from ftax.tape.tape import preserve_state

# They copy what they are given from the host to the device by themselves.
_COPYING = ("aten::index", "aten::index_put", "aten::index_put_", "aten::copy_")

_MASKS = (torch.bool, torch.uint8)

Place = tuple[int, int, torch.Tensor]  # a call, a slot, and what is in it in every run


def bake_transfers(loaded: LoadedModel, tape: _core.Tape) -> _core.Tape:
    """``tape``, on the inputs that are bound to it, without these copies; itself if it has none."""
    flow = Flow(tape)
    places: list[Place] = []
    with preserve_state(loaded), torch.inference_mode():
        loaded.prepare()
        for index, call in enumerate(tape.calls):
            given = _list_given(tape, call)
            tape.run_call(index)
            made = {slot: tape.slot(slot) for slot in list_output_slots(call["outputs"])}
            made = {slot: item for slot, item in made.items() if item is not None}
            if moves_data(
                call["operator"], list(given.values()), flatten_tensors([*made.values()])
            ):
                places += _bake(index, call, given, made, flow, tape.output_slots)
            elif call["operator"].partition(".")[0] in _COPYING:
                places += _bake_arguments(index, given, flow)
        tape.release_outputs()
    return tape.bake(places) if places else tape


def _list_given(tape: _core.Tape, call: Mapping[str, Any]) -> dict[int, torch.Tensor]:
    slots = [slot for argument in call["arguments"] for slot in list_slots(argument)]
    found = {slot: tape.slot(slot) for slot in slots}
    return {slot: item for slot, item in found.items() if isinstance(item, torch.Tensor)}


def _bake(
    index: int,
    call: Mapping[str, Any],
    given: Mapping[int, torch.Tensor],
    made: Mapping[int, torch.Tensor],
    flow: Flow,
    outputs: list[int],
) -> Iterator[Place]:
    """What the call makes, if that is the same each time, nobody writes into it and it is not
    handed out; else the arguments from which it copies."""
    is_same = index not in flow.calls and not flow.list_written(index)
    if is_same and not any(
        flow.is_written(slot, after=index) or flow.shares(slot, outputs) for slot in made
    ):
        yield from ((index, slot, item.clone()) for slot, item in made.items())
    elif call["operator"].partition(".")[0] in _COPYING:
        yield from _bake_arguments(index, given, flow)


def _bake_arguments(index: int, given: Mapping[int, torch.Tensor], flow: Flow) -> Iterator[Place]:
    """Those on the host that are the same each time and are read, on the device of the others."""
    device = next((item.device for item in given.values() if item.device.type != "cpu"), None)
    # Behind a mask a number is read where it is, on the host.
    has_mask = any(item.dtype in _MASKS and item.dim() for item in given.values())
    for slot, item in given.items():
        is_read = item.device.type == "cpu" and slot not in flow.list_written(index)
        is_number = has_mask and not item.dim()
        if device is not None and is_read and not is_number and not flow.depends(slot):
            yield index, slot, item.to(device)
