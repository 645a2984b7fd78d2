"""Makes a step ready: runs it a few times to see what it calls and writes, and puts that back.

Device and dtype are not asked for. A step is code that has chosen both; they are read from the
modules that it was seen to call, or else from its inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from ftax.errors import FtaxError, InvalidArgumentError, UnsupportedError, describe
from ftax.steps.build import make_loaded, pair_user_inputs, refuse_variant, resolve_user_sizes
from ftax.steps.input_trees import flatten_tensors, list_leaves
from ftax.steps.inputs import InputPair, repeat_input
from ftax.steps.load_module import resolve_device, resolve_dtype
from ftax.steps.loaded import LoadedModel
from ftax.steps.outputs import call_model, find_tensors
from ftax.steps.setting import GradMode, Setting, read_grad_mode
from ftax.steps.state import keep_generators
from ftax.steps.step import Step
from ftax.steps.step import step as make_step
from ftax.steps.step_module import StepModule
from ftax.steps.user_inputs import Given, refuse_iterator, split_inputs

_ONE_INPUT = (
    "the step is called with no tensors, so programs are checked on one input only: give it its "
    "inputs for a second check"
)


def load_step(step: Step, setting: Setting, given: Given | None) -> LoadedModel:
    """``step`` as it is measured.

    Raises:
        InvalidArgumentError: for inputs beside it, or a setting that does not fit.
        UnsupportedError: its work changes from call to call.
        RunnerError: the step raised.
    """
    if given is not None:
        raise InvalidArgumentError("a step brings its inputs: give them to ftax.step")
    refuse_variant(setting, "step")
    setting = replace(setting, grad_mode=_choose_grad_mode(step, setting))
    module = StepModule(step)
    args, kwargs = split_inputs(step.inputs)
    for path, leaf in list_leaves((args, kwargs)):
        if isinstance(leaf, Iterator) and step.kind != "call":
            refuse_iterator("inputs", path, leaf)
    loaded = make_loaded(
        module,
        repeat_input(args, kwargs),
        setting,
        name=step.name,
        kind=step.kind,
        units=step.units,
        options={"seed": setting.seed, "inputs": "given", "weights": "given"},
        source=f"a step, {getattr(step.function, '__module__', '')}.{step.name}",
    )
    _find_state(loaded, module)
    setting = replace(setting, grad_mode=_follow_grad_mode(setting.grad_mode, module))
    first = next(iter(flatten_tensors((args, kwargs))), None)
    # What is called with weights of the call (`torch.func.functional_call`) may have none itself.
    tensors = [*module.parameters(), *module.buffers()]
    device = resolve_device([item for item in tensors if not item.is_meta], setting, first)
    module.choose_returned(device, args, kwargs)
    pair = _pair_inputs(step, device, setting.seed)
    if module.varying is not None:  # other values ask for other work: nothing agrees on both
        pair = repeat_input(pair.args, pair.kwargs)
    batch, sequence = resolve_user_sizes(setting, pair)
    return replace(
        loaded,
        pair=pair,
        warnings=(*pair.warnings, *_describe_module(module)),
        parameter_count=sum(parameter.numel() for parameter in module.parameters()),
        setting=replace(
            setting,
            # A label of what is measured, and float64 has none.
            dtype=None if step.kind == "call" else resolve_dtype(module, setting, first),
            device=device,
            batch=batch,
            sequence=step.sequence if sequence is None else sequence,
        ),
    )


def is_function(model: object) -> bool:
    """Whether this is a callable that becomes a step, by `ftax.step` with its inputs."""
    return callable(model) and not isinstance(model, nn.Module | Step | type)


def make_step_of(function: Callable[..., Any], given: Given | None, setting: Setting) -> Step:
    """`ftax.step` of ``function`` with these inputs, of the setting's size."""
    if given is None:
        return make_step(function)
    sized = given.at(setting)
    return make_step(function, sized.inputs, check_inputs=sized.check_inputs)


def _choose_grad_mode(step: Step, setting: Setting) -> GradMode:
    """The step's own, or the caller's; "no_grad" where the setting says so.

    Raises InvalidArgumentError where it says so of a step that has a mode of its own.
    """
    if step.grad_mode is not None:
        if setting.grad_mode == "no_grad" != step.grad_mode:
            raise InvalidArgumentError(
                f"grad_mode is 'no_grad', but a {step.kind} step runs in {step.grad_mode} mode: "
                "leave it out, or give the function to ftax.step"
            )
        return step.grad_mode
    mode = read_grad_mode()
    return "no_grad" if mode == "grad" and setting.grad_mode == "no_grad" else mode


def _follow_grad_mode(mode: GradMode, module: StepModule) -> GradMode:
    """The caller's, unless the step switches gradients off itself and autograd records nothing."""
    seen = module.grad_modes
    if module.step.grad_mode is not None or mode != "grad" or "grad" in seen:
        return mode
    return "inference" if "inference" in seen else "no_grad" if "no_grad" in seen else mode


def _find_state(loaded: LoadedModel, module: StepModule) -> None:
    calls = 0

    def call() -> None:
        nonlocal calls
        calls += 1
        with loaded.guard():
            _refuse_meta(call_model(loaded.call), module)

    try:
        with keep_generators():
            module.step.undo_later(module.find_state(call))
    except UnsupportedError:
        raise
    except FtaxError as error:
        raise type(error)(f"call {calls} of the step {loaded.name}: {describe(error)}") from error


def _refuse_meta(output: tuple[Any, Any], module: StepModule) -> None:
    """Raises UnsupportedError for a step whose results hold nothing that could be compared."""
    if any(tensor.is_meta for tensor in find_tensors(output)):
        raise UnsupportedError(
            f"the step {module.step.name} returns a tensor on the meta device, which holds nothing "
            "to check: build the model with weights"
        )


def _describe_module(module: StepModule) -> Iterator[str]:
    yield from _describe_growth(module.kept_bytes)
    yield from _describe_work(module)
    if names := module.iterators:
        yield (
            f"next({', '.join(names)}) gave the same batch in each run, so that runs are the same "
            "work; what the next one costs is timed after the rounds"
        )


def _describe_growth(kept_bytes: int) -> tuple[str, ...]:
    if not kept_bytes:
        return ()
    return (
        f"each call leaves {kept_bytes:,} bytes of what it computes behind, so memory grows from "
        "run to run (a list of losses keeps their graphs): drop it in reset=, or keep numbers "
        "instead of tensors",
    )


def _describe_work(module: StepModule) -> tuple[str, ...]:
    if module.varying is None:
        return ()
    return (
        f"{type(module.varying).__name__} calls its closure as often as values ask for, so that "
        "the work of a step varies. Each run starts from the state that was found: weights, and "
        "what the optimizer keeps, are put back before it. A later step may take more or less, "
        "and programs are checked on the given inputs alone. What can be captured is the closure: "
        "optimizer.step(ftax.capture(closure, ()))",
    )


def _pair_inputs(step: Step, device: str, seed: int) -> InputPair:
    args, kwargs = split_inputs(step.inputs)
    if not flatten_tensors((args, kwargs)):
        return repeat_input(args, kwargs, warnings=(_ONE_INPUT,))
    # An inference tensor could not be saved for a backward pass.
    with torch.inference_mode(False):
        pair = pair_user_inputs(
            Given(inputs=step.inputs, check_inputs=step.check_inputs, objects=step.kind != "call"),
            device,
            seed,
        )
    if step.check_inputs is None:
        main = flatten_tensors((pair.args, dict(pair.kwargs)))
        check = flatten_tensors((pair.check_args, dict(pair.check_kwargs)))
        for tensor, drawn in zip(main, check, strict=True):
            if tensor.requires_grad and drawn.is_leaf:
                drawn.requires_grad_()
    return pair
