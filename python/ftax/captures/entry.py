"""`ftax.capture` and `ftax.capture_`: check what they are told, and record the first call.

As a runtime it is captured anew, beside the tape that is there already, and called from Python, as
who adopts it calls it. What is measured is what a user gets, guards, copies and all.
"""

from __future__ import annotations

import functools
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Unpack

import torch
from torch import nn

from ftax.captures.captured import Captured, captures
from ftax.captures.options import (
    CaptureKind,
    CaptureOptions,
    OnHostRead,
    OnMiss,
    OnRefusal,
    Options,
)
from ftax.errors import InvalidArgumentError, UnsupportedError, name_type
from ftax.runtimes.candidates import drive_python
from ftax.runtimes.compilers.torch_compile import find_compilation
from ftax.runtimes.workspace import Workspace
from ftax.steps.outputs import call_model, flatten_outputs
from ftax.steps.step import Step
from ftax.timing.candidate import Candidate, Host, Preparation


def capture(
    what: Callable[..., Any] | Step,
    inputs: Any = None,
    *,
    check_inputs: Any = None,
    kind: CaptureKind = "auto",
    on_host_read: OnHostRead = "refuse",
    on_refusal: OnRefusal = "raise",
    on_miss: OnMiss = "capture",
    max_bytes: int | None = None,
    borrow: bool = False,
    depth: int = 1,
    audit: bool = True,
    ignore: Sequence[str] = (),
    reset: Callable[[], object] | None = None,
) -> Captured:
    """Record a call of ``what`` and hand over a callable that replays it; see docs/capture.md.

    The replay makes the same operator calls on the same memory, without Python: from C++ on a CPU,
    as one CUDA graph on a GPU. Outputs are bit for bit those of the original.

    Args:
        what: a module, a function, or a step (`ftax.step`, `ftax.train`, `ftax.decode`). It runs in
            the caller's grad mode: where autograd goes on from its result, its backward pass is
            recorded and replayed too; without one, call it under `torch.inference_mode()` or
            `torch.no_grad()`, here and where it is called.
        inputs: of the call to record, in the forms of `ftax.load_model`; a step brings its own.
        check_inputs: the same with other values, by which the recording is checked; drawn if left
            out.
        kind: "tape", "graph" (a CUDA graph), or "auto": a graph on a GPU, a tape on a CPU.
        on_host_read: what becomes of a call that reads a number which depends on inputs or state,
            and does more than return it: "refuse", or "check": each replay computes the number
            too, and where it is not the recorded one the call is done again as the original does
            it, from the same state.
        on_refusal: of this recording and those of `warm`: "raise", or "eager": call the original,
            with one warning, as all later calls do that cannot be recorded.
        on_miss: what becomes of a call for which nothing was recorded, by its arguments or by what
            Python holds: "capture" calls the original, and records the call once it has come so
            often that recording pays; "eager" only calls the original; "raise" raises.
        max_bytes: of memory that recordings may hold; the one that was least recently used goes.
            Left out, a tenth of the GPU's memory, on a CPU of what is free.
        borrow: on a GPU, hand out the graph's own memory in place of copies: what is returned holds
            until the next call, which writes over it. `inputs` of the capture are then those that
            the graph reads: write new values into them, and call with them. On a CPU there are no
            copies anyway.
        depth: on a GPU, how many calls may wait for their backward pass and still be CUDA graphs:
            each takes memory for what it saves. Further ones are replayed from C++.
        audit: now and then run the original beside a replay, from the same state, and compare: at
            the 2nd, 4th, 8th ... call of a recording, then in 1 % of the time. Where they differ,
            a warning says so and the original is called from then on.
        ignore: names of attributes and variables that the call changes and that replays may leave
            as they are, such as a counter or a list of losses.
        reset: as of `ftax.step`: called without arguments before each call, it brings back what
            Python keeps.

    Raises:
        UnsupportedError: ``what`` cannot be replayed soundly; the message names operator, line and
            what to change.
        InvalidArgumentError: for arguments that cannot be.
        RunnerError: ``what`` raised.
    """
    if isinstance(what, Captured):
        raise InvalidArgumentError("already captured; pass the original callable (fast.original)")
    if not callable(what):
        raise InvalidArgumentError(
            f"'what' is {name_type(what)}, which cannot be called: give a module, a function or a "
            "step"
        )
    options = Options(
        kind=kind,
        on_host_read=on_host_read,
        on_refusal=on_refusal,
        on_miss=on_miss,
        max_bytes=max_bytes,
        borrow=borrow,
        depth=depth,
        audit=audit,
        ignore=ignore if isinstance(ignore, str) else tuple(ignore),
        reset=reset or (what.reset if isinstance(what, Step) else None),
    )
    if isinstance(what, Step) and inputs is not None:
        raise InvalidArgumentError("a step brings its inputs: leave inputs out")
    if isinstance(what, Step) and what.kind == "decode" and what.reset is not None:
        raise UnsupportedError(
            f"cannot capture {what.name}: its cache is Python's, which reset= brings back: capture "
            "the call of the model with a static cache (docs/capture.md)"
        )
    if isinstance(what, nn.Module) and inputs is None:
        raise InvalidArgumentError(
            f"inputs are left out: give those of a call of {type(what).__name__}, or () for none"
        )
    captured = Captured(what, options)
    captured.record_first(what.inputs if isinstance(what, Step) else inputs, check_inputs)
    return captured


def capture_(
    module: nn.Module, inputs: Any, *, check_inputs: Any = None, **options: Unpack[CaptureOptions]
) -> Captured:
    """Capture the forward pass of ``module`` in place: whoever calls it has the replays.

    The module keeps its class, attributes, hooks and ``state_dict``; ``.to()``, ``.eval()`` and new
    weights work as before, and are recorded once that pays. `copy.deepcopy`, `pickle` and
    `torch.save` give a module that is not captured.

    Returns:
        The capture, whose ``close()`` gives the module its own ``forward`` back.

    Arguments and errors are those of `capture`.
    """
    if not isinstance(module, nn.Module):
        raise InvalidArgumentError(
            f"'module' is {name_type(module)}: ftax.capture_ takes a module; ftax.capture takes "
            "anything that can be called"
        )
    name = type(module).__name__
    if isinstance(module.forward, Captured):
        raise InvalidArgumentError(f"{name} is captured already: close() that capture first")
    captured = Captured(module.forward, Options(**options), name)
    captured.stand_in_for(module)
    try:
        captured.record_first(inputs, check_inputs)
    except BaseException:
        captured.close()
        raise
    return captured


def find_options(what: Callable[..., Any]) -> Options:
    """Those of the newest capture of ``what`` that is still there; the usual ones without one."""
    found = captures.get(id(what))
    return Options() if found is None else found.options


def prepare_capture(workspace: Workspace, host: Host) -> Candidate:
    """The model or step, captured. Raises what `ftax.capture` raises."""
    loaded = workspace.loaded
    start = time.perf_counter()
    with loaded.guard(), _without_warnings():
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


@contextmanager
def _without_warnings() -> Iterator[None]:
    """The row has those of what is left out."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="replays of the capture of")
        yield


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
    with loaded.guard(), _without_warnings():
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
        warnings=(*loaded.warnings, *captured.left_out),
    )
