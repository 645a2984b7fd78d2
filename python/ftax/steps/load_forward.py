"""Loads a model for its forward pass: a name, a folder, a module, or a name in the user's code.

Exported files are recognised but not loaded. Only the runtime that they were exported for can run
them, and the error names it.
"""

import os
from pathlib import Path
from typing import Any

from torch import nn

from ftax.errors import InvalidArgumentError, UnsupportedError
from ftax.steps.load_code import is_code, load_code
from ftax.steps.load_folder import load_folder
from ftax.steps.load_module import load_module
from ftax.steps.load_zoo import load_zoo_model
from ftax.steps.loaded import LoadedModel
from ftax.steps.paths import describe_path
from ftax.steps.setting import Setting
from ftax.steps.user_inputs import Given
from ftax.steps.zoo.registry import find_spec, is_model_name

_RUNTIME_OF_FILE = {"torchscript": "torchscript", "onnx": "onnxruntime"}


def load_forward(model: Any, setting: Setting, given: Given | None) -> LoadedModel:
    """The model; a name in code may give a step. Raises as `load_model` does."""
    if isinstance(model, nn.Module):
        return load_module(model, setting, given)
    if not isinstance(model, str | os.PathLike):
        raise InvalidArgumentError(
            f"model is of type {type(model).__name__}: give a name, a path, a torch.nn.Module, or "
            "ftax.step(...) of a function"
        )
    if isinstance(model, str) and is_code(model):
        return load_code(model, setting, given)
    if isinstance(model, str) and not looks_like_path(model):
        return load_zoo_model(find_spec(model), setting, given)
    kind = describe_path(model)
    if kind == "hf_folder":
        return load_folder(Path(model), setting, given)
    raise UnsupportedError(
        f"{os.fspath(model)}, a file of {kind}, has no Python module to measure; from Python, with "
        f"its inputs: ftax.cpp_bench({os.fspath(model)!r}, inputs, "
        f"runtime={_RUNTIME_OF_FILE[kind]!r})"
    )


def looks_like_path(model: str) -> bool:
    """Whether it names a file or a folder, and no model of the zoo."""
    if is_model_name(model):
        return False
    return os.sep in model or model.endswith((".pt", ".onnx")) or Path(model).exists()
