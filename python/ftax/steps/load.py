"""`load_model`: a name, a folder, a module or a step in; what is ready to be measured out.

A step of a model by name (`step="decode"` or `step="train"`) is made of the model's forward pass,
loaded first. A model that is trained by name has no labels: its loss is the mean square of its
first output, which any model has. For another loss there is `ftax.train`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Unpack, cast

import torch
from torch import nn

from ftax.errors import InvalidArgumentError, describe
from ftax.steps.decode import decode
from ftax.steps.load_code import is_code, load_forward
from ftax.steps.load_step import is_function, load_step, make_step_of
from ftax.steps.loaded import LoadedModel
from ftax.steps.outputs import flatten_outputs
from ftax.steps.setting import STEP_OPTIONS, Setting, SettingOptions, normalize_device, read_setting
from ftax.steps.step import Step
from ftax.steps.train import train
from ftax.steps.user_inputs import Given, read_given


def load_model(
    model: str | os.PathLike[str] | nn.Module | Step | Callable[..., Any],
    *,
    inputs: Any = None,
    check_inputs: Any = None,
    **options: Unpack[SettingOptions],
) -> LoadedModel:
    """Builds or takes a model, with a main input and a second one to check programs on.

    `model` is a name of `list_models()` or `bert-<layers>x<width>`, the path of a local Hugging
    Face folder, a module, a function (`ftax.step` of it), or a name in your code:
    "my_package.model:make" or "./file.py:make" is a module, or a function without arguments that
    returns one, or a pair of a module or a function and its inputs.
    Names come before paths: write "./gpt2" for a folder called gpt2. Nothing is ever downloaded.

    `inputs` is needed for a module and optional otherwise: a tensor (the one positional argument),
    a tuple or list (positional arguments), a dict (keyword arguments), a pair of a tuple and a dict
    (both), or a function from a batch, or from a batch and a sequence, to one of these.
    `check_inputs` has the same form and shapes with other values; without it, the
    loader draws values like those of `inputs` and lists in `warnings` what it could not vary. Made
    inputs are token ids uniform over the vocabulary, (batch, sequence) int64, without an attention
    mask, images (batch, 3, side, side), or sound (batch, samples); the latter two from a standard
    normal distribution (paper sections 4, D and E).

    `options` are the fields of `ftax.Setting`, or `setting=` one; those that say how a step is run
    (threads, transfers, ...) count wherever the model is measured. `None` for `dtype`, `device`,
    `batch` and `sequence` means fp32, cpu, 1 and the model's default (128 tokens, 8 if tiny; 2 s of
    sound); for a module: what it and its first input have. A module is not converted or moved: a
    dtype or device that it does not have is an error. It is put in eval mode and its parameters
    stop requiring gradients, in place, and `warnings` says so.

    `seed` determines weights and inputs; global random states are left as found. `attention`,
    `use_cache` and `tiny` choose a variant of a zoo model; a folder takes the first two.

    Raises InvalidArgumentError for a value that is wrong or that the model does not have,
    UnavailableError for a device or package that this machine lacks, and UnsupportedError for what
    ftax cannot load.
    """
    setting = read_setting(options, load_model.__kwdefaults__)
    if setting.device is not None:
        setting = replace(setting, device=normalize_device(setting.device))
    given = read_given(inputs, check_inputs)
    if is_function(model):
        return load_step(make_step_of(cast(Any, model), given, setting), setting, None)
    if isinstance(model, Step):
        return load_step(model, setting, given)
    if setting.step != "forward":
        return _load_named_step(model, setting, given)
    if not (isinstance(model, str) and is_code(model)):
        _refuse_autograd(setting)
    return load_forward(model, setting, given)


def _load_named_step(model: Any, setting: Setting, given: Given | None) -> LoadedModel:
    if isinstance(model, nn.Module) or (isinstance(model, str) and is_code(model)):
        what = "a module" if isinstance(model, nn.Module) else model
        raise InvalidArgumentError(
            f"step is {setting.step!r}, which is of models by name, and this is {what}: give "
            "ftax.decode(...) or ftax.train(...) of it, or a function that returns one, and leave "
            "step out"
        )
    if given is not None:
        raise InvalidArgumentError(
            f"step is {setting.step!r}, of a model by name with inputs of its own: leave inputs "
            "out, or give ftax.decode(...) or ftax.train(...)"
        )
    return make_named_step(load_forward(model, as_forward(setting), None), setting)


def _refuse_autograd(setting: Setting) -> None:
    if setting.grad_mode == "grad":
        raise InvalidArgumentError(
            "grad_mode is 'grad', which is of steps that train: a forward pass is measured without "
            "autograd; give ftax.train(...) or ftax.step(...), or leave grad_mode out"
        )


_OPTIMIZERS: dict[str, tuple[type[torch.optim.Optimizer], dict[str, Any]]] = {
    "sgd": (torch.optim.SGD, {"momentum": 0.9}),
    "adam": (torch.optim.Adam, {}),
    "adamw": (torch.optim.AdamW, {}),
}
_FORMS: dict[str, dict[str, Any]] = {
    "forloop": {"foreach": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
    "capturable": {"capturable": True},
}
_LEARNING_RATE = 1e-5  # random weights stay finite over a whole measurement


def as_forward(setting: Setting) -> Setting:
    """The setting of the model's forward pass, of which the step is made."""
    usual = {name: getattr(Setting(), name) for name in ("step", "grad_mode", *STEP_OPTIONS)}
    return replace(setting, **usual)


def make_named_step(loaded: LoadedModel, setting: Setting) -> LoadedModel:
    """The step of the setting's kind of a model that was loaded for its forward pass."""
    finish = loaded.finish

    def finish_step(sized: Setting) -> LoadedModel:
        assert finish is not None
        return make_named_step(finish(as_forward(sized)), sized)

    step = (
        _make_decode(loaded, setting) if setting.step == "decode" else _make_train(loaded, setting)
    )
    plain = Setting(
        dtype=loaded.setting.dtype,
        device=loaded.device,
        seed=setting.seed,
        grad_mode=setting.grad_mode,
    )
    made = load_step(step, plain, None)
    return replace(
        made,
        source=f"{setting.step} step of {loaded.source}",
        again=loaded.again,
        finish=None if finish is None else finish_step,
        options={**loaded.options, **_list_options(setting)},
        parameter_count=loaded.parameter_count,
        max_sequence=loaded.max_sequence,
        warnings=(*loaded.warnings, *made.warnings),
        setting=replace(
            loaded.setting,
            grad_mode=made.setting.grad_mode,
            **{name: getattr(setting, name) for name in ("step", *STEP_OPTIONS)},
        ),
    )


def _list_options(setting: Setting) -> dict[str, Any]:
    return {name: setting.chosen[name] for name in STEP_OPTIONS if name in setting.chosen}


def _make_decode(loaded: LoadedModel, setting: Setting) -> Step:
    prompt = next(iter(loaded.flat_inputs()), None)
    return decode(
        loaded,
        prompt,
        tokens=setting.units,
        cache=setting.cache or "dynamic",
        sample=setting.sample,
        name=loaded.name,
    )


def _make_train(loaded: LoadedModel, setting: Setting) -> Step:
    module = loaded.module.train().requires_grad_(True)
    optimizer = _make_optimizer(setting.optimizer or "adamw", module)
    return train(
        module,
        _mean_square,
        optimizer,
        (loaded.args, dict(loaded.kwargs)),
        check_batch=(loaded.check_args, dict(loaded.check_kwargs)),
        name=loaded.name,
    )


def _mean_square(model: nn.Module, *args: Any, **kwargs: Any) -> torch.Tensor:
    return flatten_outputs(model(*args, **kwargs))[0].float().square().mean()


def _make_optimizer(name: str, module: nn.Module) -> torch.optim.Optimizer:
    """Raises InvalidArgumentError for one that there is not, or not on this device."""
    base, _, form = name.partition("-")
    if base not in _OPTIMIZERS or (form and form not in _FORMS):
        raise InvalidArgumentError(
            f"optimizer is {name!r}: give {', '.join(_OPTIMIZERS)}, or one of them with "
            f"{', '.join(f'-{word}' for word in _FORMS)}"
        )
    kind, options = _OPTIMIZERS[base]
    try:
        return kind(
            module.parameters(), **{**options, **_FORMS.get(form, {}), "lr": _LEARNING_RATE}
        )
    except (TypeError, RuntimeError, AssertionError) as error:
        raise InvalidArgumentError(
            f"optimizer is {name!r}, which torch refuses: {describe(error)}"
        ) from error
