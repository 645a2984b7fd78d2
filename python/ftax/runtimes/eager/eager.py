"""Eager execution: as researchers run it (host python) and replayed from the tape (host cpp).

Eager on one thread sets the number of threads once a round, outside the timed region, and puts it
back, so that it can take turns with what has all threads.

Channels-last is a memory format that cuDNN and oneDNN may prefer for convolutions. The format is a
property of the weights, and the rungs that are measured beside this one must keep theirs: so the
model is copied, and weights are on the device twice. From Python images come as eager gets them,
and its first convolution converts them; the tape of host cpp has them converted.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from ftax import _core
from ftax.errors import UnsupportedError, describe
from ftax.runtimes.candidates import (
    check_both_inputs,
    check_on_both_inputs,
    core_grad_mode,
    drive_python,
    replay_mode,
)
from ftax.runtimes.workspace import Workspace
from ftax.steps.given import use_threads
from ftax.steps.loaded import LoadedModel
from ftax.steps.tensors import copy_into
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

_RUNTIME = "eager-channels-last"
_CONVOLUTIONS = (nn.Conv2d, nn.ConvTranspose2d)


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


def prepare_channels_last(workspace: Workspace, host: Host) -> Candidate:
    """A copy of the model in channels-last, or the tape of that and of converted images.

    Raises UnsupportedError for a model without two-dimensional convolutions.
    """
    if not any(isinstance(module, _CONVOLUTIONS) for module in workspace.loaded.module.modules()):
        raise UnsupportedError(
            f"{workspace.loaded.name} has no Conv2d or ConvTranspose2d, whose memory format could "
            "be channels-last"
        )
    variant, cost = workspace.variant(_RUNTIME, _convert)
    if host == "cpp":
        prepared = prepare_eager(variant, host, runtime=_RUNTIME)
        feed = functools.partial(copy_into, variant.loaded.flat_inputs())
        prepared = replace(prepared, feed=feed)
    else:
        loaded = workspace.loaded
        call = functools.partial(variant.loaded.module, *loaded.args, **loaded.kwargs)
        prepared = prepare_call(variant, _RUNTIME, call)
    prepared = replace(prepared, preparation=prepared.preparation.costing(cost))
    # Against the model in its own format, whatever its copy was checked against.
    return replace(prepared, checks=check_both_inputs(workspace, prepared))


def _convert(loaded: LoadedModel) -> LoadedModel:
    try:
        module = copy.deepcopy(loaded.module)
    except Exception as error:  # a module may hold anything
        raise UnsupportedError(
            f"copy.deepcopy cannot copy {loaded.name}: {describe(error)}"
        ) from error
    # The positional form alone is typed for a memory format.
    module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    args, kwargs, check_args, check_kwargs = (
        pytree.tree_map(_convert_leaf, tree)
        for tree in (loaded.args, dict(loaded.kwargs), loaded.check_args, dict(loaded.check_kwargs))
    )
    pair = replace(
        loaded.pair,
        args=args,
        kwargs=kwargs,
        check_args=check_args,
        check_kwargs=check_kwargs,
    )
    return replace(loaded, module=module, pair=pair)


def _convert_leaf(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor) and leaf.dim() == 4 and leaf.is_floating_point():
        return leaf.contiguous(memory_format=torch.channels_last)
    return leaf
