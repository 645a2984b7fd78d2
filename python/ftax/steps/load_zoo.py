"""Loads a model of the zoo by its entry.

An option that the model does not have is an error even where it would do nothing, because it would
otherwise be stored with the result as if it had been measured.
"""

from dataclasses import replace
from functools import partial

from torch import nn

from ftax.errors import InvalidArgumentError, UnsupportedError
from ftax.records.record import JsonScalar
from ftax.steps.build import build_random_module, check_sequence, finish_built_model
from ftax.steps.loaded import LoadedModel
from ftax.steps.setting import Setting
from ftax.steps.spec import ModelSpec, Shape, Variant
from ftax.steps.user_inputs import Given

# Enough pixels for the statistics of a batch norm behind the last stride.
_CALIBRATION_BATCH = 2
_TINY_CALIBRATION_BATCH = 16
_SAMPLING_HZ = 16_000


def load_zoo_model(spec: ModelSpec, setting: Setting, given: Given | None) -> LoadedModel:
    """The model that `spec` describes, in the variant and size that `setting` asks for."""
    check_fits(spec, setting)
    variant = Variant(
        attention=setting.attention or (spec.attentions[0] if spec.attentions else None),
        use_cache=setting.use_cache if spec.has_cache else None,
        tiny=setting.tiny,
    )
    size = spec.tiny_size if setting.tiny else spec.size
    calibration_batch = _TINY_CALIBRATION_BATCH if setting.tiny else _CALIBRATION_BATCH
    module = build_random_module(
        lambda: spec.build(variant),
        spec.make_inputs,
        Shape(batch=calibration_batch, size=size),
        setting.seed,
        spec.unit_layers,
    )
    return _finish(spec, variant, module, given, setting)


def _finish(
    spec: ModelSpec, variant: Variant, module: nn.Module, given: Given | None, setting: Setting
) -> LoadedModel:
    """The module with inputs of the size that `setting` asks for."""
    check_fits(spec, setting)
    return finish_built_model(
        module,
        spec,
        replace(setting, attention=variant.attention, use_cache=bool(variant.use_cache)),
        given,
        again=spec.name,
        options={
            "weights": "random",
            "attention": variant.attention,
            "use_cache": variant.use_cache,
            **_family_options(spec, tiny=variant.tiny),
        },
        finish=partial(_finish, spec, variant, module, given),
    )


def check_fits(spec: ModelSpec, setting: Setting) -> None:
    """Raises InvalidArgumentError for an option or a size that the model does not have, and
    UnsupportedError for a dtype in which it does not run."""
    if setting.sequence is not None:
        _check_length(spec, setting.sequence, tiny=setting.tiny)
    if setting.dtype is not None and setting.dtype not in spec.dtypes:
        raise UnsupportedError(
            f"{spec.name} does not run in {setting.dtype} ({spec.note}): "
            f"give {' or '.join(spec.dtypes)}"
        )
    if setting.attention is not None and setting.attention not in spec.attentions:
        choices = ", ".join(spec.attentions) or "no attention to choose"
        raise InvalidArgumentError(
            f"attention is {setting.attention!r}, but {spec.name} has {choices}: "
            "leave attention out or give one of its own"
        )
    if setting.use_cache and not spec.has_cache:
        raise InvalidArgumentError(
            f"use_cache is True, but {spec.name} has no key-value cache to return: "
            "leave use_cache out"
        )


def _check_length(spec: ModelSpec, sequence: int, *, tiny: bool) -> None:
    if spec.sequence is None:
        raise InvalidArgumentError(
            f"sequence is {sequence}, but {spec.name} takes images, which have none: "
            "leave sequence out"
        )
    least, most = spec.min_size, spec.max_size
    if spec.fixed_size:
        least = most = spec.tiny_size if tiny else spec.size
    check_sequence(sequence, spec.name, spec.unit, least, most)


def _family_options(spec: ModelSpec, *, tiny: bool) -> dict[str, JsonScalar]:
    if spec.family == "text":
        # The paper's dense requests pass none, and a mask changes which kernels run.
        return {"attention_mask": "none"}
    if spec.family == "speech":
        return {"attention_mask": "none", "sampling_hz": _SAMPLING_HZ}
    if spec.sequence is None:
        return {"image_size": spec.tiny_size if tiny else spec.size}
    return {}
