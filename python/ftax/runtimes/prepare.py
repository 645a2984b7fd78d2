"""From what a caller names (a zoo name, a module, a file, a loaded model) to runtimes made ready.

The public functions that measure, trace or profile all begin here, and so do worker processes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
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
from ftax.timing.candidate import Candidate

Model = str | os.PathLike[str] | nn.Module | LoadedModel

_MODEL_OPTIONS = frozenset(
    {
        "dtype",
        "device",
        "batch",
        "sequence",
        "seed",
        "attention",
        "use_cache",
        "tiny",
        "check_inputs",
    }
)


@contextmanager
def use_threads(threads: int | None) -> Iterator[None]:
    """Torch's intra-op threads inside, restored afterwards; None leaves them."""
    if threads is None:
        yield
        return
    if threads < 1:
        raise InvalidArgumentError(f"threads is {threads}; give 1 or more")
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def prepare(
    model: Model,
    inputs: Any,
    *,
    runtime: str,
    hosts: Sequence[str],
    no_grad: bool,
    runtime_options: Mapping[str, str] | None = None,
    transfers: bool = False,
    model_options: dict[str, Any],
) -> tuple[LoadedModel | FileModel, list[Candidate]]:
    """Load a model and make one runtime ready under each host; what the functions above measure."""
    spec = find_runtime(runtime)
    spec.check_options(runtime_options or {})
    checked = [check_host(host) for host in hosts]
    if _is_file(model):
        path = Path(os.fspath(model))  # type: ignore[arg-type]
        if runtime_options or transfers:
            raise InvalidArgumentError(
                f"{next(iter(runtime_options or ('transfers',)))!r} is for models that ftax loads; "
                f"{path.name} is run as it is"
            )
        return prepare_path(path, inputs, runtime, checked, no_grad, model_options)
    workspace = Workspace(
        load(model, inputs, model_options),
        no_grad=no_grad,
        runtime_options=runtime_options,
        transfers=transfers,
    )
    return workspace.loaded, [spec.prepare(workspace, host) for host in checked]


def load(model: Model, inputs: Any, model_options: dict[str, Any]) -> LoadedModel:
    """The model with its inputs. Raises InvalidArgumentError for an option that there is not."""
    unknown = sorted(set(model_options) - _MODEL_OPTIONS)
    if unknown:
        raise InvalidArgumentError(
            f"unknown option {unknown[0]!r}; beside what the function names itself there are "
            + ", ".join(sorted(_MODEL_OPTIONS))
        )
    if isinstance(model, LoadedModel):
        if inputs is not None or model_options:
            raise InvalidArgumentError(
                "a LoadedModel brings its inputs and options; pass them to ftax.load_model instead"
            )
        return model
    return load_model(model, inputs=inputs, **model_options)


def _is_file(model: Model) -> bool:
    if not isinstance(model, (str, os.PathLike)):
        return False
    text = os.fspath(model)
    looks_like_file = text.endswith((".pt", ".onnx")) or Path(text).is_file()
    return looks_like_file and describe_path(text) in ("torchscript", "onnx")
