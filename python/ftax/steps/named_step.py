"""Steps of models by name: `step="decode"` or `step="train"` of a setting.

A model that is trained by name has no labels. Its loss is the mean square of its first output,
which any model has, so the step is the same one for all of them; who wants another loss writes it
(`ftax.train`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import nn

from ftax.errors import InvalidArgumentError, describe
from ftax.steps.decode import decode
from ftax.steps.load_step import load_step
from ftax.steps.loaded import LoadedModel
from ftax.steps.outputs import flatten_outputs
from ftax.steps.setting import STEP_OPTIONS, Setting
from ftax.steps.step import Step
from ftax.steps.train import train

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
