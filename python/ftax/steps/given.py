"""What a caller hands in: a name, a path, a module or a loaded model, and all that is put back.

The public functions that measure, trace or profile all begin here, and so do worker processes.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from ftax.errors import InvalidArgumentError
from ftax.steps.left_as_found import leave_as_found
from ftax.steps.load import load_model
from ftax.steps.load_step import is_function, make_step_of
from ftax.steps.loaded import LoadedModel
from ftax.steps.setting import Setting, check_threads
from ftax.steps.step import Step
from ftax.steps.user_inputs import read_given

Model = str | os.PathLike[str] | nn.Module | LoadedModel | Step | Callable[..., Any]


class _Measuring(threading.local):
    is_on = False


_measuring = _Measuring()


@contextmanager
def measuring(model: Model, setting: Setting, *given: Any) -> Iterator[None]:
    """Torch's threads are the setting's inside; afterwards they, and all that ``model`` and
    ``given`` hold, are as they were found. On a GPU steps run on a stream of ours; torch warns of
    that where DistributedDataParallel's nodes are of another one: not inside."""
    if isinstance(model, LoadedModel):
        setting = model.setting.beside(setting)
    before, _measuring.is_on = _measuring.is_on, True
    try:
        with (
            use_threads(setting.threads),
            leave_as_found(model, *given),
            warnings.catch_warnings(),
        ):
            warnings.filterwarnings("ignore", message="The AccumulateGrad node's stream")
            yield
    finally:
        _measuring.is_on = before


def is_measuring() -> bool:
    """Whether this thread measures, so that a capture leaves out what its user does not wait for
    in each call."""
    return _measuring.is_on


def as_step(model: Any, inputs: Any, check_inputs: Any, setting: Setting) -> tuple[Any, Any, Any]:
    """A function as the step that it is measured as, with its inputs; all else as it is. So what
    its first runs leave behind is found to be undone by `measuring`."""
    if not is_function(model):
        return model, inputs, check_inputs
    return make_step_of(model, read_given(inputs, check_inputs), setting), None, None


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
