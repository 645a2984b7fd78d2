"""Eager execution: as researchers run it (host python) and replayed from the tape (host cpp).

Eager on one thread sets the number of threads once a round, outside the timed region, and puts it
back, so that it can take turns with what has all threads.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import torch

from ftax import _core
from ftax.errors import UnsupportedError
from ftax.runtimes.candidates import core_grad_mode, drive_python, replay_mode
from ftax.runtimes.replays import check_on_both_inputs
from ftax.runtimes.workspace import Workspace
from ftax.steps.given import use_threads
from ftax.tape.recording import observe
from ftax.tape.tape import (
    COMPILED,
    make_tape_with_autograd,
    preserve_state,
)
from ftax.timing.candidate import Candidate, Host
from ftax.timing.checks import Checks

_IS_COMPILED = (
    f"{COMPILED}: what is called eager is the compiled code, called as you call it; "
    "ladder='compile' (--ladder compile) compiles it once more and takes that apart"
)


_IS_NOT_COMPILED = (
    f"{COMPILED}, and no call was seen to run compiled code: what is timed is as it was written "
    "(by a stance, past torch's limit of compilations, or where TorchDynamo has given it up)"
)


def _say_compiled(workspace: Workspace) -> list[str]:
    if not workspace.is_compiled:
        return []
    return [_IS_COMPILED if workspace.runs_compiled else _IS_NOT_COMPILED]


def prepare_eager(workspace: Workspace, host: Host, *, runtime: str = "eager") -> Candidate:
    """The model itself, or its tape. ``runtime`` names what a variant of a model stands for."""
    if host == "cpp":
        return _prepare_tape(workspace, runtime)
    return prepare_call(workspace, runtime, workspace.loaded.bind())


def prepare_library(workspace: Workspace, host: Host) -> Candidate:
    """The same work through the library that people use.

    Raises UnsupportedError for a step that has no such form.
    """
    call = workspace.loaded.through_library
    if call is None:
        raise UnsupportedError("this step has no form in a library: it is measured as it is")
    return prepare_call(workspace, "library", call)


def prepare_one_thread(workspace: Workspace, host: Host) -> Candidate:
    """The model itself on one thread."""
    on_one = functools.partial(use_threads, 1)
    return prepare_call(workspace, "eager-one-thread", workspace.loaded.bind(), on_one)


def prepare_call(
    workspace: Workspace,
    runtime: str,
    call: Callable[[], object],
    scope: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Candidate:
    """A call of the model from Python; each round of calls is inside a ``scope``."""
    loaded = workspace.loaded

    def run() -> list[torch.Tensor]:
        with loaded.guard(), scope():
            return loaded.list_outputs(call)

    return Candidate(
        runtime=runtime,
        host="python",
        runner=drive_python(workspace, runtime, call, scope),
        run=run,
        warnings=(*loaded.warnings, *_say_compiled(workspace)),
        watch=workspace.watch_work,
    )


def _prepare_tape(workspace: Workspace, runtime: str) -> Candidate:
    taped = workspace.taped

    def run() -> list[torch.Tensor]:
        with torch.inference_mode():
            return taped.tape.run()

    runner = _core.TapeRunner(
        taped.tape, "tape", device=workspace.loaded.device, grad_mode=replay_mode(workspace)
    )
    return Candidate(
        runtime=runtime,
        host="cpp",
        runner=runner,
        run=run,
        preparation=workspace.shared_cost(),
        checks=taped.checks,
        warnings=taped.warnings,
        watch=workspace.watch_work,
    )


def prepare_tape_with_autograd(workspace: Workspace, host: Host) -> Candidate:
    """The step's calls above autograd, replayed from C++ with autograd on.

    Raises UnsupportedError for a step without autograd: this would be the tape again.
    """
    loaded = workspace.loaded
    if not loaded.has_autograd:
        raise UnsupportedError("the step runs without autograd; its tape is eager, called from C++")
    tape, checks = make_tape_with_autograd(loaded, workspace.taped)

    def run() -> list[torch.Tensor]:
        with loaded.guard():
            return tape.run()

    name = "tape-with-autograd"
    return Candidate(
        runtime=name,
        host="cpp",
        runner=_core.TapeRunner(
            tape, name, device=loaded.device, grad_mode=core_grad_mode(workspace.setting)
        ),
        run=run,
        checks=checks,
        preparation=workspace.shared_cost(),
    )


def prepare_flat(workspace: Workspace, host: Host) -> Candidate:
    """Straight-line Python with the same operator calls."""
    flat = workspace.flat
    inputs = workspace.loaded.flat_inputs()
    function = flat.function

    def run() -> list[torch.Tensor]:
        with torch.inference_mode():
            return list(function(*inputs))

    checks = _check_flat(workspace)
    return Candidate(
        runtime="flat",
        host="python",
        runner=drive_python(workspace, "flat", lambda: function(*inputs)),
        run=run,
        checks=checks,
        preparation=workspace.shared_cost().also(via_torch_ops=dict(flat.via_ops)),
        warnings=_warn_via_ops(flat.via_ops),
    )


def _check_flat(workspace: Workspace) -> Checks:
    """The flat program must make the tape's calls and give eager's outputs, on both inputs."""
    loaded, function = workspace.loaded, workspace.flat.function
    with preserve_state(loaded):
        sequence = observe(lambda: function(*loaded.flat_inputs()))
    if [call.name for call in sequence] != workspace.taped.tape.operators:
        raise UnsupportedError(
            f"the flat program makes {len(sequence)} operator calls that are not the tape's "
            f"{len(workspace.taped.tape.operators)}; please report the model"
        )
    checks = check_on_both_inputs(
        workspace,
        lambda inputs: function(*inputs),
        name="the flat program",
        otherwise="please report the model",
    )
    return replace(checks, details={"operators": len(sequence)})


def _warn_via_ops(via_ops: dict[str, int]) -> tuple[str, ...]:
    if not via_ops:
        return ()
    names = ", ".join(f"{count} x {name}" for name, count in via_ops.items())
    return (f"flat Python has no binding for {names}: these go through torch.ops",)
