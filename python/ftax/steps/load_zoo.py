"""Loads a model that ftax builds: of the zoo, by its entry, or a local folder in the layout of
Hugging Face as if it were one (a config.json, and weights if there are any).

An option that the model does not have is an error even where it would do nothing, because it would
otherwise be stored with the result as if it had been measured. The class of a folder is the one
that config.json says it was saved from, not the bare AutoModel, so that a head is measured with it.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ftax.errors import InvalidArgumentError, UnsupportedError
from ftax.records.record import JsonScalar
from ftax.steps.build import build_random_module, check_sequence, finish_built_model
from ftax.steps.inputs import make_images, make_token_ids
from ftax.steps.loaded import LoadedModel
from ftax.steps.prompt import list_arguments
from ftax.steps.setting import Setting
from ftax.steps.spec import MakeInputs, ModelSpec, Shape, Variant
from ftax.steps.user_inputs import Given
from ftax.steps.weights import seeded_rng
from ftax.steps.zoo.huggingface import (
    blame_config,
    build_folder_model,
    has_weights,
    load_folder_config,
    load_folder_model,
)

# Enough pixels for the statistics of a batch norm behind the last stride.
_CALIBRATION_BATCH = 2
_TINY_CALIBRATION_BATCH = 16
_SAMPLING_HZ = 16_000

_TOKENS = 128
_IMAGE_SIZE = 224
_DECODER = "decoder_input_ids"
_MAKERS: dict[str, MakeInputs] = {"input_ids": make_token_ids, "pixel_values": make_images}


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
    return finish_built_model(
        module,
        spec,
        given,
        replace(setting, attention=variant.attention, use_cache=bool(variant.use_cache)),
        again=spec.name,
        options={
            "weights": "random",
            "attention": variant.attention,
            "use_cache": variant.use_cache,
            **_family_options(spec, tiny=variant.tiny),
        },
        check=partial(check_fits, spec),
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


def load_folder(path: Path, setting: Setting, given: Given | None) -> LoadedModel:
    """The model in the folder, with its weights, or with random ones and a warning."""
    if setting.tiny:
        raise InvalidArgumentError(
            f"tiny is True, but the size of {path} is set by its config.json: leave tiny out"
        )
    with blame_config(path):
        return _load(path, setting, given)


def _load(path: Path, setting: Setting, given: Given | None) -> LoadedModel:
    config = load_folder_config(path, setting.attention, setting.use_cache)
    size = _default_size(config)

    def check(setting: Setting) -> None:
        if given is None:
            _check_tokens(path, config, setting.sequence)

    check(setting)  # before anything is built
    random = not has_weights(path)
    if random:
        module = build_random_module(
            lambda: build_folder_model(config),
            _make_inputs,
            Shape(batch=_CALIBRATION_BATCH, size=size),
            setting.seed,
        )
        notes: tuple[str, ...] = (
            f"{path} has no weights that torch reads (safetensors or bin), so they are random",
        )
    else:
        # Parameters that the folder lacks are drawn from the global generator.
        with seeded_rng(setting.seed):
            module, notes = load_folder_model(path, config)
    return finish_built_model(
        module,
        _make_spec(path, config, module),
        given,
        setting,
        again=str(path.resolve()),
        options={
            "weights": "random" if random else "folder",
            "architecture": type(module).__name__,
            "attention": getattr(config, "_attn_implementation", None),
            "use_cache": getattr(config, "use_cache", None),
        },
        warnings=notes,
        check=check,
    )


def _make_spec(path: Path, config: Any, module: nn.Module) -> ModelSpec:
    """The folder as an entry like those of the zoo."""
    size = _default_size(config)
    return ModelSpec(
        name=path.resolve().name,
        family="text" if _main_input(module) == "input_ids" else "vision",
        description=f"the model in {path}",
        source=f"folder {path.resolve()}",
        parameter_count=sum(parameter.numel() for parameter in module.parameters()),
        build=lambda _: build_folder_model(config),
        make_inputs=_make_inputs,
        size=size,
        tiny_size=size,
        max_size=_find_limit(config),
    )


def _main_input(module: nn.Module) -> str:
    return str(getattr(module, "main_input_name", ""))


def _make_inputs(module: nn.Module, shape: Shape, generator: torch.Generator) -> tuple[Any, ...]:
    config: Any = module.config
    make = _MAKERS.get(_main_input(module))
    if getattr(config, "is_encoder_decoder", False):
        is_text = make is make_token_ids and hasattr(config, "vocab_size")
        make = _make_texts if is_text and _DECODER in list_arguments(module) else None
    if make is None:
        raise UnsupportedError(
            f"{type(module).__name__} takes more than token ids or images, so ftax cannot make its "
            "inputs: give inputs="
        )
    return make(module, shape, generator)


def _make_texts(module: nn.Module, shape: Shape, generator: torch.Generator) -> tuple[Any, ...]:
    """One for the encoder, and one of the same length for the decoder, as in training."""
    texts = {name: make_token_ids(module, shape, generator)[0] for name in ("input_ids", _DECODER)}
    names = list_arguments(module)
    return tuple(texts.get(name) for name in names[: names.index(_DECODER) + 1])


def _default_size(config: Any) -> int:
    """Tokens or pixels a side, as the paper has them or as near as the model allows."""
    if hasattr(config, "vocab_size"):
        return min(_TOKENS, _find_limit(config) or _TOKENS)
    image_size = getattr(config, "image_size", None)
    return image_size if isinstance(image_size, int) else _IMAGE_SIZE


def _check_tokens(path: Path, config: Any, sequence: int | None) -> None:
    if sequence is None:
        return
    if not hasattr(config, "vocab_size"):
        raise InvalidArgumentError(
            f"sequence is {sequence}, but the model in {path} takes no tokens: leave sequence out"
        )
    check_sequence(sequence, f"the model in {path}", "tokens", 1, _find_limit(config))


def _find_limit(config: Any) -> int | None:
    limit = getattr(config, "max_position_embeddings", None)
    return limit if isinstance(limit, int) else None
