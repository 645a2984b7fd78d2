"""A runtime made ready for one model: something to time, and something to check it by."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch

from ftax import _core
from ftax.runtimes.equality import compare_outputs
from ftax.runtimes.replays import Buffers
from ftax.runtimes.workspace import Workspace

Host = Literal["python", "cpp"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """``runner`` is what the timed loop drives; ``run()`` is one inference by the same means, with
    its outputs. ``facts`` are JSON-able and stored with the measurement. ``buffers`` are what every
    request reads and writes, where that memory is fixed. ``judge()`` is asked after the rounds, and
    says what went wrong in them."""

    runtime: str
    host: Host
    runner: _core.Runner
    run: Callable[[], Sequence[torch.Tensor]]
    facts: Mapping[str, object] = field(default_factory=dict)
    checks: Mapping[str, object] = field(default_factory=dict)
    options: Mapping[str, str | int | float | bool | None] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    judge: Callable[[], Sequence[str]] = tuple
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


def check_outputs(workspace: Workspace, outputs: Sequence[torch.Tensor]) -> dict[str, object]:
    """How outputs compare with eager's, as a JSON-able check."""
    return {"outputs": compare_outputs(workspace.reference, outputs).to_dict()}
