"""Networks that are taken from torchvision where it is installed.

The surprising choice: an entry is listed without torchvision too, and only building it fails, so
that a sweep says what is missing instead of leaving the row out.
"""

import importlib
import warnings
from collections.abc import Mapping
from typing import Any

from torch import nn

from ftax.errors import UnavailableError
from ftax.steps.spec import Build, Variant


def from_torchvision(model: str, *, tiny: Mapping[str, Any], **settings: Any) -> Build:
    """A `ModelSpec.build` that makes `torchvision.models.<model>(**settings)`.

    The build raises UnavailableError where torchvision does not import. `tiny` are the settings
    that the tiny form changes on top.
    """

    def build(variant: Variant) -> nn.Module:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                models: Any = importlib.import_module("torchvision.models")
            # A torchvision built for another torch fails on its own operators: no ImportError.
            except (ImportError, RuntimeError, OSError) as error:
                raise UnavailableError(
                    f"this model needs the torchvision package, which does not import ({error}): "
                    "pip install the torchvision that belongs to your torch"
                ) from error
            built: nn.Module = getattr(models, model)(
                **{**settings, **(tiny if variant.tiny else {})}
            )
        return built

    return build
