"""ONNX Runtime: driving an ONNX file from C++ or from Python.

The surprising choice: the C++ host and the Python host use different copies of the library,
because the wheel's Python module contains one of its own. Both come from one wheel, get the same
options, and read and write tensors that are bound once, outside the timed region.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import torch

from ftax import _core
from ftax.errors import InvalidArgumentError, UnavailableError, UnsupportedError
from ftax.runtimes.onnx_export import Exporter, OnnxExport, export_onnx

__all__ = [
    "Exporter",
    "Inputs",
    "OnnxExport",
    "Optimization",
    "export_onnx",
    "find_library",
    "make_cpp_runner",
    "make_python_callable",
]

Optimization = Literal["disable", "basic", "extended", "layout", "all"]
Inputs = Sequence[torch.Tensor] | Mapping[str, torch.Tensor]

_REMEDY = "`pip install onnxruntime`, or `pip install onnxruntime-gpu` for the CUDA provider"


def find_library() -> Path:
    """The C library of the installed onnxruntime or onnxruntime-gpu, found without importing it.

    Raises UnavailableError if there is none.
    """
    spec = importlib.util.find_spec("onnxruntime")
    folders = (spec.submodule_search_locations if spec else None) or []
    if not folders:
        raise UnavailableError(f"onnxruntime is not installed: {_REMEDY}")
    found = [path for folder in folders for path in Path(folder).glob("capi/libonnxruntime.so.*")]
    if not found:
        raise UnavailableError(
            f"onnxruntime in {folders[0]} has no capi/libonnxruntime.so.*, as its Linux wheels do: "
            f"{_REMEDY}"
        )
    return max(found)


def make_cpp_runner(
    onnx_path: Path,
    inputs: Inputs,
    *,
    threads: int = 1,
    optimization: Optimization = "all",
    name: str = "onnxruntime",
) -> tuple[_core.OnnxRuntimeRunner, list[torch.Tensor]]:
    """A runner that executes the file in C++, and the tensors that each inference writes.

    `inputs` are CPU tensors in the file's order or by name. Each run reads them anew, except those
    that are not contiguous and had to be copied. The runner keeps inputs and outputs alive.
    `threads` is the size of the intra-op pool, the calling thread included.

    Raises InvalidArgumentError for a file that is no ONNX model and for inputs whose number, names,
    dtype or shape do not fit it, RunnerError if running it fails, UnavailableError without
    onnxruntime.
    """
    session, tensors, outputs = _bind_session(onnx_path, inputs, threads, optimization)
    return _core.OnnxRuntimeRunner(session, name, (tensors, outputs)), outputs


def make_python_callable(
    onnx_path: Path, inputs: Inputs, *, threads: int = 1, optimization: Optimization = "all"
) -> tuple[Callable[[], None], list[torch.Tensor]]:
    """The same from Python: a call is one inference through `InferenceSession.run_with_iobinding`.

    Arguments, checks and errors are those of `make_cpp_runner`: its session tells the shapes of the
    outputs and is dropped again.
    """
    session, tensors, outputs = _bind_session(onnx_path, inputs, threads, optimization)
    input_names = [name for name, _, _ in session.inputs]
    output_names = [name for name, _, _ in session.outputs]
    del session
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # read when the module loads
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.__members__[
        "ORT_DISABLE_ALL" if optimization == "disable" else f"ORT_ENABLE_{optimization.upper()}"
    ]
    for key in ("session.intra_op.allow_spinning", "session.inter_op.allow_spinning"):
        options.add_session_config_entry(key, "0")
    options.add_session_config_entry("session.force_spinning_stop", "1")
    python_session = onnxruntime.InferenceSession(
        str(onnx_path), options, providers=["CPUExecutionProvider"]
    )
    binding = python_session.io_binding()
    for bind, names, bound in (
        (binding.bind_input, input_names, tensors),
        (binding.bind_output, output_names, outputs),
    ):
        for name, tensor in zip(names, bound, strict=True):
            code = _core.find_onnx_element_type(_dtype_name(tensor))
            bind(name, "cpu", 0, code, list(tensor.shape), tensor.data_ptr())

    # The tensors are defaults so that they live as long as the function that needs them.
    def call(
        run: Callable[[object], None] = python_session.run_with_iobinding,
        bound: object = binding,
        _memory: object = (tensors, outputs),
    ) -> None:
        run(bound)

    return call, outputs


def _bind_session(
    path: Path, inputs: Inputs, threads: int, optimization: Optimization
) -> tuple[_core.OnnxRuntimeSession, list[torch.Tensor], list[torch.Tensor]]:
    """A session bound to the inputs and to outputs of the shapes that a first run had."""
    library = _core.open_onnxruntime(str(find_library()))
    session = _core.OnnxRuntimeSession(
        library, str(path), optimization=optimization, intra_op_threads=threads
    )
    input_names = [name for name, _, _ in session.inputs]
    output_names = [name for name, _, _ in session.outputs]
    tensors = _order_inputs(path, input_names, inputs)
    for name, tensor in zip(input_names, tensors, strict=True):
        session.bind_input(name, *_view(tensor))
    for name in output_names:
        session.bind_output_to_device(name)
    session.run()
    outputs = [
        torch.empty(output.shape, dtype=getattr(torch, output.element_type))
        for output in session.collect_outputs()
    ]
    for name, tensor in zip(output_names, outputs, strict=True):
        session.bind_output(name, *_view(tensor))
    session.run()
    return session, tensors, outputs


def _order_inputs(path: Path, names: Sequence[str], inputs: Inputs) -> list[torch.Tensor]:
    wanted = f"{path.name} takes {len(names)}: {', '.join(names)}"
    if isinstance(inputs, Mapping):
        if set(inputs) != set(names):
            raise InvalidArgumentError(f"inputs named {', '.join(inputs)} were passed; {wanted}")
        inputs = [inputs[name] for name in names]
    if len(inputs) != len(names):
        raise InvalidArgumentError(f"{len(inputs)} inputs were passed; {wanted}")
    for name, tensor in zip(names, inputs, strict=True):
        if tensor.device.type != "cpu":
            raise UnsupportedError(
                f"input {name!r} is on {tensor.device}; ftax runs ONNX Runtime on the CPU only: "
                "pass tensors on the CPU"
            )
    return [tensor.detach().contiguous() for tensor in inputs]


def _view(tensor: torch.Tensor) -> tuple[int, int, list[int], str]:
    return tensor.data_ptr(), tensor.nbytes, list(tensor.shape), _dtype_name(tensor)


def _dtype_name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
