"""AOTInductor: exported by torch.export, compiled ahead of time, run from a package.

The surprising choice: a fresh package is first loaded and run in a process of its own. It is code
made a moment ago by whatever compiler this machine has, and where that does not fit torch it does
not raise: it ends the process.
"""

from __future__ import annotations

import functools
import tempfile
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from ftax import _core
from ftax.errors import FtaxError, UnsupportedError, describe_fault, is_out_of_memory
from ftax.runtimes.candidates import drive_python, grad_mode
from ftax.runtimes.compilers.aoti_trial import try_package
from ftax.runtimes.compilers.flattened import Flattened
from ftax.runtimes.compilers.inductor import (
    caches_in,
    name_device,
    sound_compiler,
)
from ftax.runtimes.disk import write_through_memory
from ftax.runtimes.graph.runner_graph import prepare_graph
from ftax.runtimes.workspace import Workspace
from ftax.steps.outputs import flatten_outputs
from ftax.timing.candidate import Candidate, Host
from ftax.timing.preparation import Preparation
from ftax.workers.time_limit import time_limit

_FILE = "model.pt2"


def prepare_aoti(workspace: Workspace, host: Host) -> Candidate:
    """The package, loaded by torch for Python or by our runner for C++."""
    runtime, loaded = "aoti", workspace.loaded
    package, preparation = make_package(workspace)
    inputs = loaded.flat_inputs()
    runner: _core.Runner
    call: Callable[[], Any]
    if host == "cpp":
        cpp_runner = _make_runner(workspace, package, runtime, single_threaded=False)
        runner, call = cpp_runner, cpp_runner.run
    else:
        index = torch.device(loaded.device).index
        model = _load(package, -1 if index is None else index)
        call = functools.partial(model, *inputs)
        runner = drive_python(workspace, runtime, call)

    def run() -> list[torch.Tensor]:
        with torch.inference_mode():
            return flatten_outputs(call())

    return Candidate(runtime=runtime, host=host, runner=runner, run=run, preparation=preparation)


def prepare_aoti_graph(workspace: Workspace, host: Host) -> Candidate:
    """The package, run by C++, captured as one CUDA graph."""
    runtime = "aoti-cuda-graph"
    package, preparation = make_package(workspace)

    def make_runner() -> _core.AotiRunner:
        return _make_runner(workspace, package, runtime, single_threaded=True)

    return prepare_graph(workspace, host, runtime, make_runner, preparation)


def make_package(workspace: Workspace) -> tuple[Path, Preparation]:
    """A package in the cache that is known to load here, and what making it cost."""
    options = {"gpu": name_device(workspace.loaded.device)}
    artefact = workspace.artefact("aoti", options, lambda folder: _compile(workspace, folder))
    package = artefact.folder / _FILE
    # Kept apart: what the trial costs is our caution, not AOTInductor's.
    workspace.artefact(
        "aoti-trial", options, lambda _: try_package(package, workspace.loaded.flat_inputs())
    )
    return package, artefact.to_preparation()


def _compile(workspace: Workspace, folder: Path) -> Mapping[str, object]:
    loaded = workspace.loaded
    package = folder / _FILE
    step = "torch.export.export"
    try:
        with (
            time_limit(None, f"AOTInductor of {loaded.name}"),
            warnings.catch_warnings(record=True) as caught,
            torch.no_grad(),
        ):
            warnings.simplefilter("always")
            exported = torch.export.export(
                Flattened(loaded), tuple(loaded.flat_inputs()), strict=False
            )
            step = "torch._inductor.aoti_compile_and_package"
            with (
                tempfile.TemporaryDirectory(prefix="ftax-") as scratch,
                caches_in(Path(scratch)),
                sound_compiler() as library,
            ):
                write_through_memory(
                    package,
                    lambda file: torch._inductor.aoti_compile_and_package(
                        exported, package_path=file
                    ),
                )
    except FtaxError:
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise UnsupportedError(
            f"{step} failed on {loaded.name}: {describe_fault(error)}"
        ) from error
    return {
        "exporter_warnings": len(caught),
        "package_bytes": package.stat().st_size,
        "linked_libstdcxx": library,
    }


def _load(package: Path, device_index: int) -> Callable[..., Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model: Callable[..., Any] = torch._inductor.aoti_load_package(
                str(package), device_index=device_index
            )
        except Exception as error:
            raise UnsupportedError(
                f"torch._inductor.aoti_load_package failed: {describe_fault(error)}"
            ) from error
    return model


def _make_runner(
    workspace: Workspace, package: Path, runtime: str, *, single_threaded: bool
) -> _core.AotiRunner:
    loaded = workspace.loaded
    runner = _core.AotiRunner(
        str(package),
        runtime,
        device=loaded.device,
        grad_mode=grad_mode(workspace),
        single_threaded=single_threaded,
    )
    runner.bind_inputs(loaded.flat_inputs())
    return runner
