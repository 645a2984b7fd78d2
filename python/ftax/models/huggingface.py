"""Everything that touches the transformers library: building from a configuration, loading a
folder.

The surprising choice: nothing here names transformers in an import statement. It costs seconds to
import, so it is imported when a model is built, offline and silent, and its settings are put back.
"""

import importlib
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ftax.errors import InvalidArgumentError, UnavailableError, UnsupportedError
from ftax.models.spec import Attention, Variant

_WEIGHT_FILES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
# The widths of a tiny encoder, in the words that most configurations share.
TINY_ENCODER: Mapping[str, Any] = {
    "hidden_size": 32,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "vocab_size": 1000,
}


def from_config(
    *,
    model: str,
    config: str,
    settings: Mapping[str, Any] | None = None,
    tiny: Mapping[str, Any] | None = None,
) -> Callable[[Variant], nn.Module]:
    """A `ModelSpec.build` that makes `transformers.<model>(transformers.<config>(**settings))`.

    `tiny` are the settings that the tiny form changes on top: widths, never depths or operators.
    """

    def build(variant: Variant) -> nn.Module:
        chosen = {**(settings or {}), **((tiny or {}) if variant.tiny else {})}
        if variant.attention is not None:
            chosen["attn_implementation"] = variant.attention
        if variant.use_cache is not None:
            chosen["use_cache"] = variant.use_cache
        with quiet_transformers() as transformers:
            architecture = getattr(transformers, model)
            # In passing, some say that they pad or miss a fused kernel: the entry's note does too.
            for name in (architecture.__module__, "transformers.integrations.hub_kernels"):
                logging.getLogger(name).setLevel(logging.ERROR)
            built: nn.Module = architecture(getattr(transformers, config)(**chosen))
        return built

    return build


@contextmanager
def quiet_transformers() -> Iterator[Any]:
    """The transformers module, with the network, its log, progress bars and warnings off inside."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            transformers = importlib.import_module("transformers")
            hub: Any = importlib.import_module("huggingface_hub.constants")
        except ImportError as error:
            raise UnavailableError(
                f"this model needs the transformers package, which does not import ({error}): "
                "pip install 'ftax[models]'"
            ) from error
        log = transformers.utils.logging
        # The environment variable is read once, at import: this is what the library asks later.
        offline, verbosity, bars = (
            hub.HF_HUB_OFFLINE,
            log.get_verbosity(),
            log.is_progress_bar_enabled(),
        )
        hub.HF_HUB_OFFLINE = True
        log.set_verbosity_error()
        log.disable_progress_bar()
        try:
            yield transformers
        finally:
            hub.HF_HUB_OFFLINE = offline
            log.set_verbosity(verbosity)
            if bars:
                log.enable_progress_bar()


def load_folder_config(path: Path, attention: Attention | None, use_cache: bool) -> Any:
    """The configuration in `path`; raises UnsupportedError if transformers cannot use it."""
    with quiet_transformers() as transformers:
        try:
            config = transformers.AutoConfig.from_pretrained(
                str(path),
                local_files_only=True,
                # Without an answer, transformers asks on the terminal.
                trust_remote_code=False,
                **({} if attention is None else {"attn_implementation": attention}),
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UnsupportedError(
                f"transformers {transformers.__version__} cannot use {path / 'config.json'} "
                f"({error}): build the module yourself and pass it with inputs="
            ) from error
    if hasattr(config, "use_cache"):
        config.use_cache = use_cache
    elif use_cache:
        raise InvalidArgumentError(
            f"use_cache=True, but the model in {path} has no key-value cache: leave use_cache out"
        )
    return config


def has_weights(path: Path) -> bool:
    """Whether the folder holds weights that torch can read."""
    return any((path / name).is_file() for name in _WEIGHT_FILES)


def build_folder_model(config: Any) -> nn.Module:
    """The module that `config` describes, with weights still to be filled."""
    with quiet_transformers() as transformers:
        architecture = _architecture(transformers, config)
        if architecture is transformers.AutoModel:
            built: nn.Module = architecture.from_config(config)
        else:
            built = architecture(config)
    return built


def load_folder_model(path: Path, config: Any) -> tuple[nn.Module, tuple[str, ...]]:
    """The module in `path` with the folder's weights in fp32, and what did not fit.

    Raises InvalidArgumentError if the weights cannot be read.
    """
    with quiet_transformers() as transformers:
        try:
            module, report = _architecture(transformers, config).from_pretrained(
                str(path),
                config=config,
                local_files_only=True,
                trust_remote_code=False,
                dtype=torch.float32,
                output_loading_info=True,
            )
        # Each file format fails with a type of its own.
        except Exception as error:
            raise InvalidArgumentError(
                f"the weights in {path} cannot be loaded ({type(error).__name__}: {error}): "
                "save the model again with save_pretrained"
            ) from error
    return module, _describe_misfits(report)


def _describe_misfits(report: Mapping[str, Any]) -> tuple[str, ...]:
    missing = sorted(str(key) for key in report.get("missing_keys", ()))
    unexpected = sorted(str(key) for key in report.get("unexpected_keys", ()))
    notes = []
    if missing:
        notes.append(
            f"{len(missing)} parameters are not in the folder and have random values "
            f"(the first: {missing[0]})"
        )
    if unexpected:
        notes.append(
            f"{len(unexpected)} tensors of the folder belong to no parameter and were left out "
            f"(the first: {unexpected[0]})"
        )
    return tuple(notes)


def _architecture(transformers: Any, config: Any) -> Any:
    """The class that the folder was saved from, so that its head is measured, or AutoModel."""
    for name in config.architectures or ():
        found = getattr(transformers, name, None)
        if found is not None:
            return found
    return transformers.AutoModel
