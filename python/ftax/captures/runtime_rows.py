"""`ftax.capture` as a runtime: called from Python, as who adopts it calls it.

It is captured anew, beside the tape that is there already. What is measured is what a user gets,
guards, copies and all.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import torch

from ftax.captures.captured import Captured
from ftax.captures.entry import capture, find_options
from ftax.runtimes.candidates import drive_python
from ftax.runtimes.compilers.torch_compile import find_compilation
from ftax.runtimes.workspace import Workspace
from ftax.steps.outputs import call_model, flatten_outputs
from ftax.timing.candidate import Candidate, Host, Preparation


def prepare_capture(workspace: Workspace, host: Host) -> Candidate:
    """The model or step, captured. Raises what `ftax.capture` raises."""
    loaded = workspace.loaded
    start = time.perf_counter()
    with loaded.guard():
        if loaded.step is not None:
            step = loaded.step.step
            captured = capture(step, **_find_keywords(step.function))
        else:
            captured = capture(
                loaded.module,
                (loaded.args, dict(loaded.kwargs)),
                check_inputs=(loaded.check_args, dict(loaded.check_kwargs)),
                **_find_keywords(loaded.module),
            )
    return _make(workspace, "capture", captured, start)


def _find_keywords(what: Callable[..., Any]) -> dict[str, Any]:
    """Of the capture that its user has of it, so that this is what is measured; a refusal is the
    row's to tell."""
    return {**find_options(what).to_dict(), "on_refusal": "raise", "on_miss": "capture"}


def prepare_compile_capture(workspace: Workspace, host: Host) -> Candidate:
    """The model as the row `compile` has it compiled, captured. Raises what `ftax.capture`
    raises."""
    loaded = workspace.loaded
    compilation = find_compilation(workspace)
    start = time.perf_counter()
    with loaded.guard():
        captured = capture(
            compilation.module,
            (loaded.args, dict(loaded.kwargs)),
            check_inputs=(loaded.check_args, dict(loaded.check_kwargs)),
        )
    return _make(workspace, "compile-capture", captured, start)


def _make(workspace: Workspace, runtime: str, captured: Captured, start: float) -> Candidate:
    loaded = workspace.loaded
    call = functools.partial(captured, *loaded.args, **loaded.kwargs)

    def run() -> list[torch.Tensor]:
        with loaded.guard():
            return flatten_outputs((call_model(call), loaded.list_returned()))

    return Candidate(
        runtime=runtime,
        host="python",
        runner=drive_python(workspace, runtime, call, count_rebuilds=lambda: captured.recordings),
        run=run,
        preparation=Preparation(
            made_seconds=time.perf_counter() - start,
            details={"memory_bytes": captured.memory_bytes},
        ),
        warnings=loaded.warnings,
    )
