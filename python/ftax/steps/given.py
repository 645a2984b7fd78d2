"""What a caller hands in: a name, a path, a module, a loaded model or a mix of such, and all that
is put back.

The public functions that measure, trace or profile all begin here, and so do worker processes.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from ftax.errors import InvalidArgumentError
from ftax.steps.left_as_found import leave_as_found
from ftax.steps.load import load_model
from ftax.steps.load_step import is_function, make_step_of
from ftax.steps.loaded import LoadedModel
from ftax.steps.mix import Mix, MixGivenError, tell_apart
from ftax.steps.setting import Setting, check_threads
from ftax.steps.step import Step
from ftax.steps.step_module import StepModule
from ftax.steps.user_inputs import read_given
from ftax.steps.writes import find_storage

Model = str | os.PathLike[str] | nn.Module | LoadedModel | Step | Callable[..., Any]


class _Measuring(threading.local):
    is_on = False


_measuring = _Measuring()


@contextmanager
def measuring(model: Model | Mix, setting: Setting, *given: Any) -> Iterator[None]:
    """Torch's threads are the setting's inside; afterwards they, and all that ``model`` and
    ``given`` hold, are as they were found."""
    models = list(model.list_given()) if isinstance(model, Mix) else [model]
    if isinstance(model, LoadedModel):
        setting = model.setting.beside(setting)
    before, _measuring.is_on = _measuring.is_on, True
    try:
        with use_threads(setting.threads), leave_as_found(*models, *given):
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


def load(model: Model | Mix, inputs: Any, check_inputs: Any, setting: Setting) -> LoadedModel:
    """The model with its inputs. Raises InvalidArgumentError for what does not fit it."""
    if not isinstance(model, LoadedModel):
        return load_model(  # which refuses a mix by its type
            model,  # type: ignore[arg-type]
            inputs=inputs,
            check_inputs=check_inputs,
            setting=setting,
        )
    if inputs is not None or check_inputs is not None:
        raise InvalidArgumentError(
            "a LoadedModel brings its inputs and options; pass them to ftax.load_model instead"
        )
    return model.run_as(setting)


def load_alone(
    model: Model | Mix, inputs: Any, check_inputs: Any, setting: Setting
) -> tuple[None, tuple[LoadedModel]]:
    """`load`, in the form of `load_parts`. Raises MixGivenError for a mix."""
    return None, (load(model, inputs, check_inputs, setting),)


def load_parts(
    model: Model | Mix, inputs: Any, check_inputs: Any, setting: Setting
) -> tuple[Mix | None, tuple[LoadedModel, ...]]:
    """The parts of a mix, or the one model that it is, each with its inputs; and the mix, also
    where it is the user's code that gives it.

    Raises InvalidArgumentError for what does not fit a part, or parts that do not fit each other.
    """
    try:
        return load_alone(model, inputs, check_inputs, setting)
    except MixGivenError as error:
        mix = error.mix
    if inputs is not None or check_inputs is not None:
        raise InvalidArgumentError(
            f"{mix.name} is a mix, whose parts bring their inputs: leave inputs out"
        )
    pairs = [part if isinstance(part, tuple) else (part, None) for part, _ in mix.parts]
    # Steps first: a module is loaded for its forward pass without gradients, which a step may need.
    steps = [place for place, (part, _) in enumerate(pairs) if isinstance(part, Step)]
    order = [*steps, *(place for place in range(len(pairs)) if place not in steps)]
    loaded = {place: load(pairs[place][0], pairs[place][1], None, setting) for place in order}
    parts = tuple(loaded[place] for place in range(len(pairs)))
    _run_beside(parts)
    return mix, parts


def name_parts(parts: Sequence[LoadedModel]) -> tuple[str, ...]:
    """What each is called beside the others."""
    return tell_apart([(part.name, part.sequence, part.batch, part.units) for part in parts])


def find_threads(parts: Sequence[LoadedModel]) -> int | None:
    """The number of torch's threads that parts are loaded for; None leaves it.

    Raises InvalidArgumentError where they differ.
    """
    found = {part.setting.threads for part in parts if part.setting.threads is not None}
    if len(found) > 1:
        raise InvalidArgumentError(
            f"the parts of the mix are loaded for {' and '.join(map(str, sorted(found)))} threads, "
            "of which a process has one number: load them for the same"
        )
    return next(iter(found), None)


def _run_beside(parts: Sequence[LoadedModel]) -> None:
    """Have each step find what the others write as it was. Raises InvalidArgumentError for devices
    that differ, and for a forward pass that reads what a step writes: nobody would put it back."""
    if len(devices := {part.device for part in parts}) > 1:
        raise InvalidArgumentError(
            f"the parts of the mix are on {' and '.join(sorted(devices))}: give parts of one device"
        )
    steps = [part.module for part in parts if isinstance(part.module, StepModule)]
    names = name_parts(parts)
    written = {find_storage(item) for step in steps for item in step.written}
    for name, part in zip(names, parts, strict=True):
        if isinstance(part.module, StepModule):
            part.module.run_beside([step for step in steps if step is not part.module])
            continue
        read = [*part.module.parameters(), *part.module.buffers(), *part.flat_inputs()]
        if not written.isdisjoint({find_storage(item) for item in read} - {None}):
            raise InvalidArgumentError(
                f"a step of the mix writes what {name} reads: give that one as a step too, "
                "ftax.step(module, inputs), which finds it as it was"
            )
