"""`load_model`: a name, a folder or a module in; a model that is ready to run out.

The surprising choice: exported files are recognised but not loaded. Only the runtime that they were
exported for can run them, and the error names it.
"""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from torch import nn

from ftax.errors import InvalidArgumentError, UnsupportedError
from ftax.steps.load_code import is_code, load_code
from ftax.steps.load_folder import load_folder
from ftax.steps.load_module import load_module
from ftax.steps.load_step import load_step
from ftax.steps.load_zoo import load_zoo_model
from ftax.steps.loaded import LoadedModel
from ftax.steps.paths import describe_path
from ftax.steps.setting import Setting, SettingOptions, normalize_device, read_setting
from ftax.steps.step import Step
from ftax.steps.user_inputs import read_given
from ftax.steps.zoo.registry import find_spec, is_model_name

_RUNTIME_OF_FILE = {"torchscript": "torchscript", "onnx": "onnxruntime"}


def load_model(
    model: str | os.PathLike[str] | nn.Module | Step,
    *,
    inputs: Any = None,
    check_inputs: Any = None,
    **options: Unpack[SettingOptions],
) -> LoadedModel:
    """Builds or takes a model, with a main input and a second one to check programs on.

    `model` is a name of `list_models()` or `bert-<layers>x<width>`, the path of a local Hugging
    Face folder, a module, or a name in your code: "my_package.model:make" or "./file.py:make" is a
    module, or a function without arguments that returns one or a pair of module and inputs.
    Names come before paths: write "./gpt2" for a folder called gpt2. Nothing is ever downloaded.

    `inputs` is needed for a module and optional otherwise: a tensor (the one positional argument),
    a tuple or list (positional arguments), a dict (keyword arguments), a pair of a tuple and a dict
    (both), or a function from a batch, or from a batch and a sequence, to one of these.
    `check_inputs` has the same form and shapes with other values; without it, the
    loader draws values like those of `inputs` and lists in `warnings` what it could not vary. Made
    inputs are token ids uniform over the vocabulary, (batch, sequence) int64, without an attention
    mask, images (batch, 3, side, side), or sound (batch, samples); the latter two from a standard
    normal distribution (paper sections 4, D and E).

    `options` are the fields of `ftax.Setting`, or `setting=` one; those that say how a step is run
    (threads, transfers, ...) count wherever the model is measured. `None` for `dtype`, `device`,
    `batch` and `sequence` means fp32, cpu, 1 and the model's default (128 tokens, 8 if tiny; 2 s of
    sound); for a module: what it and its first input have. A module is not converted or moved: a
    dtype or device that it does not have is an error. It is put in eval mode and its parameters
    stop requiring gradients, in place, and `warnings` says so.

    `seed` determines weights and inputs; global random states are left as found. `attention`,
    `use_cache` and `tiny` choose a variant of a zoo model; a folder takes the first two.

    Raises InvalidArgumentError for a value that is wrong or that the model does not have,
    UnavailableError for a device or package that this machine lacks, and UnsupportedError for what
    ftax cannot load.
    """
    setting = read_setting(options, load_model.__kwdefaults__)
    if setting.device is not None:
        setting = replace(setting, device=normalize_device(setting.device))
    given = read_given(inputs, check_inputs)
    if isinstance(model, Step):
        return load_step(model, setting, given)
    if not (isinstance(model, str) and is_code(model)):
        _refuse_autograd(setting)
    if isinstance(model, nn.Module):
        return load_module(model, setting, given)
    if not isinstance(model, str | os.PathLike):
        raise InvalidArgumentError(
            f"model is of type {type(model).__name__}: give a name, a path, a torch.nn.Module, or "
            "ftax.step(...) of a function"
        )
    if isinstance(model, str) and is_code(model):
        return load_code(model, setting, given)
    if isinstance(model, str) and not _looks_like_path(model):
        return load_zoo_model(find_spec(model), setting, given)
    kind = describe_path(model)
    if kind == "hf_folder":
        return load_folder(Path(model), setting, given)
    raise UnsupportedError(
        f"{os.fspath(model)}, a file of {kind}, has no Python module to measure: "
        f"`ftax bench {os.fspath(model)} --runtime {_RUNTIME_OF_FILE[kind]}` runs it, and so does "
        f"runtime={_RUNTIME_OF_FILE[kind]!r}"
    )


def _refuse_autograd(setting: Setting) -> None:
    if setting.grad_mode == "grad":
        raise InvalidArgumentError(
            "grad_mode is 'grad', which is of steps that train: a forward pass is measured without "
            "autograd; give ftax.train(...) or ftax.step(...), or leave grad_mode out"
        )


def _looks_like_path(model: str) -> bool:
    if is_model_name(model):
        return False
    return os.sep in model or model.endswith((".pt", ".onnx")) or Path(model).exists()
