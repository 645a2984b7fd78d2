"""The ONNX Runtime rows: a model exported once and kept, or a file of the user's, under both
hosts.

A row has input memory of its own. So its outputs can be checked on other inputs than the model's,
which a captured graph that computes nothing would not survive.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from ftax import _core
from ftax.errors import (
    InvalidArgumentError,
    RunnerError,
    UnavailableError,
    UnsupportedError,
    describe,
)
from ftax.runtimes.adoption import make_request
from ftax.runtimes.cache import Artefact
from ftax.runtimes.candidates import drive_python
from ftax.runtimes.compilers.flattened import Flattened
from ftax.runtimes.onnx.export import export_onnx
from ftax.runtimes.onnx.sessions import (
    Inputs,
    SessionSettings,
    bind_session,
    make_cpp_runner,
    make_python_callable,
    make_python_session,
    match_torch,
)
from ftax.runtimes.workspace import Workspace
from ftax.steps.input_trees import flatten_tensors
from ftax.steps.loaded import LoadedModel
from ftax.steps.tensors import copy_into
from ftax.steps.user_inputs import split_inputs
from ftax.tape.capture import enter_stream, make_stream, wrap_runner
from ftax.timing.candidate import Buffers, Candidate, Host, Preparation

_FILE = "model.onnx"
_CPU = "CPUExecutionProvider"


def prepare_onnxruntime(workspace: Workspace, host: Host) -> Candidate:
    """The model exported to ONNX with fixed shapes; as many threads as torch has, torch's numeric
    modes."""
    artefact = make_file(workspace)
    settings, warnings = _match(workspace, artefact)
    return _prepare(workspace, host, "onnxruntime", artefact, settings, warnings)


def prepare_run(workspace: Workspace, host: Host) -> Candidate:
    """The same session called as most do, by `InferenceSession.run` on arrays of numpy."""
    runtime, artefact = "onnxruntime-run", make_file(workspace)
    settings = _start(workspace)
    session = make_python_session(artefact.folder / _FILE, settings)
    request = make_request(
        runtime,
        session=session,
        names=[item.name for item in session.get_inputs()],
        inputs=workspace.loaded.flat_inputs(),
    )
    return Candidate(
        runtime=runtime,
        host=host,
        runner=drive_python(workspace, runtime, request),
        run=lambda: [torch.as_tensor(output) for output in request()],
        preparation=artefact.to_preparation(session=settings.to_facts()),
        options=_find_options(workspace),
    )


def prepare_cuda_graph(workspace: Workspace, host: Host) -> Candidate:
    """The same session, whose first run ONNX Runtime captures and whose later runs it replays.

    Raises UnsupportedError if a node does not run on the GPU.
    """
    artefact = make_file(workspace)
    settings, warnings = _match(workspace, artefact)
    settings = replace(
        settings, provider_options={**settings.provider_options, "enable_cuda_graph": "1"}
    )
    try:
        return _prepare(workspace, host, "onnxruntime-cuda-graph", artefact, settings, warnings)
    except (InvalidArgumentError, RunnerError) as error:
        raise UnsupportedError(
            f"ONNX Runtime cannot capture the model: {describe(error)}"
        ) from error


def prepare_onnx_file(path: Path, inputs: Any, host: Host) -> Candidate:
    """A file of the user's; ``inputs`` by position or, as a dict, by the file's input names."""
    args, kwargs = split_inputs(inputs)
    tensors = flatten_tensors((args, kwargs))
    device = str(tensors[0].device) if tensors else "cpu"
    stream = make_stream(device)
    settings = _make_settings(device, stream)
    warnings: tuple[str, ...] = ()
    if settings.on_cuda:
        float32 = any(tensor.dtype == torch.float32 for tensor in tensors)
        options, warnings = match_torch(_count_operators(path), float32=float32)
        settings = replace(settings, provider_options=options)
    row = _open(path, kwargs or list(args), host, "onnxruntime", settings, stream)
    return Candidate(
        runtime="onnxruntime",
        host=host,
        runner=wrap_runner(row.runner, stream),
        run=lambda: row.run([tensor.clone() for tensor in row.buffers.inputs]),
        preparation=Preparation(details=row.details),
        warnings=(*warnings, *row.warnings),
    )


def make_file(workspace: Workspace) -> Artefact:
    """The model as an ONNX file, in the cache."""
    loaded = workspace.loaded

    def make(folder: Path) -> Mapping[str, object]:
        export = export_onnx(Flattened(loaded), loaded.flat_inputs(), folder / _FILE)
        return {
            "exporter": export.exporter,
            "opset": export.opset,
            "exporter_messages": len(export.messages),
            "fallback_reason": export.fallback_reason,
        }

    return workspace.artefact("onnx", {}, make)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """A session under one host, and the memory that it reads and writes."""

    runner: _core.Runner
    replay: Callable[[], object]  # a request, which leaves its outputs in the buffers
    buffers: Buffers
    stream: torch.cuda.Stream | None
    details: Mapping[str, object]
    warnings: tuple[str, ...]

    def feed(self, inputs: Sequence[torch.Tensor]) -> None:
        """Put ``inputs`` into the memory that is read."""
        with enter_stream(self.stream):
            copy_into(self.buffers.inputs, inputs)

    def run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The outputs on ``inputs``, which stay in the memory that is read."""
        with torch.inference_mode(), enter_stream(self.stream):
            outputs = self.buffers.run(self.replay, inputs)
            return [output.clone() for output in outputs]


def _prepare(
    workspace: Workspace,
    host: Host,
    runtime: str,
    artefact: Artefact,
    settings: SessionSettings,
    warnings: tuple[str, ...] = (),
) -> Candidate:
    loaded = workspace.loaded
    path = artefact.folder / _FILE
    row = _open(path, _copy(loaded), host, runtime, settings, workspace.stream)
    return Candidate(
        runtime=runtime,
        host=host,
        runner=row.runner,
        run=lambda: row.run(row.buffers.inputs),
        feed=row.feed,
        preparation=artefact.to_preparation(**row.details),
        options=_find_options(workspace),
        warnings=(*warnings, *row.warnings),
        buffers=row.buffers,
    )


def _find_options(workspace: Workspace) -> dict[str, str]:
    chosen = workspace.setting.runtime_options.get("optimization")
    return {} if chosen is None else {"optimization": chosen}


def _copy(loaded: LoadedModel) -> list[torch.Tensor]:
    """The inputs, in memory for a row of its own."""
    return [
        tensor.detach().clone(memory_format=torch.contiguous_format)
        for tensor in loaded.flat_inputs()
    ]


def _open(
    path: Path,
    inputs: Inputs,
    host: Host,
    runtime: str,
    settings: SessionSettings,
    stream: torch.cuda.Stream | None,
) -> _Row:
    started = time.perf_counter()
    bound = bind_session(path, inputs, settings)
    runner: _core.Runner
    read, written = (tuple(found.values()) for found in (bound.inputs, bound.outputs))
    if host == "cpp":
        runner = make_cpp_runner(bound, runtime)
        replay = runner.run_once
    else:
        call, read = make_python_callable(bound)
        mode = _core.GradMode.inference
        runner = _core.PythonRunner(call, runtime, device=settings.device, grad_mode=mode)

        def replay() -> None:
            for to, output in zip(written, call(), strict=True):
                to.copy_(torch.as_tensor(output))

    with enter_stream(stream):
        runner.run_once()  # a search for algorithms, or a capture, happens here
    details = {
        "session_seconds": time.perf_counter() - started,
        "nodes": {provider: dict(types) for provider, types in bound.nodes.items()},
        "session": settings.to_facts(),
    }
    return _Row(
        runner=runner,
        replay=replay,
        buffers=Buffers(
            inputs=read,
            outputs=written,
            constants=(),
        ),
        stream=stream,
        details=details,
        warnings=_judge_nodes(bound.nodes) if settings.on_cuda else (),
    )


def _judge_nodes(nodes: Mapping[str, Mapping[str, int]]) -> tuple[str, ...]:
    """A warning if a session for the GPU computes on the CPU."""
    if not nodes:
        return (
            "which nodes run on the CPU is not known: this onnxruntime is older than 1.24, which "
            "would tell; `pip install -U onnxruntime-gpu`",
        )
    on_cpu = nodes.get(_CPU)
    if not on_cpu:
        return ()
    total = sum(sum(types.values()) for types in nodes.values())
    listed = ", ".join(f"{name} {count}" for name, count in Counter(on_cpu).most_common(5))
    more = "" if len(on_cpu) <= 5 else ", ..."
    return (
        f"{sum(on_cpu.values())} of {total} nodes run on the CPU ({listed}{more}): what passes "
        "between them and the GPU is copied, and waited for, in every request",
    )


def _start(workspace: Workspace) -> SessionSettings:
    """Settings without any option of the CUDA provider."""
    settings = _make_settings(workspace.loaded.device, workspace.stream)
    chosen: Any = workspace.setting.runtime_options.get("optimization", settings.optimization)
    return replace(settings, optimization=chosen)  # the session checks the word


def _match(workspace: Workspace, artefact: Artefact) -> tuple[SessionSettings, tuple[str, ...]]:
    """Settings in torch's numeric modes, for the model in ``artefact``; with warnings."""
    settings = _start(workspace)
    if not settings.on_cuda:
        return settings, ()
    operators = _count_operators(artefact.folder / _FILE)
    options, warnings = match_torch(operators, float32=workspace.loaded.dtype == "fp32")
    return replace(settings, provider_options=options), warnings


def _make_settings(device: str, stream: torch.cuda.Stream | None) -> SessionSettings:
    return SessionSettings(
        threads=torch.get_num_threads(),
        device=device,
        stream=stream.cuda_stream if stream is not None else 0,
    )


def _count_operators(path: Path) -> Counter[str]:
    try:
        import onnx
    except ImportError as error:
        raise UnavailableError(
            "reading which operators the file has needs `pip install onnx`"
        ) from error
    model = onnx.load(str(path), load_external_data=False)
    return Counter(node.op_type for node in model.graph.node)
