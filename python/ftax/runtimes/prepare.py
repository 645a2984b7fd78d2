"""From what a caller names (a zoo name, a module, a file, a loaded model) to runtimes made ready.

The public functions that measure, trace or profile all begin here, and so do worker processes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ftax.errors import InvalidArgumentError
from ftax.runtimes.catalogue import check_host, find_runtime
from ftax.runtimes.files import prepare_path
from ftax.runtimes.workspace import Workspace
from ftax.steps.load import load_model
from ftax.steps.loaded import FileModel, LoadedModel
from ftax.steps.paths import describe_path
from ftax.steps.setting import Setting, check_threads
from ftax.steps.state import leave_as_found
from ftax.timing.candidate import Candidate

Model = str | os.PathLike[str] | nn.Module | LoadedModel


@contextmanager
def measuring(model: Model, setting: Setting, *given: Any) -> Iterator[None]:
    """Torch's threads are the setting's inside; afterwards they, and all that ``model`` and
    ``given`` hold, are as they were found."""
    if isinstance(model, LoadedModel):
        setting = model.setting.beside(setting)
    with use_threads(setting.threads), leave_as_found(model, *given):
        yield


@contextmanager
def use_threads(threads: int | None) -> Iterator[None]:
    """Torch's intra-op threads inside, restored afterwards; None leaves them."""
    if threads is None:
        yield
        return
    check_threads(threads)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def prepare(
    model: Model,
    inputs: Any,
    check_inputs: Any,
    setting: Setting,
    *,
    runtime: str,
    hosts: Sequence[str],
) -> tuple[LoadedModel | FileModel, list[Candidate]]:
    """Load a model and make one runtime ready under each host; what the functions above measure."""
    spec = find_runtime(runtime)
    spec.check_options(setting.runtime_options)
    checked = [check_host(host) for host in hosts]
    if _is_file(model):
        path = Path(os.fspath(model))  # type: ignore[arg-type]
        return prepare_path(path, inputs, check_inputs, setting, runtime=runtime, hosts=checked)
    workspace = Workspace(load(model, inputs, check_inputs, setting))
    return workspace.loaded, [spec.prepare(workspace, host) for host in checked]


def load(model: Model, inputs: Any, check_inputs: Any, setting: Setting) -> LoadedModel:
    """The model with its inputs. Raises InvalidArgumentError for what does not fit it."""
    if not isinstance(model, LoadedModel):
        return load_model(model, inputs=inputs, check_inputs=check_inputs, setting=setting)
    if inputs is not None or check_inputs is not None:
        raise InvalidArgumentError(
            "a LoadedModel brings its inputs and options; pass them to ftax.load_model instead"
        )
    return model.run_as(setting)


def _is_file(model: Model) -> bool:
    if not isinstance(model, (str, os.PathLike)):
        return False
    text = os.fspath(model)
    looks_like_file = text.endswith((".pt", ".onnx")) or Path(text).is_file()
    return looks_like_file and describe_path(text) in ("torchscript", "onnx")
