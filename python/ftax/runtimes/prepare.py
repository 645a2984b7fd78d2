"""From what a caller names (a zoo name, a module, a file, a loaded model) to runtimes made ready.

The public functions that measure, trace or profile all begin here, and so do worker processes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from ftax.errors import InvalidArgumentError
from ftax.runtimes.catalogue import check_host, find_runtime
from ftax.runtimes.files import prepare_path
from ftax.runtimes.workspace import Workspace
from ftax.steps.given import Model, load
from ftax.steps.loaded import MeasuredModel
from ftax.steps.paths import describe_path
from ftax.steps.setting import Setting
from ftax.steps.step import StandIn
from ftax.timing.candidate import Candidate


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
