"""Makes a step ready: runs it a few times to see what it calls and writes, and puts that back.

The surprising choice: device and dtype are not asked for. A step is code that has chosen both; they
are read from the modules that it was seen to call, or else from its inputs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from ftax import _core
from ftax.errors import FtaxError, InvalidArgumentError, UnsupportedError, describe
from ftax.steps.build import make_loaded, pair_user_inputs, resolve_user_sizes
from ftax.steps.inputs import InputPair
from ftax.steps.load_module import resolve_device, resolve_dtype
from ftax.steps.loaded import LoadedModel, flatten_tensors
from ftax.steps.outputs import call_model, flatten_outputs
from ftax.steps.setting import GradMode, Setting
from ftax.steps.state import keep_generators
from ftax.steps.step import Step
from ftax.steps.step_module import StepModule
from ftax.steps.user_inputs import Given, split_inputs

_CALLS = 4
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
    for name in ("attention", "use_cache", "tiny"):
        if getattr(setting, name):
            raise InvalidArgumentError(
                f"{name} is {getattr(setting, name)!r}, but a step is already built: leave {name} "
                "out and build the step that way"
            )
    setting = replace(setting, grad_mode=_choose_grad_mode(step, setting))
    module = StepModule(step)
    args, kwargs = split_inputs(step.inputs)
    loaded = make_loaded(
        module,
        InputPair(args=args, kwargs=kwargs, check_args=args, check_kwargs=kwargs),
        setting,
        name=step.name,
        kind=step.kind,
        units=step.units,
        unit=step.unit,
        options={"seed": setting.seed, "inputs": "given", "weights": "given"},
        source=f"a step, {getattr(step.function, '__module__', '')}.{step.name}",
    )
    _find_state(loaded, module)
    first = next(iter(flatten_tensors((args, kwargs))), None)
    device = resolve_device(module, setting, first)
    module.returned = [item for item in module.written if str(item.device) == device]
    growth = _find_growth(loaded, module, device)
    pair = _pair_inputs(step, device, setting.seed)
    batch, sequence = resolve_user_sizes(setting, pair)
    return replace(
        loaded,
        args=pair.args,
        kwargs=pair.kwargs,
        check_args=pair.check_args,
        check_kwargs=pair.check_kwargs,
        varied=pair.varied,
        steady_check=pair.steady_check,
        warnings=(*pair.warnings, *growth),
        parameter_count=sum(parameter.numel() for parameter in module.parameters()),
        setting=replace(
            setting,
            dtype=resolve_dtype(module, setting, first),
            device=device,
            batch=batch,
            sequence=sequence,
        ),
    )


def _choose_grad_mode(step: Step, setting: Setting) -> GradMode:
    """The step's own, or the caller's; "no_grad" where the setting says so."""
    if step.grad_mode is not None:
        return step.grad_mode
    if setting.grad_mode == "no_grad" or not torch.is_grad_enabled():
        return "inference" if torch.is_inference_mode_enabled() else "no_grad"
    return "grad"


def _find_state(loaded: LoadedModel, module: StepModule) -> None:
    calls = 0

    def call() -> None:
        nonlocal calls
        calls += 1
        with loaded.guard():
            _require_tensors(call_model(loaded.call), module)

    try:
        with keep_generators():
            module.step.undo_later(module.find_state(call))
    except UnsupportedError:
        raise
    except FtaxError as error:
        raise type(error)(f"call {calls} of the step {loaded.name}: {describe(error)}") from error


def _find_growth(loaded: LoadedModel, module: StepModule, device: str) -> tuple[str, ...]:
    """What to know of a step that keeps more memory with each call: graphs in a list of losses."""
    module.drop_gradients()

    def call() -> None:
        loaded.prepare()
        with loaded.guard():
            call_model(loaded.bind())

    with keep_generators():
        _, *kept = _core.measure_kept_bytes(call, device, _CALLS)  # the first one makes gradients
    module.restore()
    least = min(kept)
    if least <= 0:
        return ()
    return (
        f"memory grows by {least:,} bytes with each call: the step keeps tensors alive (a list of "
        "losses keeps their graphs; keep loss.detach() or loss.item()), so a long measurement may "
        "run out of it",
    )


def _require_tensors(output: tuple[Any, Any], module: StepModule) -> None:
    """Raises UnsupportedError for a step by whose results nothing can be checked."""
    result = output[0]
    try:
        flatten_outputs((result, module.step.state))
    except UnsupportedError:
        if result is None:
            raise UnsupportedError(
                f"the step {module.step.name} returns nothing: return a tensor that it computes, "
                "such as its loss, by which every way to run it is checked"
            ) from None
        raise


def _pair_inputs(step: Step, device: str, seed: int) -> InputPair:
    args, kwargs = split_inputs(step.inputs)
    if not flatten_tensors((args, kwargs)):
        return InputPair(
            args=args, kwargs=kwargs, check_args=args, check_kwargs=kwargs, warnings=(_ONE_INPUT,)
        )
    return pair_user_inputs(Given(inputs=step.inputs, check_inputs=step.check_inputs), device, seed)
