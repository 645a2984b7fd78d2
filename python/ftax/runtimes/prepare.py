"""From what a caller names (a zoo name, a module, a file, a loaded model) to runtimes made ready.

The public functions that measure, trace or profile all begin here, and so do worker processes. A
model file (TorchScript, ONNX) is run as it is. It has no eager form, so it has no ladder; it is
timed by the one runtime that understands it, and its outputs have no reference.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ftax.errors import InvalidArgumentError
from ftax.runtimes.candidates import core_grad_mode
from ftax.runtimes.catalogue import check_host, find_runtime
from ftax.runtimes.workspace import Workspace
from ftax.steps.given import Model, load
from ftax.steps.input_trees import flatten_tensors
from ftax.steps.loaded import MeasuredModel
from ftax.steps.paths import describe_path
from ftax.steps.setting import Setting
from ftax.steps.spec import TORCH_DTYPES
from ftax.steps.step import StandIn
from ftax.steps.user_inputs import split_inputs
from ftax.timing.candidate import Candidate, Host

_RUNTIME = {"torchscript": "torchscript", "onnx": "onnxruntime"}
_FOR_FILES = ("threads", "grad_mode")  # fields of a setting that count for a file


def prepare(
    model: Model,
    inputs: Any,
    check_inputs: Any,
    setting: Setting,
    *,
    runtime: str,
    hosts: Sequence[str],
) -> tuple[MeasuredModel, list[Candidate]]:
    """Load a model and make one runtime ready under each host; what the functions above measure.

    Without ``runtime`` it is eager, or `ftax.capture` where the user's code gives a capture.
    """
    spec = find_runtime(runtime or "eager")
    spec.check_options(setting.runtime_options)
    checked = [check_host(host) for host in hosts]
    if _is_file(model):
        path = Path(os.fspath(model))  # type: ignore[arg-type]
        return prepare_path(path, inputs, check_inputs, setting, runtime=spec.name, hosts=checked)
    workspace = Workspace(load(model, inputs, check_inputs, setting))
    if not runtime and workspace.loaded.is_capture:
        spec = find_runtime("capture")
    return workspace.loaded, [spec.prepare(workspace, host) for host in checked]


def open_capture(model: Any, inputs: Any, runtime: str) -> tuple[Any, Any, str]:
    """What a capture was made of, its inputs, and the runtime that it is measured as; all else as
    it is. Raises InvalidArgumentError for a capture with another runtime."""
    if isinstance(model, nn.Module) and isinstance(model.forward, StandIn):
        model = model.forward
    if not isinstance(model, StandIn):
        return model, inputs, runtime
    if runtime not in ("", "capture"):
        raise InvalidArgumentError(
            f"runtime is {runtime!r} and the model is a capture: leave runtime out, or give what "
            "was captured (fast.original)"
        )
    return *model.open(inputs), "capture"


def _is_file(model: Model) -> bool:
    if not isinstance(model, (str, os.PathLike)):
        return False
    text = os.fspath(model)
    looks_like_file = text.endswith((".pt", ".onnx")) or Path(text).is_file()
    return looks_like_file and describe_path(text) in ("torchscript", "onnx")


def prepare_path(
    path: Path,
    inputs: Any,
    check_inputs: Any,
    setting: Setting,
    *,
    runtime: str,
    hosts: Sequence[Host],
) -> tuple[MeasuredModel, list[Candidate]]:
    """Prepare a file for each host. ``runtime`` "eager", the default, means the file's own.

    Raises InvalidArgumentError for a runtime that cannot run the file, missing inputs, or options
    that only a zoo model has.
    """
    kind = describe_path(path)
    if kind not in _RUNTIME:
        raise InvalidArgumentError(f"{path} is a folder; it has the runtimes of any other model")
    own = _RUNTIME[kind]
    if runtime not in ("eager", own):
        raise InvalidArgumentError(
            f"{path.name}, a file of {kind}, is nothing that runtime {runtime!r} can run; use "
            f"{own!r}"
        )
    unfit = [name for name in setting.chosen if name not in _FOR_FILES]
    unfit += [] if check_inputs is None else ["check_inputs"]
    if unfit:
        raise InvalidArgumentError(
            f"{unfit[0]!r} is an option of models that ftax builds; {path.name} is a file, which "
            f"is run as it is: leave {unfit[0]} out"
        )
    if inputs is None:
        raise InvalidArgumentError(
            f"{path.name} needs inputs, which only Python can give: "
            f"ftax.cpp_bench({str(path)!r}, inputs, runtime={own!r}), of a tensor, a tuple of "
            "arguments, or for ONNX a dict of tensors by input name"
        )
    if kind == "torchscript":
        values, device = _positional(inputs)
        prepared = _prepare_torchscript(path, values, hosts, device, setting)
    else:
        from ftax.runtimes.onnx.rows import prepare_onnx_file

        prepared = [prepare_onnx_file(path, inputs, host) for host in hosts]
    return _describe(path, inputs, setting), prepared


def _prepare_torchscript(
    path: Path, values: list[Any], hosts: Sequence[Host], device: str, setting: Setting
) -> list[Candidate]:
    from ftax.runtimes.compilers.torchscript import prepare_file

    mode = core_grad_mode(setting)
    return [prepare_file(path, values, host, device=device, mode=mode) for host in hosts]


def _positional(inputs: Any) -> tuple[list[Any], str]:
    args, kwargs = split_inputs(inputs)
    if kwargs:
        raise InvalidArgumentError(
            f"a TorchScript file takes positional inputs; {next(iter(kwargs))!r} was given by name"
        )
    tensors = flatten_tensors(args)
    return list(args), str(tensors[0].device) if tensors else "cpu"


def _describe(path: Path, inputs: Any, setting: Setting) -> MeasuredModel:
    tensors = flatten_tensors(split_inputs(inputs))
    names = {dtype: name for name, dtype in TORCH_DTYPES.items()}
    floating = next((t.dtype for t in tensors if t.dtype in names), torch.float32)
    first = tensors[0] if tensors else None
    found = replace(
        setting,
        device=str(first.device) if first is not None else "cpu",
        dtype=names[floating],
        batch=max(1, int(first.shape[0])) if first is not None and first.dim() else 1,
    )
    return MeasuredModel(name=path.name, setting=found, options={})
