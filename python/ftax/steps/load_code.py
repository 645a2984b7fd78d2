"""Loads a model for its forward pass: a module, or what a text names.

That is a model of the zoo, a folder, or a module in the user's own code, `my_package.model:make` or
`./file.py:name`. Another process builds the same by such a name in code, so it is like a model of
the zoo everywhere. The name says where to find the module and not what it is, since the code may
change; what is kept of it on disk is known by its calls and weights.

Exported files are recognised but not loaded. Only the runtime that they were exported for can run
them, and the error names it.
"""

import importlib
import importlib.util
import inspect
import os
import re
import sys
import traceback
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from ftax.errors import (
    InvalidArgumentError,
    RunnerError,
    UnsupportedError,
    describe_fault,
    name_type,
    suggest,
)
from ftax.steps.load_step import is_function, load_module, load_step, make_step_of
from ftax.steps.load_zoo import load_folder, load_zoo_model
from ftax.steps.loaded import LoadedModel
from ftax.steps.paths import describe_path
from ftax.steps.setting import Setting
from ftax.steps.step import StandIn, Step
from ftax.steps.user_inputs import Given, read_given
from ftax.steps.weights import seeded_rng
from ftax.steps.zoo.registry import find_spec, is_model_name

_DOTTED = r"[^\W\d]\w*(?:\.[^\W\d]\w*)*"
_CODE = re.compile(rf"(?P<file>[^:]+\.py|{_DOTTED}):(?P<name>{_DOTTED})", re.DOTALL)
_opened: list[StandIn] = []  # held: runtimes look for what stands in for a model
_FORMS = (
    "name a module, a step, a capture, or a function without arguments that returns one of them, "
    "or a pair of a module or a function and its inputs"
)
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


def is_code(model: str) -> bool:
    """Whether it looks like a name in the user's code."""
    return _CODE.fullmatch(model) is not None


def find_code(text: str) -> str | None:
    """The name in the user's code that a text with more colons begins with; a model of the zoo or
    a module that is not there is none."""
    match = _CODE.match(text)
    if match is None or is_model_name(match["file"]) or match["file"].endswith((".pt", ".onnx")):
        return None
    place = match["file"]
    known = place.endswith(".py") or "." in place or _is_importable(place)
    return match[0] if known else None


def _is_importable(name: str) -> bool:
    _look_in(Path.cwd())
    try:
        return importlib.util.find_spec(name) is not None
    except ValueError:  # it is no module of a file
        return False


def _look_in(folder: Path) -> None:
    """Let modules of the folder be found first, as by ``python -m``; it stays so, since what the
    code imports later may be there too."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    importlib.invalidate_caches()  # a file may be new


def load_code(model: str, setting: Setting, given: Given | None) -> LoadedModel:
    """The module that the name gives, with inputs that were given or come with it.

    Raises InvalidArgumentError for a name that there is not or that gives something else, and
    RunnerError for what the code itself raises.
    """
    name, module, own, is_capture = _read(model, setting.seed)
    again = name if given is None else None
    if is_function(module):
        module, given = make_step_of(module, given or own, setting), None
    if isinstance(module, Step):
        loaded: LoadedModel = load_step(module, setting, given)
        source = f"{loaded.source} of {model}"
        return replace(loaded, source=source, again=again, is_code=True, is_capture=is_capture)
    if setting.grad_mode == "grad":
        raise InvalidArgumentError(f"grad_mode is 'grad', but {model} gives no step: {_FORMS}")
    if given is None and own is None:
        raise InvalidArgumentError(
            f"{model} gives {name_type(module)} without inputs, and ftax cannot make "
            "any: let a function return a pair of the module and its inputs, such as (module, "
            "torch.randn(1, 3, 224, 224)), or of the module and a function from a batch to inputs"
        )
    loaded = load_module(module, setting, given or own)
    if setting.threads is not None:  # whatever the code has set
        torch.set_num_threads(setting.threads)
    source = f"{loaded.source} of {model}"
    return replace(loaded, source=source, again=again, is_code=True, is_capture=is_capture)


def _read(model: str, seed: int) -> tuple[str, Any, Given | None, bool]:
    """A name that other processes find, whatever their folder, what it gives, and whether that was
    captured."""
    match = _CODE.fullmatch(model)
    if match is None:
        raise InvalidArgumentError(f"{model!r} is no name in code: write my_package.model:make")
    place, name = match["file"], match["name"]
    # Weights and inputs are the same in every process, whatever was imported there before.
    with seeded_rng(seed):
        if place.endswith(".py"):
            path = Path(place).resolve()
            code, again = _import_file(path), f"{path}:{name}"
        else:
            code, again = _import(place, Path.cwd()), model
    with seeded_rng(seed):
        module, inputs = _make(model, _find(code, place, name))
        is_capture = isinstance(module, StandIn)
        if isinstance(module, StandIn):
            _opened.append(module)
            module, inputs = module.open(inputs)
    return again, module, read_given(inputs, None), is_capture


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise InvalidArgumentError(f"there is no file {path}: check the path")
    code = _import(path.stem, path.parent)
    found = getattr(code, "__file__", None)
    if found is None or not os.path.samefile(found, path):
        raise InvalidArgumentError(
            f"{path} cannot be imported: {path.stem} is {found or 'a module of Python'} here; give "
            "the file another name"
        )
    return code


def _import(name: str, folder: Path) -> ModuleType:
    _look_in(folder)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise InvalidArgumentError(
                f"there is no module {error.name!r}; {folder} and Python's path were looked at"
            ) from error
        raise _blame(f"importing {name}", error) from error
    except (Exception, SystemExit) as error:
        raise _blame(f"importing {name}", error) from error


def _find(code: ModuleType, place: str, name: str) -> Any:
    try:
        return attrgetter(name)(code)
    except AttributeError:
        names = [known for known in vars(code) if not known.startswith("_")]
        raise InvalidArgumentError(
            f"{place} has no {name!r}; {suggest(name, names)}{_FORMS}"
        ) from None


def _make(model: str, found: Any) -> tuple[Any, Any]:
    if isinstance(found, nn.Module | Step | StandIn):
        return found, None
    if not callable(found):
        raise InvalidArgumentError(f"{model} is of type {type(found).__name__}: {_FORMS}")
    try:
        inspect.signature(found).bind()
    except TypeError as error:
        raise InvalidArgumentError(f"{model} cannot be called so ({error}): {_FORMS}") from error
    except ValueError:  # it has none that Python knows
        pass
    try:
        made = found()
    except (Exception, SystemExit) as error:
        raise _blame(f"calling {model}", error) from error
    if isinstance(made, nn.Module | Step | StandIn):
        return made, None
    if isinstance(made, tuple | list) and len(made) == 2:
        first, inputs = made
        if isinstance(first, nn.Module | StandIn) or is_function(first):
            return first, inputs
    kinds = [type(item).__name__ for item in made] if isinstance(made, tuple | list) else []
    what = f"a value of type {type(made).__name__}"
    what += f" of {', '.join(kinds)}" if kinds else ""
    raise InvalidArgumentError(f"{model} returns {what}: {_FORMS}")


def _blame(what: str, error: BaseException) -> RunnerError:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    # Of a mistake in syntax the text has the line, and Python's importer is nobody's.
    is_named = isinstance(error, SyntaxError) or frame.filename.startswith("<frozen ")
    place = "" if is_named else f" ({frame.filename}, line {frame.lineno})"
    return RunnerError(f"{what} failed: {describe_fault(error)}{place}")
