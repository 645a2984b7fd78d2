"""What a grid refuses, each with the bad value and the remedy."""

from __future__ import annotations

import re
from typing import Any

from ftax.errors import InvalidArgumentError
from ftax.runtimes.catalogue import check_host, find_runtime
from ftax.steps.paths import describe_path
from ftax.steps.setting import Setting
from ftax.steps.spec import ModelSpec
from ftax.steps.zoo.registry import find_spec, list_models
from ftax.timing.candidate import Host

HOSTS = ("python", "cpp")
# Fields of a setting that a grid has for all of its cells.
OF_GRIDS = (
    "tiny", "attention", "use_cache", "seed", "grad_mode", "cold", "transfers", "runtime_options",
)  # fmt: skip
_DEVICE = re.compile(r"cpu|cuda(:\d+)?")


def split_runtime(text: str) -> tuple[str, str | None]:
    """Name and host of "name/host"; None for a name alone, which may have slashes of its own."""
    name, slash, host = text.rpartition("/")
    return (name, host) if slash and host in HOSTS else (text, None)


def clean_axis(axis: str, value: Any) -> tuple[Any, ...]:
    """The values of an axis, each once. Raises InvalidArgumentError for an empty one."""
    if isinstance(value, str) or not isinstance(value, list | tuple | range):
        raise InvalidArgumentError(f"{axis} is {value!r}; it has to be a list of values")
    if not value:
        raise InvalidArgumentError(
            f"{axis} is empty, so the grid has no cell; give at least one value or leave it out"
        )
    for item in value:
        if not isinstance(item, str | int | float | None):
            raise InvalidArgumentError(f"{axis} has {item!r}; its values are names or numbers")
    return tuple(dict.fromkeys(value))


def check_choices(name: str, values: tuple[Any, ...], choices: tuple[str, ...]) -> None:
    """Raise InvalidArgumentError for a value that is none of ``choices``."""
    for value in values:
        if value not in choices:
            raise InvalidArgumentError(f"{name} has {value!r}; there are {', '.join(choices)}")


def check_sizes(axis: str, values: tuple[Any, ...], *, default: bool) -> None:
    """Raise InvalidArgumentError for what is no positive integer; None passes with ``default``."""
    for value in values:
        if value is None and default:
            continue
        if type(value) is not int or value < 1:
            others = ", or 'default'" if default else ""
            raise InvalidArgumentError(f"{axis} has {value!r}; give integers of at least 1{others}")


def check_devices(devices: tuple[Any, ...], runtimes: tuple[tuple[str, Host], ...] = ()) -> None:
    """Raise InvalidArgumentError for what is no device, and for one that a runtime never has."""
    for device in devices:
        if not isinstance(device, str) or not _DEVICE.fullmatch(device):
            raise InvalidArgumentError(
                f"devices has {device!r}; give 'cpu', 'cuda' or 'cuda:<number>'"
            )
    for runtime, _ in runtimes:
        kinds = find_runtime(runtime).devices
        for device in devices:
            if device.split(":")[0] not in kinds:
                raise InvalidArgumentError(
                    f"runtimes has {runtime!r}, which does not run on {device!r}; put it into a "
                    f"grid of its own with devices = {list(kinds)}"
                )


def check_setting(
    setting: Setting, devices: tuple[str, ...], runtimes: tuple[tuple[str, Host], ...]
) -> None:
    """Raise InvalidArgumentError for what a grid says otherwise, or not all of its cells have."""
    for name in setting.chosen:
        if name not in OF_GRIDS:
            raise InvalidArgumentError(
                f"setting has {name}, which is an axis of a grid or of the whole sweep; leave it "
                "out there"
            )
    for name in ("transfers", "cold"):
        if getattr(setting, name) and "cpu" in devices:
            raise InvalidArgumentError(
                f"{name} is True, but that is of a GPU and devices has 'cpu'; leave {name} out, or "
                "give devices = ['cuda']"
            )
    for runtime, _ in runtimes:
        find_runtime(runtime).check_options(setting.runtime_options)


def pair_runtimes(
    runtimes: tuple[Any, ...], hosts: tuple[str, ...]
) -> tuple[tuple[str, Host], ...]:
    """(runtime, host), each once. A name without a host goes with each of ``hosts`` that it has."""
    pairs: dict[tuple[str, Host], None] = {}
    for text in runtimes:
        if not isinstance(text, str):
            raise InvalidArgumentError(f"runtimes has {text!r}; write a name, or 'eager/python'")
        name, host = split_runtime(text)
        spec = find_runtime(name)
        wanted = [check_host(side) for side in (hosts if host is None else (host,))]
        found = [side for side in wanted if side in spec.hosts]
        if not found:
            why = spec.find_obstacle(host=wanted[0])
            raise InvalidArgumentError(
                f"runtimes has {text!r}, which cannot be driven from {' or '.join(wanted)} "
                f"({why}); write {name}/{spec.hosts[0]}"
            )
        pairs.update(dict.fromkeys((spec.name, side) for side in found))
    return tuple(pairs)


def find_zoo(model: Any) -> ModelSpec | None:
    """The entry of a zoo model; None for a folder. Raises InvalidArgumentError for neither."""
    if not isinstance(model, str):
        raise InvalidArgumentError(f"models has {model!r}; give names or paths of folders")
    if "/" in model and all(spec.name != model for spec in list_models()):
        return None
    return find_spec(model)


def check_folder(model: str, *, tiny: bool) -> None:
    """Raise InvalidArgumentError for a path that is no Hugging Face folder, or for a tiny one."""
    if describe_path(model) != "hf_folder":
        raise InvalidArgumentError(
            f"models has {model!r}, which is one exported program and no model that can be made "
            "in other sizes; give a name of `ftax models` or a Hugging Face folder"
        )
    if tiny:
        raise InvalidArgumentError(
            f"tiny is True, but the size of {model} is set by its config.json: leave tiny out, or "
            "put the folder into a grid of its own"
        )


def check_variant(spec: ModelSpec, sequences: tuple[int | None, ...], setting: Setting) -> None:
    """Raise InvalidArgumentError for a size or a choice that a model of the zoo does not have."""
    apart = "or put the model into a grid of its own"
    given = [length for length in sequences if length is not None]
    if given and spec.sequence is None:
        raise InvalidArgumentError(
            f"sequences has {given[0]}, but {spec.name} takes images, which have none: leave "
            f"sequences out, {apart}"
        )
    if given and spec.max_size is not None and max(given) > spec.max_size:
        raise InvalidArgumentError(
            f"sequences has {max(given)}, but {spec.name} takes at most {spec.max_size}: leave "
            f"that out, {apart}"
        )
    attention = setting.attention
    if attention is not None and attention not in spec.attentions:
        raise InvalidArgumentError(
            f"attention is {attention!r}, but {spec.name} has "
            f"{', '.join(spec.attentions) or 'no attention to choose'}: leave attention out, "
            f"{apart}"
        )
    if setting.use_cache and not spec.has_cache:
        raise InvalidArgumentError(
            f"use_cache is True, but {spec.name} has no key-value cache: leave use_cache out, "
            f"{apart}"
        )
