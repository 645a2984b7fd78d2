"""Model files of the user: TorchScript archives and ONNX models, run as they are.

A file has no eager form, so it has no ladder; it is timed by the one runtime that understands it,
and its outputs have no reference to be compared with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ftax.errors import InvalidArgumentError
from ftax.runtimes.candidates import core_grad_mode
from ftax.steps.input_trees import flatten_tensors
from ftax.steps.loaded import MeasuredModel
from ftax.steps.paths import describe_path
from ftax.steps.setting import Setting
from ftax.steps.spec import TORCH_DTYPES
from ftax.steps.user_inputs import split_inputs
from ftax.timing.candidate import Candidate, Host

_RUNTIME = {"torchscript": "torchscript", "onnx": "onnxruntime"}
_FOR_FILES = ("threads", "grad_mode")  # fields of a setting that count for a file


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
