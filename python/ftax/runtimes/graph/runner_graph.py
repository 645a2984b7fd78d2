"""A C++ runner captured as a CUDA graph: its kernels in one launch, without its host work.

The surprising choice: what is captured is the runner's own request on tensors that stay where they
are, not the model. A library that notices a capture while Python runs may choose other kernels.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Protocol

import torch

from ftax.errors import FtaxError, RunnerError, UnsupportedError, describe
from ftax.runtimes.cost import measure_cost
from ftax.runtimes.graph.cuda_graph import check_graph, drive_graph, require_cuda_build
from ftax.runtimes.streams import enter_stream
from ftax.runtimes.tape.capture import (
    CapturedGraph,
    capture_calls,
    draws_random,
    forbid_synchronising,
    refuse_host_outputs,
)
from ftax.runtimes.tape.tape import preserve_state
from ftax.runtimes.workspace import Workspace
from ftax.steps.loaded import LoadedModel
from ftax.steps.outputs import flatten_outputs
from ftax.timing.candidate import Buffers, Candidate, Host
from ftax.timing.preparation import Preparation
from ftax.workers.time_limit import time_limit

_REHEARSALS = 5  # TorchScript profiles, then compiles; libraries set themselves up


class Capturable(Protocol):
    """A C++ runner with bound inputs."""

    def run(self) -> Any:
        """One inference, with its outputs."""
        ...


def prepare_graph(
    workspace: Workspace,
    host: Host,
    runtime: str,
    make_runner: Callable[[], Capturable],
    preparation: Preparation,
) -> Candidate:
    """One launch of what the runner does, by C++ or through torch.

    ``make_runner`` binds the workspace's own inputs. Raises UnsupportedError if the runner cannot
    be captured or writes into its inputs.
    """
    require_cuda_build()
    what = f"capturing {runtime} of {workspace.loaded.name}"
    with time_limit(None, what), measure_cost(workspace.loaded.device) as cost:
        captured = _capture(workspace, make_runner(), runtime)
    runner, captured = drive_graph(workspace, captured, runtime, host)
    checks = check_graph(workspace, captured, runner, runtime, refuse=False)
    repeats = captured.draws_random and host == "cpp"
    return Candidate(
        runtime=runtime,
        host=host,
        runner=runner,
        run=functools.partial(captured.replay, runner.run_once),
        preparation=preparation.also(
            capture_seconds=cost.seconds, capture_peak_device_bytes=cost.peak_device_bytes
        ),
        checks=checks,
        warnings=(
            ("the model draws random numbers: every replay draws the same ones",) if repeats else ()
        ),
        buffers=captured.buffers,
    )


def _capture(workspace: Workspace, runner: Capturable, runtime: str) -> CapturedGraph:
    loaded = workspace.loaded
    graph, outputs, random = capture_request(loaded, lambda: flatten_outputs(runner.run()), runtime)
    return CapturedGraph(
        graph=graph,
        owner=runner,
        buffers=Buffers(inputs=tuple(loaded.flat_inputs()), outputs=tuple(outputs), constants=()),
        draws_random=random,
        host_reads=(),
    )


def capture_request(
    loaded: LoadedModel, request: Callable[[], list[torch.Tensor]], runtime: str
) -> tuple[torch.cuda.CUDAGraph, list[torch.Tensor], bool]:
    """A graph of what ``request`` issues, its outputs, and whether it draws random numbers.

    Raises UnsupportedError for what cannot be captured.
    """
    device = torch.device(loaded.device)
    index = torch.cuda.current_device() if device.index is None else device.index
    with torch.cuda.device(index), preserve_state(loaded):
        stream = torch.cuda.Stream()
        torch.cuda.synchronize()
        try:
            with enter_stream(stream), torch.inference_mode():
                for _ in range(_REHEARSALS):
                    request()
                with forbid_synchronising():  # a failed capture would leave torch half-way through
                    request()
            graph, outputs = capture_calls(request, stream)
        except (FtaxError, RuntimeError) as error:
            if isinstance(error, FtaxError) and not isinstance(error, RunnerError):
                raise
            raise UnsupportedError(f"cannot capture {runtime}: {describe(error)}") from error
        refuse_host_outputs(outputs, runtime)
        random = draws_random(graph, index)
    return graph, outputs, random
