"""What a caller hands in: a name, a path, a module or a loaded model, and all that is put back.

The public functions that measure, trace or profile all begin here, and so do worker processes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from ftax.errors import InvalidArgumentError
from ftax.steps.load import load_model
from ftax.steps.loaded import LoadedModel
from ftax.steps.setting import Setting, check_threads
from ftax.steps.state import Snapshot, keep_generators, put_weights_back
from ftax.steps.step import Step

Model = str | os.PathLike[str] | nn.Module | LoadedModel | Step


@contextmanager
def measuring(model: Model, setting: Setting, *given: Any) -> Iterator[None]:
    """Torch's threads are the setting's inside; afterwards they, and all that ``model`` and
    ``given`` hold, are as they were found."""
    if isinstance(model, LoadedModel):
        setting = model.setting.beside(setting)
    with use_threads(setting.threads), leave_as_found(model, *given):
        yield


@contextmanager
def leave_as_found(*given: Any) -> Iterator[None]:
    """Every step and module among ``given`` (a LoadedModel's too) is afterwards as it was: training
    modes, which parameters need gradients, attributes, and tensors that are no parameters; tensors
    and containers among ``given`` hold what they held. So are torch's switches, environment
    variables and the states of random numbers.

    So nothing that was cached under inference mode stays, which training could not save for its
    backward pass. Parameters are put back if `keep_weight` was told of them before they changed.
    """
    modules = [
        item.module if isinstance(item, LoadedModel) else item
        for item in given
        if isinstance(item, LoadedModel | nn.Module)
    ]
    trees = [item.given() if isinstance(item, LoadedModel) else item for item in given]
    kept = []
    for module in modules:
        snapshot = Snapshot(module, trees)
        tensors = [*module.parameters(), *snapshot.given_tensors]
        flags = [(tensor, tensor.requires_grad) for tensor in tensors]
        kept.append((snapshot, [(part, part.training) for part in module.modules()], flags))
    try:
        with keep_generators(), _keep_environment():
            yield
    finally:
        for item in given:
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


@contextmanager
def _keep_environment() -> Iterator[None]:
    before = dict(os.environ)
    try:
        yield
    finally:
        if os.environ != before:
            os.environ.clear()
            os.environ.update(before)


@contextmanager
def use_threads(threads: int | None) -> Iterator[None]:
    """Torch's intra-op threads inside, restored afterwards; None leaves them."""
    if threads is None:
        yield
        return
    check_threads(threads)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def load(model: Model, inputs: Any, check_inputs: Any, setting: Setting) -> LoadedModel:
    """The model with its inputs. Raises InvalidArgumentError for what does not fit it."""
    if not isinstance(model, LoadedModel):
        return load_model(model, inputs=inputs, check_inputs=check_inputs, setting=setting)
    if inputs is not None or check_inputs is not None:
        raise InvalidArgumentError(
            "a LoadedModel brings its inputs and options; pass them to ftax.load_model instead"
        )
    return model.run_as(setting)
