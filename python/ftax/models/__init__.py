"""Models to measure: the zoo of the paper, local folders, and modules of the user.

The surprising choice: importing this package is cheap. Whatever a model is built from is imported
when it is built.
"""

from ftax.models.load import load_model
from ftax.models.loaded import LoadedModel
from ftax.models.outputs import flatten_outputs
from ftax.models.paths import PathKind, describe_path
from ftax.models.registry import find_spec, list_models
from ftax.models.spec import TORCH_DTYPES, Attention, Dtype, Family, ModelSpec

__all__ = [
    "TORCH_DTYPES",
    "Attention",
    "Dtype",
    "Family",
    "LoadedModel",
    "ModelSpec",
    "PathKind",
    "describe_path",
    "find_spec",
    "flatten_outputs",
    "list_models",
    "load_model",
]
