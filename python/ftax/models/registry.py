"""The list of the zoo's models and the look-up by name.

The surprising choice: the order of the list is fixed by hand and kept, because tables and sweeps
follow it.
"""

import difflib

from ftax.errors import InvalidArgumentError
from ftax.models.spec import ModelSpec
from ftax.models.text import TEXT_MODELS
from ftax.models.vision import VISION_MODELS

_SPECS: dict[str, ModelSpec] = {spec.name: spec for spec in (*TEXT_MODELS, *VISION_MODELS)}


def list_models() -> tuple[ModelSpec, ...]:
    """Every model of the zoo, text first."""
    return tuple(_SPECS.values())


def find_spec(name: str) -> ModelSpec:
    """The zoo's entry for `name`; raises InvalidArgumentError with the closest names otherwise."""
    if name in _SPECS:
        return _SPECS[name]
    close = difflib.get_close_matches(name.lower(), _SPECS, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}? " if close else ""
    raise InvalidArgumentError(
        f"unknown model {name!r}: {hint}the zoo has {', '.join(_SPECS)}; "
        "a local folder or file is given by its path"
    )
