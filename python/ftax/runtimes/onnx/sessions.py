"""ONNX Runtime: driving an ONNX file from C++ or from Python.

The C++ host and the Python host use different copies of the library, because the wheel's Python
module contains one of its own. Both come from one wheel, get the same options. In C++ the tensors
that are read and written are bound once, outside the timed region; a request from Python is the
lines that adopt it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ftax import _core
from ftax.errors import InvalidArgumentError, UnavailableError, UnsupportedError, describe
from ftax.runtimes.adoption import make_request, name_level
from ftax.runtimes.environment_variables import environment_with
from ftax.runtimes.onnx.settings import SessionSettings, check_level
from ftax.runtimes.onnx.wheel import find_library

Inputs = Sequence[torch.Tensor] | Mapping[str, torch.Tensor]

_CUDA = "CUDAExecutionProvider"
_CPU = "CPUExecutionProvider"


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundSession:
    """A session of the C library with the tensors that it reads and writes.

    ``nodes`` are operator types by provider, as ONNX Runtime assigned them; empty where it is older
    than 1.24, which does not tell.
    """

    path: Path
    settings: SessionSettings
    session: _core.OnnxRuntimeSession
    inputs: Mapping[str, torch.Tensor]
    outputs: Mapping[str, torch.Tensor]
    nodes: Mapping[str, Mapping[str, int]]


def bind_session(path: Path, inputs: Inputs, settings: SessionSettings) -> BoundSession:
    """Load the file and bind it to ``inputs`` and to outputs of the shapes that it computes.

    ``inputs`` are tensors on the settings' device, in the file's order or by name. Each run reads
    them anew, except those that are not contiguous and had to be copied.

    Raises InvalidArgumentError for a file that is no ONNX model and for inputs whose number, names,
    dtype, device or shape do not fit it, RunnerError if running it fails, UnavailableError without
    onnxruntime or the provider.
    """
    session = _core.OnnxRuntimeSession(
        _core.open_onnxruntime(str(find_library())),
        str(path),
        optimization=settings.optimization,
        intra_op_threads=settings.threads,
        provider="cuda" if settings.on_cuda else "cpu",
        provider_options=settings.provider_options,
        device_id=settings.device_index,
        user_compute_stream=settings.stream,
    )
    device = "cuda" if settings.on_cuda else "cpu"
    tensors = _order_inputs(path, [name for name, _, _ in session.inputs], inputs, settings)
    for name, tensor in tensors.items():
        session.bind_input(name, *_view(tensor), device=device)
    if settings.on_cuda:
        torch.cuda.synchronize(settings.device)  # the inputs were written on another stream
    outputs = _make_outputs(path, session, settings)
    for name, tensor in outputs.items():
        session.bind_output(name, *_view(tensor), device=device)
    session.run()
    return BoundSession(
        path=path,
        settings=settings,
        session=session,
        inputs=tensors,
        outputs=outputs,
        nodes=session.count_nodes(),
    )


def make_cpp_runner(bound: BoundSession, name: str = "onnxruntime") -> _core.OnnxRuntimeRunner:
    """A runner that executes the session in C++ and keeps its inputs and outputs alive.

    On CUDA it has to be driven with the settings' stream as torch's current one.
    """
    tensors = (bound.inputs, bound.outputs)
    return _core.OnnxRuntimeRunner(bound.session, name, bound.settings.device, tensors)


def make_python_callable(
    bound: BoundSession,
) -> tuple[Callable[[], Sequence[Any]], tuple[torch.Tensor, ...]]:
    """The same from Python, and the tensors that it reads: a call is one inference through
    `InferenceSession.run_with_iobinding`, by the lines that adopt it (`ftax.runtimes.adoption`).

    On a CPU it returns arrays of numpy. On CUDA it returns the outputs of ``bound``, whose own
    session may be dropped, before the device is done, if the settings have a stream. Raises
    UnavailableError if the session lacks the provider, UnsupportedError if it cannot be made.
    """
    settings, inputs = bound.settings, tuple(bound.inputs.values())
    session = make_python_session(bound.path, settings)
    binding = session.io_binding()
    names: dict[str, Any] = {"session": session, "binding": binding, "names": [*bound.inputs]}
    if not settings.on_cuda:
        for name in bound.outputs:
            binding.bind_output(name)
        return make_request("onnxruntime", inputs=inputs, **names), inputs
    names["run"] = run = _import_onnxruntime().RunOptions()
    if settings.stream:
        run.add_run_config_entry("disable_synchronize_execution_providers", "1")
    names["written"] = tuple(bound.outputs.values())
    names["place"] = place = "cuda", settings.device_index
    for name, tensor in bound.outputs.items():
        binding.bind_output(name, *place, _find_kind(tensor), tensor.shape, tensor.data_ptr())
    kinds = [_find_kind(tensor) for tensor in inputs]
    if not settings.captures:
        run.add_run_config_entry("gpu_graph_id", "-1")  # none; what is not there raises, inside
        names["kinds"] = kinds
        return make_request("onnxruntime", on_cuda=True, inputs=inputs, **names), inputs
    for name, kind, tensor in zip(bound.inputs, kinds, inputs, strict=True):
        binding.bind_input(name, *place, kind, tensor.shape, tensor.data_ptr())
    read = tuple(tensor.clone() for tensor in inputs)
    return make_request("onnxruntime-cuda-graph", inputs=read, memory=inputs, **names), read


def _import_onnxruntime() -> Any:
    with environment_with({"ORT_DISABLE_TELEMETRY": "1"}):  # read when the module loads
        import onnxruntime
    return onnxruntime


def make_python_session(path: Path, settings: SessionSettings) -> Any:
    """An `onnxruntime.InferenceSession`. Raises what `make_python_callable` raises."""
    onnxruntime = _import_onnxruntime()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = settings.threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    levels = onnxruntime.GraphOptimizationLevel.__members__
    check_level(settings.optimization)
    options.graph_optimization_level = levels[name_level(settings.optimization)]
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    providers: list[Any] = [_CPU]
    if settings.on_cuda:
        provider_options = {**settings.provider_options, "device_id": str(settings.device_index)}
        if settings.stream:
            provider_options["user_compute_stream"] = str(settings.stream)
        providers.insert(0, (_CUDA, provider_options))
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=providers)
    except Exception as error:
        raise UnsupportedError(
            f"onnxruntime.InferenceSession cannot run {path.name}: {describe(error)}"
        ) from error
    if settings.on_cuda and _CUDA not in session.get_providers():
        raise UnavailableError(
            f"onnxruntime.InferenceSession fell back to {', '.join(session.get_providers())}; its "
            "CUDA provider needs the CUDA and cuDNN libraries of its release"
        )
    session.disable_fallback()
    return session


def _make_outputs(
    path: Path, session: _core.OnnxRuntimeSession, settings: SessionSettings
) -> dict[str, torch.Tensor]:
    """Memory for the outputs, of the shapes that a first run had.

    Where the first run is captured it has to write to its last place, so the file has to tell.
    """
    if settings.captures:
        shapes = [(name, shape, dtype) for name, dtype, shape in session.outputs]
        for name, shape, _ in shapes:
            if not all(isinstance(size, int) for size in shape):
                raise UnsupportedError(
                    f"output {name!r} of {path.name} has shape {shape}, which is known only after "
                    "a run; a CUDA graph needs fixed shapes"
                )
    else:
        for name, _, _ in session.outputs:
            session.bind_output_to_device(name, "cuda" if settings.on_cuda else "cpu")
        session.run()
        outputs = session.collect_outputs()
        shapes = [(output.name, [*output.shape], output.element_type) for output in outputs]
    return {
        name: torch.empty(shape, dtype=getattr(torch, dtype), device=settings.device)  # type: ignore[arg-type]  # all int
        for name, shape, dtype in shapes
    }


def _order_inputs(
    path: Path, names: Sequence[str], inputs: Inputs, settings: SessionSettings
) -> dict[str, torch.Tensor]:
    wanted = f"{path.name} takes {len(names)}: {', '.join(names)}"
    if isinstance(inputs, Mapping):
        if set(inputs) != set(names):
            raise InvalidArgumentError(f"inputs named {', '.join(inputs)} were passed; {wanted}")
        inputs = [inputs[name] for name in names]
    if len(inputs) != len(names):
        raise InvalidArgumentError(f"{len(inputs)} inputs were passed; {wanted}")
    wanted_device = ("cuda" if settings.on_cuda else "cpu", settings.device_index)
    for name, tensor in zip(names, inputs, strict=True):
        if (tensor.device.type, tensor.device.index or 0) != wanted_device:
            raise InvalidArgumentError(
                f"input {name!r} is on {tensor.device}; the session reads {settings.device}: pass "
                "all tensors there"
            )
    return {name: tensor.detach().contiguous() for name, tensor in zip(names, inputs, strict=True)}


def _view(tensor: torch.Tensor) -> tuple[int, int, list[int], str]:
    return tensor.data_ptr(), tensor.nbytes, list(tensor.shape), _dtype_name(tensor)


def _find_kind(tensor: torch.Tensor) -> int:
    return _core.find_onnx_element_type(_dtype_name(tensor))


def _dtype_name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
