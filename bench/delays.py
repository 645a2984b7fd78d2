"""Known delays, put in on purpose: the proof that a receipt puts time on the right line.

A delay in a module's forward must appear as model glue, a delay in a binding as interpreter and
bindings, a delay in each operator call as operators (on a GPU: dispatch), a delay in a layer of
torch.compile as that layer, and each on no other line (docs/trust.md). Delays spin instead
of sleeping, because a sleep also pays for the scheduler. What is measured with and without a delay
shares its rounds, so that each change has an interval. Benchmarks and tests import this file.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from torch import nn

from ftax import _core
from ftax.errors import InvalidArgumentError, name_type
from ftax.runtimes.candidates import grad_mode
from ftax.runtimes.catalogue import find_runtime
from ftax.runtimes.compilers.taken_apart import find_guards, skipping_guards, take_apart
from ftax.runtimes.eager.eager import prepare_eager, prepare_flat
from ftax.runtimes.workspace import Workspace
from ftax.timing.candidate import Candidate
from ftax.timing.differences import compute_intervals
from ftax.timing.measurement import Measurement

DELAYED_LAYERS = ("frame evaluation", "AOTAutograd's wrappers", "Inductor's wrapper")


def spin(delay_ns: float) -> None:
    """Return after ``delay_ns`` of CLOCK_MONOTONIC, without giving up the CPU."""
    now = _core.now_ns
    end = now() + delay_ns
    while now() < end:
        pass


class DelayedForward(nn.Module):
    """A model whose own Python takes ``delay_ns`` longer: no operator, only time."""

    def __init__(self, module: nn.Module, delay_ns: int) -> None:
        super().__init__()
        self.module = module
        self.delay_ns = delay_ns

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Wait, then call the model."""
        spin(self.delay_ns)
        return self.module(*args, **kwargs)


def delay_binding(
    prepared: Sequence[Candidate], namespace: Any, name: str, delay_ns: int
) -> list[Candidate]:
    """The same runtimes, in which every call of one Python binding waits ``delay_ns`` first.

    The binding ``namespace.name``, such as ``torch.nn.functional.linear``, is replaced while a
    Python-hosted runner runs and put back after each request, so delayed and other runners can
    share their rounds. What runs in C++ never goes through it. The wrapper itself costs time:
    compare with a delay of 0.

    Raises InvalidArgumentError for a Python-hosted runner whose callable is wrapped, as on a GPU,
    where it is put on a stream: `prepare_with_delayed_binding` comes before that.
    """
    original: Callable[..., Any] = getattr(namespace, name)

    @functools.wraps(original)
    def delayed(*args: Any, **kwargs: Any) -> Any:
        spin(delay_ns)
        return original(*args, **kwargs)

    def wrap(item: Candidate) -> Candidate:
        if item.host != "python":
            return item
        if not isinstance(item.runner, _core.PythonRunner):
            raise InvalidArgumentError(
                f"the runner of {item.runtime} is {name_type(item.runner)}, whose callable "
                "cannot be reached; use prepare_with_delayed_binding"
            )
        inner = item.runner.callable

        def call() -> None:
            setattr(namespace, name, delayed)
            try:
                inner()
            finally:
                setattr(namespace, name, original)

        runner = _core.PythonRunner(
            call,
            item.runner.name,
            device=item.runner.device,
            grad_mode=item.runner.grad_mode,
        )
        return replace(item, runner=runner)

    return [wrap(item) for item in prepared]


def prepare_with_delayed_binding(
    workspace: Workspace, namespace: Any, name: str, delay_ns: int
) -> list[Candidate]:
    """The rungs that Python drives, eager and flat, as `delay_binding` makes them.

    On a GPU they are delayed first and put on their stream afterwards, so that the stream is
    entered once a round, as ever.
    """
    bare = [prepare_eager(workspace, "python"), prepare_flat(workspace, "python")]
    return [
        replace(item, runner=workspace.on_stream(item.runner))
        for item in delay_binding(bare, namespace, name, delay_ns)
    ]


def delay_operators(prepared: Sequence[Candidate], delay_ns: int) -> list[Candidate]:
    """The same runtimes, every operator call of which waits ``delay_ns`` first.

    Interception itself costs time: compare with a delay of 0, not with the bare runtimes.
    """
    return [
        replace(item, runner=_core.OperatorDelayRunner(item.runner, delay_ns)) for item in prepared
    ]


def delay_launches(
    workspace: Workspace, prepared: Sequence[Candidate], delay_ns: int
) -> list[Candidate]:
    """The same runtimes of ``workspace``, launch replay waiting ``delay_ns`` before each launch.

    The rungs above issue their launches inside torch, out of reach: their latency stays, so that
    what launch replay takes longer appears as launch and is missing from dispatch.

    Raises InvalidArgumentError if launch replay is not among them, or the delay is negative.
    """
    captured = workspace.graph

    def wrap(item: Candidate) -> Candidate:
        if item.runtime != "launch-replay":
            return item
        runner = _core.LaunchReplayRunner(
            captured.graph.raw_cuda_graph(), item.runner.name, captured, delay_ns=delay_ns
        )
        return replace(item, runner=workspace.on_stream(runner))

    names = [item.runtime for item in prepared]
    if "launch-replay" not in names:
        raise InvalidArgumentError(
            f"the runtimes are {', '.join(names) or 'none'}; only launch-replay has launches that "
            "can be delayed"
        )
    return [wrap(item) for item in prepared]


def prepare_with_delayed_layer(workspace: Workspace, layer: str, delay_ns: int) -> list[Candidate]:
    """The rungs of a compiled call that Python drives, in which a layer waits ``delay_ns`` first.

    ``layer`` is one of `DELAYED_LAYERS`, by the name of its line. What waits is put in for each
    round and taken out after it, so that delayed and other runners share compiled model and rounds.
    Raises InvalidArgumentError for another layer.
    """
    if layer not in DELAYED_LAYERS:
        raise InvalidArgumentError(
            f"layer is {layer!r}; a delay can be put into {', '.join(DELAYED_LAYERS)}"
        )
    parts = take_apart(workspace)
    guards, _ = find_guards(parts.compilation)

    def delay(function: Callable[..., Any]) -> Callable[..., Any]:
        def delayed(*args: Any) -> Any:
            spin(delay_ns)
            return function(*args)

        return delayed

    call, graph = parts.compilation.call, parts.call_graph
    plant: Callable[[], AbstractContextManager[None]] = {
        "frame evaluation": lambda: parts.replacing_graph(delay(parts.graph)),
        "AOTAutograd's wrappers": lambda: parts.replacing_graph(delay(parts.graph)),
        "Inductor's wrapper": lambda: parts.replacing_generated(delay(parts.generated)),
    }[layer]
    pieces: dict[str, Callable[[], Any]] = {
        "compile": call,
        "compile-without-guards": call,
        # Dynamo's bytecode calls it: without a delay where that is the layer above.
        "compile-graph": delay(graph) if layer == "AOTAutograd's wrappers" else graph,
        "inductor-graph": parts.call_code,
        "inductor-call": parts.call_generated,
    }

    def prepare(runtime: str) -> Candidate:
        @contextmanager
        def scope() -> Iterator[None]:
            with ExitStack() as stack:
                if runtime == "compile-without-guards":
                    stack.enter_context(skipping_guards(guards))
                stack.enter_context(plant())
                yield

        bare = _core.PythonRunner(
            pieces[runtime], runtime, workspace.loaded.device, grad_mode(workspace), scope=scope
        )
        rung = find_runtime(runtime).prepare(workspace, "python")
        return replace(rung, runner=workspace.on_stream(bare))

    return [prepare(runtime) for runtime in pieces]


def weigh_lines(rungs: int) -> list[list[float]]:
    """Weights that make the change of each line of a receipt, top to bottom, out of ``rungs``
    values without a delay followed by as many with it."""
    contrasts = []
    for rung in range(rungs):
        line = [0.0] * rungs
        line[rung] = 1.0
        if rung + 1 < rungs:
            line[rung + 1] = -1.0
        contrasts.append([*(-weight for weight in line), *line])
    return contrasts


def find_moves(
    before: Sequence[Measurement], after: Sequence[Measurement]
) -> list[tuple[float, tuple[float, float]]]:
    """Of each line, top to bottom, by how much it is longer after than before and the interval of
    that, ns; both are of the same rungs."""
    measured = [*before, *after]
    contrasts = weigh_lines(len(before))
    intervals = compute_intervals(measured, contrasts)
    changes = [
        sum(weight * m.latency_ns for weight, m in zip(weights, measured, strict=True))
        for weights in contrasts
    ]
    return list(zip(changes, intervals, strict=True))
