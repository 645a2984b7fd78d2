"""The ONNX Runtime rows: a model exported once and kept, or a file of the user's, under both
hosts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from ftax import _core
from ftax.models.user_inputs import split_inputs
from ftax.runtimes.flattened import Flattened
from ftax.runtimes.onnxruntime import (
    Inputs,
    export_onnx,
    make_cpp_runner,
    make_python_callable,
)
from ftax.runtimes.prepared import Host, Prepared, check_outputs
from ftax.runtimes.workspace import Workspace

_FILE = "model.onnx"
_RUNTIME = "onnxruntime"


def prepare_onnxruntime(workspace: Workspace, host: Host) -> Prepared:
    """The model exported to ONNX with fixed shapes; as many threads as torch has."""
    artefact = workspace.artefact("onnx", {}, lambda folder: _export(workspace, folder))
    inputs = workspace.loaded.flat_inputs()
    runner, run = _make_runner(artefact.folder / _FILE, inputs, host)
    return Prepared(
        runtime=_RUNTIME,
        host=host,
        runner=runner,
        run=run,
        facts={**artefact.facts, "from_cache": artefact.from_cache},
        checks=check_outputs(workspace, run()),
    )


def prepare_onnx_file(path: Path, inputs: Any, host: Host) -> Prepared:
    """A file of the user's; ``inputs`` by position or, as a dict, by the file's input names."""
    args, kwargs = split_inputs(inputs)
    runner, run = _make_runner(path, kwargs or list(args), host)
    return Prepared(runtime=_RUNTIME, host=host, runner=runner, run=run)


def _make_runner(
    path: Path, inputs: Inputs, host: Host
) -> tuple[_core.Runner, Callable[[], list[torch.Tensor]]]:
    threads = torch.get_num_threads()
    runner: _core.Runner
    if host == "cpp":
        runner, outputs = make_cpp_runner(path, inputs, threads=threads)
    else:
        call, outputs = make_python_callable(path, inputs, threads=threads)
        runner = _core.PythonRunner(
            call, _RUNTIME, device="cpu", grad_mode=_core.GradMode.inference
        )

    def run() -> list[torch.Tensor]:
        _poison(outputs)
        runner.run_once()
        return [output.clone() for output in outputs]

    return runner, run


def _poison(outputs: list[torch.Tensor]) -> None:
    """A run that writes nothing must not pass with what an earlier run left behind."""
    for output in outputs:
        output.fill_(torch.nan if output.is_floating_point() else 0)


def _export(workspace: Workspace, folder: Path) -> Mapping[str, object]:
    loaded = workspace.loaded
    export = export_onnx(Flattened(loaded), loaded.flat_inputs(), folder / _FILE)
    return {
        "exporter": export.exporter,
        "opset": export.opset,
        "exporter_messages": len(export.messages),
        "fallback_reason": export.fallback_reason,
    }
