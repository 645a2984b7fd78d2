"""Leaves modules, steps, inputs and the process as they were found, in every way out.

It is told of what the user handed in, and not of what was changed; what is not as it was is found
by looking.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from ftax.steps.compiled_graphs import room_to_compile
from ftax.steps.kept_python import keep_draws, keep_python
from ftax.steps.loaded import LoadedModel
from ftax.steps.random_states import list_own_generators
from ftax.steps.state import (
    Snapshot,
    Switches,
    keep_generators,
    put_weights_back,
)
from ftax.steps.step import Step
from ftax.steps.tensors import copy_into, same_bytes
from ftax.steps.writes import MOST_KEPT_BYTES, count_bytes

_COMPILATIONS = 16  # in grad modes and with inputs that are ftax's


# Who measures or records changes what all threads of the process share.
_one_at_a_time = threading.RLock()


@contextmanager
def try_lock() -> Iterator[bool]:
    """Whether no other thread measures or records. If so none begins meanwhile; if not, nobody
    waits for it."""
    is_alone = _one_at_a_time.acquire(blocking=False)
    try:
        yield is_alone
    finally:
        if is_alone:
            _one_at_a_time.release()


@contextmanager
def leave_as_found(*given: Any) -> Iterator[None]:
    """Every step and module among ``given`` (a LoadedModel's too) is afterwards as it was: training
    modes, which parameters need gradients, attributes, and tensors that are no parameters; tensors
    and containers among ``given`` hold what they held. So are torch's switches, environment
    variables, the states of random numbers, and what the function of a step keeps in Python.

    So nothing that was cached under inference mode stays, which training could not save for its
    backward pass. Parameters are put back if `keep_weight` was told of them before they changed.
    Other threads that measure or record wait meanwhile.
    """
    with _one_at_a_time:
        yield from _leave_as_found(given)


def _leave_as_found(given: tuple[Any, ...]) -> Iterator[None]:
    modules = [
        item.module if isinstance(item, LoadedModel) else item
        for item in given
        if isinstance(item, LoadedModel | nn.Module)
    ]
    trees = [item.given() if isinstance(item, LoadedModel) else item for item in given]
    kept, late = [], list[tuple[torch.Tensor, torch.Tensor]]()
    for module in modules:
        snapshot = Snapshot(module, trees)
        tensors = [*module.parameters(), *snapshot.given_tensors]
        flags = [(tensor, tensor.requires_grad) for tensor in tensors]
        late += _copy_weights(module)
        kept.append((snapshot, [(part, part.training) for part in module.modules()], flags))
    starts = [start for item in given for start in _list_starts(item)]
    switches = Switches()
    try:
        with (
            keep_python(*starts, own_code=True),
            keep_draws(*modules),
            keep_generators(),
            _keep_environment(),
            room_to_compile(_COMPILATIONS),
        ):
            yield
    finally:
        switches.put_back()
        for item in reversed(given):  # what the first one found was there before all of them
            if isinstance(item, Step):
                item.undo_all()
        for snapshot, modes, flags in kept:
            snapshot.put_back_attributes()
            snapshot.put_back()
            put_weights_back([tensor for tensor, _ in flags], forget=True)
            for part, training in modes:
                if part.training != training:
                    part.training = training
            for tensor, needs_grad in flags:
                if tensor.requires_grad != needs_grad:
                    tensor.requires_grad_(needs_grad)
        for weight, before in late:
            if not same_bytes(weight, before):
                copy_into([weight], [before])


def _copy_weights(module: nn.Module) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Those of a module that is not watched: it may write some in a call that nobody foresees. What
    is large is not copied, and copies are on the host: a GPU's memory is measured."""
    left = MOST_KEPT_BYTES
    copies: list[tuple[torch.Tensor, torch.Tensor]] = []
    for weight in module.parameters():
        if weight.is_meta or is_lazy(weight):
            continue
        if (size := count_bytes(weight)) <= left:
            left -= size
            copies.append((weight, weight.detach().to("cpu", copy=True)))
    return copies


def _list_starts(item: Any) -> list[Any]:
    """What leads to what Python keeps, of a step; of a module, attributes are looked at."""
    if isinstance(item, LoadedModel):
        return _list_starts(getattr(item.module, "step", None))
    if isinstance(item, Step):
        return [item.function, item.through_library, item.reset, item.inputs, item.check_inputs]
    return []


@contextmanager
def _keep_environment() -> Iterator[None]:
    before = dict(os.environ)
    if list_own_generators():  # and the environment
        yield
        return
    try:
        yield
    finally:
        if os.environ != before:
            os.environ.clear()
            os.environ.update(before)
