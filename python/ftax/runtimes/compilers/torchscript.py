"""TorchScript: traced, saved to disk, and run from the file, in C++ or from Python.

Both hosts load the same file, so that neither can profit from what tracing left in memory. It is
run until TorchScript has compiled it: that is a cost of preparing, and what is checked is what is
timed.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from ftax import _core
from ftax.errors import FtaxError, InvalidArgumentError, UnsupportedError, describe
from ftax.runtimes.cache import Artefact, write_through_memory
from ftax.runtimes.candidates import drive_python, grad_mode
from ftax.runtimes.compilers.flattened import Flattened
from ftax.runtimes.workspace import Workspace
from ftax.steps.outputs import call_model, flatten_outputs
from ftax.timing.candidate import Candidate, Host

_FILE = "model.pt"
_RUNS_TO_COMPILE = 3  # the first profiles, the next compile


def prepare_torchscript(workspace: Workspace, host: Host) -> Candidate:
    """The model traced by torch.jit.trace."""
    return _prepare(workspace, host, "torchscript", frozen=False)


def prepare_frozen(workspace: Workspace, host: Host) -> Candidate:
    """The trace with weights and modules folded in (torch.jit.freeze)."""
    return _prepare(workspace, host, "torchscript-frozen", frozen=True)


def prepare_file(
    path: Path, inputs: list[Any], host: Host, *, device: str, mode: _core.GradMode
) -> Candidate:
    """A TorchScript file of the user with the inputs for its forward."""
    if host == "cpp":
        runner = _core.TorchScriptRunner(str(path), "torchscript", device=device, grad_mode=mode)
        runner.bind_inputs(inputs)
        return Candidate(
            runtime="torchscript",
            host=host,
            runner=runner,
            run=lambda: flatten_outputs(runner.run()),
        )
    module = _load(path, device)
    call = functools.partial(module, *inputs)

    def run() -> list[torch.Tensor]:
        with torch.inference_mode():
            return flatten_outputs(call_model(call))

    return Candidate(
        runtime="torchscript",
        host=host,
        runner=_core.PythonRunner(call, "torchscript", device=device, grad_mode=mode),
        run=run,
    )


def make_file(workspace: Workspace) -> Artefact:
    """The trace as a file, in the cache."""
    return _make_file(workspace, frozen=False)


def make_frozen_file(workspace: Workspace) -> Artefact:
    """The frozen trace as a file, in the cache."""
    return _make_file(workspace, frozen=True)


def _make_file(workspace: Workspace, *, frozen: bool) -> Artefact:
    options = {"frozen": frozen, "output": "as returned"}  # older ones gave a tuple of one tensor
    return workspace.artefact(
        "torchscript", options, lambda folder: _trace(workspace, folder, frozen)
    )


def _prepare(workspace: Workspace, host: Host, runtime: str, *, frozen: bool) -> Candidate:
    loaded = workspace.loaded
    artefact = _make_file(workspace, frozen=frozen)
    path = artefact.folder / _FILE
    runner: _core.Runner
    call: Callable[[], Any]
    if host == "cpp":
        cpp_runner = _core.TorchScriptRunner(
            str(path), runtime, device=loaded.device, grad_mode=grad_mode(workspace)
        )
        cpp_runner.bind_inputs(loaded.flat_inputs())
        runner, call = cpp_runner, cpp_runner.run
    else:
        module = _load(path, loaded.device)
        call = functools.partial(module, *loaded.flat_inputs())
        runner = drive_python(workspace, runtime, call)

    def run() -> list[torch.Tensor]:
        with torch.inference_mode():
            return flatten_outputs(call())

    start = time.perf_counter()
    for _ in range(_RUNS_TO_COMPILE):
        run()
    compile_seconds = time.perf_counter() - start
    return Candidate(
        runtime=runtime,
        host=host,
        runner=runner,
        run=run,
        preparation=artefact.to_preparation(compile_seconds=compile_seconds),
    )


def _trace(workspace: Workspace, folder: Path, frozen: bool) -> Mapping[str, object]:
    loaded = workspace.loaded
    with warnings.catch_warnings(record=True) as caught, torch.no_grad(), _mute_loss_warning():
        warnings.simplefilter("always")
        try:
            traced = torch.jit.trace(
                Flattened(loaded), tuple(loaded.flat_inputs()), check_trace=False, strict=False
            )
            if frozen:
                traced = torch.jit.freeze(traced)
            write_through_memory(folder / _FILE, lambda file: torch.jit.save(traced, file))
        except FtaxError:
            raise
        except Exception as error:
            raise UnsupportedError(
                f"torch.jit.trace cannot trace {loaded.name}: {describe(error)}"
            ) from error
    return {"exporter_warnings": len(caught)}


@contextlib.contextmanager
def _mute_loss_warning() -> Iterator[None]:
    """torch.jit.trace reads every property of a module; one of transformers' warns that there is no
    loss. Nothing is imported for it: few modules are theirs."""
    logger = logging.getLogger("transformers.modeling_utils")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _load(path: Path, device: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that TorchScript is deprecated is why it is measured
        try:
            module = torch.jit.load(str(path), map_location=device)
        except Exception as error:
            raise InvalidArgumentError(
                f"cannot load {path.name} as TorchScript ({describe(error)}); make the "
                "file with torch.jit.save"
            ) from error
    if getattr(module, "training", False):  # a frozen module has no mode
        module.eval()
    return module
