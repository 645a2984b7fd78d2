"""AOTInductor: exported by torch.export, compiled ahead of time, run from a package.

A fresh package is first loaded and run in another process. It is code that this machine's compiler
made a moment ago, and where that does not fit torch it ends the process.
"""

from __future__ import annotations

import functools
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ftax import _core
from ftax.errors import FtaxError, UnsupportedError, describe_fault, is_out_of_memory
from ftax.runtimes.cache import write_through_memory
from ftax.runtimes.candidates import drive_python, grad_mode
from ftax.runtimes.compilers.flattened import Flattened
from ftax.runtimes.compilers.inductor import (
    caches_in,
    name_device,
    sound_compiler,
)
from ftax.runtimes.workspace import Workspace
from ftax.steps.outputs import flatten_outputs
from ftax.timing.candidate import Candidate, Host, Preparation
from ftax.workers.child import Line
from ftax.workers.process import WorkerDied, run_task
from ftax.workers.time_limit import default_seconds, time_limit

_FILE = "model.pt2"


def prepare_aoti(workspace: Workspace, host: Host) -> Candidate:
    """The package, loaded by torch for Python or by our runner for C++."""
    runtime, loaded = "aoti", workspace.loaded
    package, preparation = make_package(workspace)
    inputs = loaded.flat_inputs()
    runner: _core.Runner
    call: Callable[[], Any]
    if host == "cpp":
        cpp_runner = _core.AotiRunner(
            str(package), runtime, device=loaded.device, grad_mode=grad_mode(workspace)
        )
        cpp_runner.bind_inputs(inputs)
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


def try_package(package: Path, inputs: Sequence[torch.Tensor]) -> dict[str, object]:
    """Load and run ``package`` in a worker, which says each call before it makes it: the last one
    is that in which it died.

    Raises UnsupportedError, naming the call and the signal or the error, if the worker fails.
    """
    calls: list[str] = []
    with tempfile.TemporaryDirectory(prefix="ftax-") as folder:
        path = Path(folder) / "inputs.pt"
        write_through_memory(path, lambda file: torch.save(list(inputs), file))
        job = {"package": str(package), "inputs": str(path)}
        task = "ftax.runtimes.compilers.aoti:load_and_run"
        try:
            for answer in run_task(task, job, limit_s=default_seconds()):
                calls.append(answer["name"])
        except WorkerDied as death:
            call = calls[-1] if calls else "import torch"
            raise UnsupportedError(f"{call} fails in a process of its own: {death}") from death
    return {"calls": calls}


def load_and_run(job: Mapping[str, str], line: Line) -> None:
    """The task of the worker."""
    # On the CPU first: weights_only loads tensors and nothing else.
    tensors = torch.load(job["inputs"], weights_only=True)
    line.say("call", name="torch._inductor.aoti_load_package")
    device = next((tensor.device for tensor in tensors if tensor.is_cuda), torch.device("cpu"))
    index = -1 if device.index is None else device.index
    model = torch._inductor.aoti_load_package(job["package"], device_index=index)
    line.say("call", name="AOTICompiledModel.__call__")
    with torch.inference_mode():
        model(*tensors)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
