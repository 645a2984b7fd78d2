"""Takes what a user made and makes it ready: a module, as it is, or a step.

A module is not converted, moved or copied. Only what inference needs is changed in place (eval
mode, no gradients); the record says so, and who measures puts it back. A step is run a few times to
see what it calls and writes, and that is put back. Its device and dtype are not asked for: it is
code that has chosen both; they are read from the modules that it was seen to call, or else from its
inputs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn

from ftax.errors import (
    FtaxError,
    InvalidArgumentError,
    UnsupportedError,
    describe,
    describe_fault,
    say_count,
)
from ftax.steps.build import make_loaded, pair_user_inputs, refuse_variant, resolve_user_sizes
from ftax.steps.input_trees import flatten_tensors, list_leaves
from ftax.steps.inputs import InputPair, repeat_input
from ftax.steps.loaded import LoadedModel
from ftax.steps.outputs import call_model, find_tensors
from ftax.steps.setting import GradMode, Setting, read_grad_mode
from ftax.steps.spec import TORCH_DTYPES, Dtype
from ftax.steps.state import keep_generators, refuse_lazy
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


def load_module(module: nn.Module, setting: Setting, given: Given | None) -> LoadedModel:
    """`module` with the user's inputs; raises where they, or the setting, do not fit."""
    kind = type(module)
    _refuse_odd_modules(module)
    if given is None:
        raise InvalidArgumentError(
            f"inputs is missing, and {kind.__name__} is not in the zoo, so ftax cannot make any: "
            "give them, for example load_model(module, inputs=torch.randn(1, 3, 224, 224))"
        )
    refuse_variant(setting, "module")
    sized = given.at(setting)
    first = _first_tensor(sized)
    device = resolve_device(_tensors_of(module), setting, first)
    dtype = resolve_dtype(module, setting, first)
    pair = pair_user_inputs(sized, device, setting.seed)
    batch, sequence = resolve_user_sizes(setting, pair)
    return make_loaded(
        module,
        pair,
        replace(setting, dtype=dtype, device=device, batch=batch, sequence=sequence),
        name=kind.__name__,
        options={"seed": setting.seed, "inputs": "given", "weights": "given"},
        source=f"module {kind.__module__}.{kind.__qualname__}",
        warnings=_prepare(module),
        finish=partial(load_module, module, given=given) if given.makes else None,
    )


def _refuse_odd_modules(module: nn.Module) -> None:
    """Raises UnsupportedError for modules that are none of Python, and those that are not ready."""
    for name, part in module.named_modules():
        where = f"its part {name!r}" if name else "the module"
        if isinstance(part, torch.jit.ScriptModule):
            raise UnsupportedError(
                f"{where} is a ScriptModule, which TorchScript runs and not Python: save the "
                "module with torch.jit.save, and give the file with runtime='torchscript'"
            )
        refuse_lazy(part, where)


def _prepare(module: nn.Module) -> tuple[str, ...]:
    """Puts `module` in eval mode without gradients, and says what that changed."""
    notes = []
    training = sum(part.training for part in module.modules())
    if training:
        notes.append(
            f"the module is in training mode ({say_count(training, 'part')}): measured in eval mode"
        )
    learning = sum(parameter.requires_grad for parameter in module.parameters())
    if learning:
        notes.append(f"{learning} parameters require gradients: measured without")
    try:  # by calls of their own: a method that somebody replaced may return nothing
        module.eval()
        module.requires_grad_(False)
    except Exception as error:
        raise UnsupportedError(
            f"the module cannot be put in eval mode without gradients "
            f"({describe_fault(error)}): let it take eval() and requires_grad_(False)"
        ) from error
    return tuple(notes)


def _tensors_of(module: nn.Module) -> list[torch.Tensor]:
    return [*module.parameters(), *module.buffers()]


def resolve_device(
    tensors: list[torch.Tensor], setting: Setting, first: torch.Tensor | None
) -> str:
    """Where a module with these tensors is, or else its first input. Raises where it is on
    several."""
    devices = sorted({str(tensor.device) for tensor in tensors})
    if len(devices) > 1:
        raise UnsupportedError(
            f"the module is spread over {', '.join(devices)}: "
            "move it to one device with module.to(...)"
        )
    if devices == ["meta"]:
        raise InvalidArgumentError(
            "the module is on the meta device, where it has no weights: "
            "give it some with module.to_empty(...) and load_state_dict(...)"
        )
    if not devices:
        return setting.device or ("cpu" if first is None else str(first.device))
    if setting.device is not None and devices[0] != setting.device:
        raise InvalidArgumentError(
            f"device is {setting.device!r}, but the module is on {devices[0]}: "
            f"move it with module.to({setting.device!r}), or leave device out"
        )
    return devices[0]


def resolve_dtype(module: nn.Module, setting: Setting, first: torch.Tensor | None) -> Dtype:
    """The dtype of most of the module's floating point values; of its inputs if it has none."""
    sizes: Counter[torch.dtype] = Counter()
    for tensor in _tensors_of(module) or ([] if first is None else [first]):
        if tensor.is_floating_point() or tensor.is_complex():
            sizes[tensor.dtype] += tensor.numel()
    if not sizes:
        return setting.dtype or "fp32"
    found = sizes.most_common(1)[0][0]
    names: dict[torch.dtype, Dtype] = {value: key for key, value in TORCH_DTYPES.items()}
    if found not in names:
        raise UnsupportedError(
            f"it computes in {found}, and ftax measures {', '.join(TORCH_DTYPES)}: convert "
            "weights and inputs, for example with .float()"
        )
    if setting.dtype is not None and setting.dtype != names[found]:
        raise InvalidArgumentError(
            f"dtype is {setting.dtype!r}, but the module is in {names[found]!r}: "
            f"convert module and inputs with .to({TORCH_DTYPES[setting.dtype]}), or leave dtype out"
        )
    return names[found]


def _first_tensor(given: Given) -> torch.Tensor | None:
    try:
        return next(iter(flatten_tensors(split_inputs(given.inputs))), None)
    except RecursionError:
        return None  # which `pair_user_inputs` refuses
