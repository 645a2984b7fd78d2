"""A runtime made ready for one model: something to time, and something to check it by."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch

from ftax import _core
from ftax.errors import FtaxError
from ftax.faults import describe
from ftax.runtimes.equality import compare_outputs, fail_equality
from ftax.runtimes.replays import Buffers
from ftax.runtimes.tape import preserve_state
from ftax.runtimes.workspace import Workspace
from ftax.tensors import copy_into

Host = Literal["python", "cpp"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """``runner`` is what the timed loop drives; ``run()`` is one inference by the same means, with
    its outputs. ``feed(inputs)`` puts other inputs where ``run`` reads them; None: that is the
    memory of the model's own inputs. ``facts`` are JSON-able and stored with the measurement.
    ``buffers`` are what every request reads and writes, where that memory is fixed. ``judge()`` is
    asked after the rounds, and says what went wrong in them."""

    runtime: str
    host: Host
    runner: _core.Runner
    run: Callable[[], Sequence[torch.Tensor]]
    facts: Mapping[str, object] = field(default_factory=dict)
    checks: Mapping[str, object] = field(default_factory=dict)
    options: Mapping[str, str | int | float | bool | None] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    judge: Callable[[], Sequence[str]] = tuple
    feed: Callable[[Sequence[torch.Tensor]], None] | None = None
    buffers: Buffers | None = None


def grad_mode(workspace: Workspace) -> _core.GradMode:
    """The guard that every rung of this workspace is timed under."""
    return _core.GradMode.no_grad if workspace.no_grad else _core.GradMode.inference


def drive_python(
    workspace: Workspace, name: str, callable_: Callable[[], object]
) -> _core.PythonRunner:
    """A Python callable in the C++ loop."""
    return _core.PythonRunner(
        callable_, name, device=workspace.loaded.device, grad_mode=grad_mode(workspace)
    )


def check_both_inputs(workspace: Workspace, prepared: Prepared) -> dict[str, object]:
    """How outputs compare with eager's on the main and on the check inputs, as JSON-able checks.

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
        outputs = compare_outputs(workspace.reference, run_on(main))
        try:
            second = compare_outputs(workspace.check_reference, run_on(loaded.flat_check_inputs()))
        except (FtaxError, RuntimeError) as error:
            second = fail_equality(f"it fails: {describe(error)}", outputs.tolerance)
    finally:
        feed(main)
    return {"outputs": outputs.to_dict(), "second_input": second.to_dict()}
