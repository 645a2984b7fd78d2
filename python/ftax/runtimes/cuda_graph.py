"""The rungs below the tape: the same kernels launched one by one, or as one graph.

Both replay one capture, so they cannot differ in what they run, only in who launches it.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from ftax import _core
from ftax.errors import (
    FtaxError,
    RunnerError,
    UnavailableError,
    UnsupportedError,
    describe,
    say_count,
)
from ftax.runtimes.adoption import make_request
from ftax.runtimes.candidates import check_on_both_inputs, drive_python, replay_mode
from ftax.runtimes.workspace import Workspace
from ftax.steps.loaded import LoadedModel
from ftax.steps.tensors import copy_into
from ftax.tape.capture import (
    CapturedGraph,
    capture_calls,
    draws_random,
    enter_stream,
    forbid_synchronising,
    refuse_host_outputs,
)
from ftax.tape.tape import preserve_state
from ftax.timing.candidate import Candidate, Host, Launches
from ftax.timing.checks import Checks

_REHEARSALS = 5  # of a request before it is captured: libraries set themselves up


def prepare_cuda_graph(workspace: Workspace, host: Host) -> Candidate:
    """One launch of the whole graph, by C++ or through torch."""
    require_cuda_build()
    runner, captured = drive_graph(workspace, workspace.graph, host)
    return _finish(workspace, captured, "cuda-graph", host, runner, None, warnings=[])


def drive_graph(
    workspace: Workspace, captured: CapturedGraph, host: Host
) -> tuple[_core.Runner, CapturedGraph]:
    """What launches the graph, and the same capture with the memory that requests come in: from
    Python they are copied to where the graph reads, by the lines that adopt it; C++ leaves them
    there. A step reads its inputs where they are, since it may write them.
    """
    if host == "cpp":
        return captured.drive("cuda-graph"), captured
    if workspace.loaded.kind != "forward":
        return drive_python(workspace, "cuda-graph", captured.graph.replay), captured
    buffers = captured.buffers
    inputs = tuple(tensor.clone() for tensor in buffers.inputs)
    request = make_request(
        "cuda-graph",
        graph=captured.graph,
        memory=buffers.inputs,
        written=buffers.outputs,
        inputs=inputs,
    )
    buffers = replace(buffers, inputs=inputs, copied=buffers.inputs)
    return drive_python(workspace, "cuda-graph", request), replace(captured, buffers=buffers)


def check_graph(
    workspace: Workspace, captured: CapturedGraph, runner: _core.Runner, runtime: str
) -> Checks:
    """`check_on_both_inputs` of what `drive_graph` gave, whose memory has the main inputs after."""
    checks = check_on_both_inputs(
        workspace,
        lambda inputs: captured.run(runner.run_once, inputs, workspace.loaded),
        name=runtime,
    )
    copy_into(captured.buffers.inputs, workspace.loaded.flat_inputs())
    return checks


def prepare_launch_replay(workspace: Workspace, host: Host) -> Candidate:
    """The launches of the graph, one driver call each."""
    require_cuda_build()
    captured = workspace.graph
    runner = _core.LaunchReplayRunner(captured.graph.raw_cuda_graph(), "launch-replay", captured)
    nodes = runner.nodes
    attributes = Counter(name for node in nodes for name in node.get("attributes", ()))
    launches = Launches(
        count=runner.launches,
        types=Counter(node["type"] for node in nodes),
        attributes=attributes,
        is_chain=runner.is_chain,
        lost_programmatic_edges=runner.lost_programmatic_edges,
    )
    warnings = []
    if not runner.is_chain:
        warnings.append(
            "the captured graph is no chain: launch replay issues it in one order, one after "
            "another, where the graph may overlap"
        )
    if runner.lost_programmatic_edges:
        warnings.append(
            f"{say_count(runner.lost_programmatic_edges, 'kernel')} that the graph starts early "
            "wait for the end of the one before"
        )
    return _finish(workspace, captured, "launch-replay", host, runner, launches, warnings)


def prepare_tape_without_host_reads(workspace: Workspace, host: Host) -> Candidate:
    """The tape without the values that the model reads back, each of which waits for the device.

    Raises UnsupportedError for a model that reads none: this would be the tape again.
    """
    taped, loaded = workspace.taped, workspace.loaded
    tape = taped.tape.without_host_reads()
    left_out = len(taped.tape) - len(tape)
    if left_out == 0:
        raise UnsupportedError(
            "the model reads no value back to the host; without host reads it is eager, called "
            "from C++"
        )

    def run_on(inputs: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        tape.bind_inputs(list(inputs))
        return tape.run()

    def run() -> Sequence[torch.Tensor]:
        with torch.inference_mode():
            return tape.run()

    name = "tape-without-host-reads"
    checks = check_on_both_inputs(workspace, run_on, name=name)
    tape.bind_inputs(loaded.flat_inputs())
    return Candidate(
        runtime=name,
        host="cpp",
        runner=_core.TapeRunner(tape, name, device=loaded.device, grad_mode=replay_mode(workspace)),
        run=run,
        preparation=workspace.shared_cost().also(host_reads_left_out=left_out),
        checks=checks,
        warnings=taped.warnings,
    )


def _finish(
    workspace: Workspace,
    captured: CapturedGraph,
    runtime: str,
    host: Host,
    runner: _core.Runner,
    launches: Launches | None,
    warnings: list[str],
) -> Candidate:
    checks = check_graph(workspace, captured, runner, runtime)
    if captured.host_reads:
        warnings.append(
            f"the graph leaves out {say_count(len(captured.host_reads), 'value')} that the model "
            f"reads back to the host ({captured.host_reads[0]})"
        )
    if captured.draws_random and host == "cpp":
        warnings.append("the model draws random numbers: every replay draws the same ones")
    return Candidate(
        runtime=runtime,
        host=host,
        runner=runner,
        run=functools.partial(captured.replay, runner.run_once),
        preparation=replace(
            workspace.shared_cost(graph=True),
            launches=launches,
            details={"host_reads_left_out": len(captured.host_reads)},
        ),
        checks=checks,
        warnings=(*workspace.taped.warnings, *warnings),
        buffers=captured.buffers,
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
        random = draws_random([graph], index)
    return graph, outputs, random


def require_cuda_build(what: str = "CUDA graphs need") -> None:
    """Raise UnavailableError if this ftax was built without its CUDA parts."""
    if not hasattr(_core, "GraphRunner"):
        raise UnavailableError(
            f"{what} the CUDA parts of ftax, which this build lacks: install nvcc or set "
            "CUDA_HOME, then `pip install --no-build-isolation --force-reinstall ftax`"
        )
