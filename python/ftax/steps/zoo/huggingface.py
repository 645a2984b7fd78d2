"""Everything that touches the transformers library: building from a configuration, loading a
folder.

Nothing here names transformers in an import statement. It costs seconds to import, so it is
imported when a model is built, offline and silent, and its settings are put back.
"""

import importlib
import importlib.metadata
import json
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ftax.errors import (
    FtaxError,
    InvalidArgumentError,
    RunnerError,
    UnavailableError,
    UnsupportedError,
    describe,
    describe_fault,
    is_out_of_memory,
)
from ftax.steps.spec import Attention, Variant

_WEIGHT_FILES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
# Ends of the settings that choose between implementations of one part of a model.
_CHOICES = ("attn_implementation", "experts_implementation")
# Of each of these something is made in Python before anything asks for memory.
_MOST = {"layer": 10_000, "expert": 10_000, "num_labels": 1_000_000}


def from_config(
    model: str,
    settings: Mapping[str, Any] | None = None,
    tiny: Mapping[str, Any] | None = None,
) -> Callable[[Variant], nn.Module]:
    """A `ModelSpec.build` that makes `transformers.<model>` in a configuration of `settings`.

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
            built: nn.Module = architecture(architecture.config_class(**chosen))
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


@contextmanager
def blame_config(path: Path) -> Iterator[None]:
    """Inside, what is raised becomes UnsupportedError and names the config.json in `path`.

    Errors of ours pass, and so does memory that ran out, of which the size of the model is told.
    """
    try:
        yield
    except FtaxError:
        raise
    # A configuration is any JSON, and the library believes it: what it trips over may be anything.
    except Exception as error:
        if is_out_of_memory(error):
            raise RunnerError(f"the model in {path} was not built: {describe(error)}") from error
        version = importlib.metadata.version("transformers")
        raise UnsupportedError(
            f"transformers {version} cannot use {path / 'config.json'} "
            f"({describe_fault(error)}): build the module yourself and pass it with inputs="
        ) from error


def load_folder_config(path: Path, attention: Attention | None, use_cache: bool) -> Any:
    """The configuration in `path`.

    Raises UnsupportedError if it asks for code of others or for weights that need another library.
    """
    _refuse_foreign_wishes(path)
    with quiet_transformers() as transformers:
        config = transformers.AutoConfig.from_pretrained(
            str(path),
            local_files_only=True,
            # Without an answer, transformers asks on the terminal.
            trust_remote_code=False,
            **({} if attention is None else {"attn_implementation": attention}),
        )
    if hasattr(config, "use_cache"):
        config.use_cache = use_cache
    elif use_cache:
        raise InvalidArgumentError(
            f"use_cache=True, but the model in {path} has no key-value cache: leave use_cache out"
        )
    return config


def _refuse_foreign_wishes(path: Path) -> None:
    """What transformers would fetch or run because a file says so, beside auto_map; and counts that
    it would not come to the end of."""
    if (adapter := path / "adapter_config.json").exists():
        raise UnsupportedError(
            f"{adapter} makes the folder an adapter of another model, which ftax does not load: "
            "merge the two and save the model with save_pretrained"
        )
    file = path / "config.json"
    pending: list[Any] = [json.loads(file.read_text(encoding="utf-8"))]
    while pending:
        item = pending.pop()
        if isinstance(item, list):
            pending += item
        if not isinstance(item, dict):
            continue
        pending += item.values()
        if item.get("quantization_config"):
            raise UnsupportedError(
                f"{file} asks for quantised weights (quantization_config), which ftax does not "
                "load: build the module yourself and pass it with inputs="
            )
        for key, value in item.items():
            # A repository's name, for example, is a kernel that would be run from the hub's cache.
            if key.endswith(_CHOICES) and not _is_plain_choice(value):
                raise UnsupportedError(
                    f"{file} has {key} {value!r}, which is no implementation of the library "
                    "itself: write one, such as 'sdpa', or leave it out"
                )
            for word, most in _MOST.items():
                if word in key and isinstance(value, int | float) and value > most:
                    raise UnsupportedError(
                        f"{file} has {key} {value:g}, more than any model that could be built here "
                        f"({most:,}): correct it"
                    )


def _is_plain_choice(value: Any) -> bool:
    if isinstance(value, dict):  # one of each part of the model
        return all(map(_is_plain_choice, value.values()))
    return value is None or (isinstance(value, str) and value.isidentifier())


def has_weights(path: Path) -> bool:
    """Whether the folder holds weights that torch can read."""
    return any((path / name).is_file() for name in _WEIGHT_FILES)


def build_folder_model(config: Any) -> nn.Module:
    """The module that `config` describes, with weights still to be filled."""
    with quiet_transformers() as transformers:
        architecture = _architecture(transformers, config)
        if architecture is transformers.AutoModel:
            built: nn.Module = architecture.from_config(config, trust_remote_code=False)
        else:
            built = architecture(config)
    return built


def load_folder_model(path: Path, config: Any) -> tuple[nn.Module, tuple[str, ...]]:
    """The module in `path` with the folder's weights in fp32, and what did not fit.

    Raises InvalidArgumentError if the weights cannot be read.
    """
    with quiet_transformers() as transformers:
        architecture = _architecture(transformers, config)
        try:
            module, report = architecture.from_pretrained(
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
                f"the weights in {path} cannot be loaded ({describe_fault(error)}): "
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
    """The class that the folder was saved from, so that its head is measured, or AutoModel.

    Raises UnsupportedError for a name that is no model of the library, or none of this type.
    """
    for name in config.architectures or ():
        found = getattr(transformers, name, None)
        if found is None:  # a class of somebody else, whose body may be one of the library
            continue
        if not _is_model(transformers, found):
            raise UnsupportedError(
                f"config.json names the architecture {name!r}, which is no model of transformers: "
                "write the class that the model was saved from, or leave architectures out"
            )
        if found.config_class is not None and not isinstance(config, found.config_class):
            raise UnsupportedError(
                f"config.json names the architecture {name!r}, which is not of the model_type "
                f"{config.model_type!r}: write the two that belong together"
            )
        return found
    return transformers.AutoModel


def _is_model(transformers: Any, found: Any) -> bool:
    """Whether it is a class of a model that the library itself defines, and no other attribute."""
    return (
        isinstance(found, type)
        and issubclass(found, transformers.PreTrainedModel)
        and found.__module__.startswith("transformers.models.")
    )
