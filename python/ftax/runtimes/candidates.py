"""What runtimes share in making a candidate: its driver, its guard, and its check against eager.

A replay of captured work takes no inputs and returns no outputs: it reads and writes memory that is
fixed. So one that does nothing leaves the last right answer in place, and looks right. So its check
puts its inputs into that memory, and fills the outputs with NaN, before it replays.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace

import torch

from ftax import _core
from ftax.errors import FtaxError, UnsupportedError, describe, is_out_of_memory
from ftax.runtimes.workspace import Workspace
from ftax.steps.loaded import LoadedModel
from ftax.steps.outputs import call_model
from ftax.steps.setting import Setting
from ftax.steps.tensors import copy_into
from ftax.tape.equality import fail_equality
from ftax.tape.tape import explain_other_outputs, preserve_state
from ftax.timing.candidate import Candidate
from ftax.timing.checks import Checks


def core_grad_mode(setting: Setting) -> _core.GradMode:
    """The grad mode of a setting as the C++ core takes it."""
    mode: _core.GradMode = getattr(_core.GradMode, setting.grad_mode)
    return mode


def grad_mode(workspace: Workspace) -> _core.GradMode:
    """The guard that every rung of this workspace is timed under, but for `replay_mode`."""
    return core_grad_mode(workspace.setting)


def replay_mode(workspace: Workspace) -> _core.GradMode:
    """The guard of a tape: what was recorded below autograd needs none."""
    mode = grad_mode(workspace)
    return _core.GradMode.inference if mode == _core.GradMode.grad else mode


def drive_python(
    workspace: Workspace,
    name: str,
    callable_: Callable[[], object],
    scope: Callable[[], AbstractContextManager[object]] | None = None,
    count_rebuilds: Callable[[], int] | None = None,
) -> _core.PythonRunner:
    """A Python callable in the C++ loop, which enters a ``scope`` once a round.
    ``count_rebuilds()`` tells how often it has recorded or compiled inside of a call so far: the
    rounds have no such call."""
    return _core.PythonRunner(
        callable_,
        name,
        device=workspace.loaded.device,
        grad_mode=grad_mode(workspace),
        scope=scope,
        count_rebuilds=count_rebuilds,
    )


def check_later(checks: Checks, check: Callable[[], Checks]) -> Checks:
    """``checks``, or what ``check()`` finds now where that is worse: a library whose thread has
    died, or a cache that is full, computes nothing and is fast. Where memory is short for the
    check, nothing was found."""
    try:
        now = check()
    except (FtaxError, RuntimeError) as error:
        if is_out_of_memory(error):
            return checks
        limit = None if checks.outputs is None else checks.outputs.tolerance
        failed = fail_equality(f"after the rounds it fails: {describe(error)}", limit, error)
        return replace(checks, outputs=failed)
    if not checks.judge_outputs().equal or now.judge_outputs().equal:
        return checks
    problem = f"after the rounds {now.judge_outputs().problem}"
    return replace(checks, outputs=fail_equality(problem, now.judge_outputs().tolerance))


def check_both_inputs(workspace: Workspace, prepared: Candidate) -> Checks:
    """The checks of ``prepared``, its outputs compared with eager's on the main and check inputs.

    What was made ready is run as it is, on other values in the memory that it reads: whatever a
    compiler has baked in is found out. What fails on the check inputs is a difference.
    """
    loaded = workspace.loaded
    feed = prepared.feed or functools.partial(copy_into, loaded.flat_inputs())
    main = [tensor.detach().clone() for tensor in loaded.flat_inputs()]

    def run_on(inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        with preserve_state(loaded), torch.inference_mode():
            feed(inputs)
            return [output.clone() for output in prepared.run()]

    try:
        outputs = workspace.compare(workspace.reference, run_on(main))
        try:
            given = run_on(loaded.flat_check_inputs())
            second = workspace.compare(workspace.check_reference, given, second=True)
        except (FtaxError, RuntimeError) as error:
            if is_out_of_memory(error):
                raise  # which says nothing of outputs
            second = fail_equality(f"it fails: {describe(error)}", outputs.tolerance, error)
    finally:
        feed(main)
    return replace(prepared.checks, outputs=outputs, second_input=second)


def draws_random(loaded: LoadedModel) -> bool:
    """Whether a call draws from torch's own generators."""
    with preserve_state(loaded):
        before = _read_generators()
        call_model(loaded.call)
        return not all(map(torch.equal, before, _read_generators()))


def _read_generators() -> list[torch.Tensor]:
    gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    return [torch.get_rng_state(), *gpus]


def check_on_both_inputs(
    workspace: Workspace,
    run: Callable[[Sequence[torch.Tensor]], Sequence[torch.Tensor]],
    *,
    name: str,
    otherwise: str = "what the model computes on the host is baked in",
) -> Checks:
    """Compare ``run(inputs)`` with eager, seeded alike, on the main inputs and on a second set.

    Raises UnsupportedError, naming the inputs, where the outputs are not the model's:
    ``otherwise`` is why, unless an operator is found that does not give them twice.
    """
    loaded, found = workspace.loaded, []
    for second, inputs, expected in (
        (False, loaded.flat_inputs(), workspace.reference),
        (True, loaded.flat_check_inputs(), workspace.check_reference),
    ):
        copies = [tensor.clone() for tensor in inputs]  # `run` may write into the originals
        with preserve_state(loaded), torch.inference_mode():
            found.append(workspace.compare(expected, run(copies), second))
        if not found[-1].within_tolerance:
            which = "a second input" if second else "the recorded input"
            why = explain_other_outputs(loaded, otherwise, second=second)
            raise UnsupportedError(
                f"{name} is not the model: on {which} it gives other outputs than eager "
                f"({found[-1].problem}); {why}"
            )
    return Checks(outputs=found[0], second_input=found[1])


@contextmanager
def environment_with(variables: Mapping[str, str]) -> Iterator[None]:
    """Inside, these variables are set so; afterwards all of them are what they were."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
