"""ONNX Runtime: driving an ONNX file from C++ or from Python, with torch's threads and modes.

The C++ host and the Python host use different copies of the library, because the wheel's Python
module contains one of its own. Both come from one wheel, get the same options. The wheel's files
are found without importing it, which takes a second and loads a second copy. In C++ the tensors
that are read and written are bound once, outside the timed region; a request from Python is the
lines that adopt it.

No pool of threads spins. By default it does, for some 40 ms after a request, and burns the cores
that the next runtime is timed on.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import torch

from ftax import _core
from ftax.errors import InvalidArgumentError, UnavailableError, UnsupportedError, describe
from ftax.runtimes.adoption import make_request, name_level
from ftax.runtimes.candidates import environment_with
from ftax.tape.equality import allows_tf32_convolutions, allows_tf32_products

Inputs = Sequence[torch.Tensor] | Mapping[str, torch.Tensor]

_CUDA = "CUDAExecutionProvider"
_CPU = "CPUExecutionProvider"

Optimization = Literal["disable", "basic", "extended", "layout", "all"]

_CONVOLUTIONS = frozenset({"Conv", "ConvTranspose", "FusedConv", "ConvInteger"})
_PRODUCTS = frozenset({"MatMul", "Gemm", "Attention", "FusedMatMul", "Einsum"})

_REMEDY = "`pip install onnxruntime`, or `pip install onnxruntime-gpu` for the CUDA provider"


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


def check_level(optimization: str) -> None:
    """Raise InvalidArgumentError for a level that there is not."""
    if optimization not in get_args(Optimization):
        known = ", ".join(get_args(Optimization))
        raise InvalidArgumentError(f"optimization is {optimization!r}; use one of {known}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """What both hosts give a session. ``threads`` is the size of the intra-op pool, the calling
    thread included. ``stream`` is a cudaStream_t as a number; 0 lets ONNX Runtime make its own."""

    threads: int = 1
    optimization: Optimization = "all"
    device: str = "cpu"
    stream: int = 0
    provider_options: Mapping[str, str] = field(default_factory=dict)  # CUDA only

    @property
    def on_cuda(self) -> bool:
        """Whether the session has the CUDA provider."""
        return torch.device(self.device).type == "cuda"

    @property
    def device_index(self) -> int:
        """Of the GPU; 0 on a CPU."""
        if not self.on_cuda:
            return 0
        index = torch.device(self.device).index
        return torch.cuda.current_device() if index is None else index

    @property
    def captures(self) -> bool:
        """Whether ONNX Runtime captures the first run as a CUDA graph."""
        return self.provider_options.get("enable_cuda_graph") == "1"

    def to_facts(self) -> dict[str, object]:
        """JSON-able: what decides how the same file runs."""
        return {
            "optimization": self.optimization,
            "threads": self.threads,
            "provider_options": dict(self.provider_options),
        }


def match_torch(
    operators: Mapping[str, int], *, float32: bool
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Options of the CUDA provider that repeat torch's numeric modes, and warnings.

    ``operators`` are the operator types of the model. ONNX Runtime has one switch for TF32 where
    torch has two: the one for convolutions decides where there are any.
    """
    products, convolutions = allows_tf32_products(), allows_tf32_convolutions()
    has_convolutions = not _CONVOLUTIONS.isdisjoint(operators)
    fast = convolutions if has_convolutions else products
    options = {
        "use_tf32": str(int(fast)),
        "cudnn_conv_algo_search": "EXHAUSTIVE" if torch.backends.cudnn.benchmark else "HEURISTIC",
        "do_copy_in_default_stream": "1",
    }
    if not float32 or products == fast or _PRODUCTS.isdisjoint(operators):
        return options, ()
    said = ("off", "on")
    return options, (
        f"torch has TF32 {said[convolutions]} for convolutions and {said[products]} for matrix "
        f"products; ONNX Runtime has one switch, and it is {said[fast]} for both",
    )


def find_library() -> Path:
    """The C library of the installed onnxruntime or onnxruntime-gpu.

    Raises UnavailableError if there is none.
    """
    folders = _find_folders()
    if not folders:
        raise UnavailableError(f"onnxruntime is not installed: {_REMEDY}")
    found = [path for folder in folders for path in folder.glob("capi/libonnxruntime.so.*")]
    if not found:
        raise UnavailableError(
            f"onnxruntime in {folders[0]} has no capi/libonnxruntime.so.*, as its Linux wheels do: "
            f"{_REMEDY}"
        )
    return max(found)


def find_provider_obstacle(device: str) -> str | None:
    """Why the installed wheel cannot run on ``device``; None if it can."""
    if device == "cpu":
        return None
    if any(
        (folder / "capi/libonnxruntime_providers_cuda.so").exists() for folder in _find_folders()
    ):
        return None
    return (
        "the installed onnxruntime has no CUDA provider: `pip uninstall onnxruntime`, then "
        "`pip install onnxruntime-gpu`"
    )


def _find_folders() -> list[Path]:
    spec = importlib.util.find_spec("onnxruntime")
    return [Path(folder) for folder in (spec.submodule_search_locations if spec else None) or []]
