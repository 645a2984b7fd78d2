"""The list of the zoo's models and the look-up by name.

Some names are not in the list. `bert-<layers>x<width>` is a model for any depth and width, and so
is a layer with its sizes, so they are read and not looked up; and a model may have a second name,
under which results know it too.

Models that installed packages bring, through the entry point group ``ftax.models``, come after
them. An entry point is named as its model is, so that a name is found without importing other
packages. A package that is broken is left out of lists, and says why by name.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection
from dataclasses import replace
from importlib.metadata import EntryPoint, entry_points

from ftax.errors import FtaxError, InvalidArgumentError, UnavailableError, describe, name_type
from ftax.steps.spec import ModelSpec
from ftax.steps.zoo.decoders import DECODERS
from ftax.steps.zoo.encoders import (
    BERT_MODELS,
    EFFICIENT_ENCODERS,
    ENCODERS,
    SPEECH_MODELS,
    parse_bert,
)
from ftax.steps.zoo.layers import LAYER_MODELS, parse_layer_name
from ftax.steps.zoo.vision import VISION_MODELS

# The order is kept: tables and sweeps follow it.
_ALL: tuple[ModelSpec, ...] = (
    *BERT_MODELS,
    *ENCODERS,
    *EFFICIENT_ENCODERS,
    *DECODERS,
    *SPEECH_MODELS,
    *VISION_MODELS,
    *LAYER_MODELS,
)
_SPECS: dict[str, ModelSpec] = {spec.name: spec for spec in _ALL}
_SECOND_NAMES = {"llama-160m": "llama"}
# Each makes an entry of a name of its kind, and None of any other name.
_PARSERS: tuple[Callable[[str], ModelSpec | None], ...] = (
    parse_bert,
    parse_layer_name,
)

GROUP = "ftax.models"


def list_models() -> tuple[ModelSpec, ...]:
    """Every model of the zoo that has an entry: text first, then speech, images and layers; then
    those that installed packages bring."""
    return (*_SPECS.values(), *list_installed(_SPECS))


def find_spec(name: str) -> ModelSpec:
    """The zoo's entry for `name`, which may also be `bert-<layers>x<width>` or a sized layer, or a
    model of an installed package.

    Raises InvalidArgumentError with the closest name for any other, and UnavailableError for one
    whose package cannot be imported.
    """
    if name in _SPECS:
        return _SPECS[name]
    if name in _SECOND_NAMES:
        return replace(_SPECS[_SECOND_NAMES[name]], name=name)
    for parse in _PARSERS:
        spec = parse(name)
        if spec is not None:
            return spec
    if (brought := find_installed(name)) is not None:
        return brought
    close = _find_closest(name)
    hint = f"did you mean {close!r}? " if close else ""
    raise InvalidArgumentError(
        f"unknown model {name!r}: {hint}`ftax models` lists the {len(_SPECS)} models of the zoo, "
        "bert-<layers>x<width> is a BERT of any size, and single layers take sizes, as in "
        "layer-rnn-512-x2; a local folder or file is given by its path, and code as module:name"
    )


def is_model_name(name: str) -> bool:
    """Whether `find_spec` knows `name`."""
    try:
        find_spec(name)
    except InvalidArgumentError:
        return False
    except UnavailableError:  # known, and broken
        return True
    return True


def _find_closest(name: str) -> str | None:
    """The name that was meant: the same but for punctuation, the paper's word for it, a beginning
    of it, or a similar one."""
    wanted = _simplify(name)
    names = {_simplify(name): name for name in (*_SPECS, *_SECOND_NAMES)}
    paper_names = {
        _simplify(spec.paper_name): spec.name for spec in _SPECS.values() if spec.paper_name
    }
    found = names.get(wanted) or paper_names.get(wanted)
    if found is None and wanted:
        found = next((names[key] for key in names if key.startswith(wanted)), None)
    if found is None:
        close = difflib.get_close_matches(wanted, names, n=1, cutoff=0.5)
        found = names[close[0]] if close else None
    return found


def _simplify(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


def find_installed(name: str) -> ModelSpec | None:
    """The model of that name; None if no package brings one.

    Raises UnavailableError if its package cannot be imported, InvalidArgumentError if two bring it
    or it is no model.
    """
    points = [point for point in entry_points(group=GROUP) if point.name == name]
    if len(points) > 1:
        both = " and ".join(sorted(_name_package(point) for point in points[:2]))
        raise InvalidArgumentError(f"{both} both bring a model {name!r}: uninstall one")
    return _load(points[0]) if points else None


def list_installed(taken: Collection[str]) -> list[ModelSpec]:
    """All that can be had, in the order of their names, but for ``taken`` names."""
    found = []
    for name in sorted({point.name for point in entry_points(group=GROUP)} - set(taken)):
        try:
            spec = find_installed(name)
        except FtaxError:  # which whoever asks for it by name is told
            continue
        found += [] if spec is None else [spec]
    return found


def _load(point: EntryPoint) -> ModelSpec:
    where = f"entry point {point.value} of {_name_package(point)}"
    try:
        found = point.load()
        spec = found if isinstance(found, ModelSpec) or not callable(found) else found()
    except Exception as error:  # whatever a package's own code raises
        raise UnavailableError(
            f"{where} cannot be imported ({type(error).__name__}: {describe(error)})"
        ) from error
    if not isinstance(spec, ModelSpec):
        raise InvalidArgumentError(
            f"{where} is {name_type(spec)}: give an ftax.ModelSpec, or a function that returns one"
        )
    if spec.name != point.name:
        raise InvalidArgumentError(
            f"{where} is named {point.name!r} and its model {spec.name!r}: give both one name"
        )
    return spec


def _name_package(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else "an unnamed package"
