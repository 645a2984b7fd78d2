"""A small ONNX model whose outputs were computed by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from ftax import _core
from ftax.runtimes.onnx import sessions as ort

CPU = "CPUExecutionProvider"


def save_model(path: Path, first_operator: str = "MatMul") -> Path:
    from onnx import TensorProto, helper, save

    def declare(name: str, shape: list[str | int]) -> object:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    graph = helper.make_graph(
        [
            helper.make_node(first_operator, ["x", "w"], ["m"]),
            helper.make_node("Relu", ["m"], ["y"]),
            helper.make_node("ReduceSum", ["m"], ["s"], keepdims=0),
        ],
        "graph",
        [declare("x", ["batch", 2]), declare("w", [2, 3])],
        [declare("y", ["batch", 3]), declare("s", [])],
    )
    opset = helper.make_opsetid("", 18)
    save(helper.make_model(graph, opset_imports=[opset], ir_version=10), path)
    return path


def make_inputs() -> list[torch.Tensor]:
    return [torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 2.0, 3.0], [0.5, -4.0, 1.0]])]


# 1*1 + 2*0.5, 1*2 - 2*4, 1*3 + 2*1
Y = torch.tensor([[2.0, 0.0, 5.0]])
S = torch.tensor(2.0 - 6.0 + 5.0)


def make_runner(
    path: Path, inputs: Any, *, host: str = "cpp", name: str = "onnxruntime", **settings: Any
) -> tuple[_core.Runner, list[torch.Tensor]]:
    """A runner of either host, and the tensors that it writes."""
    bound = ort.bind_session(path, inputs, ort.SessionSettings(**settings))
    outputs = list(bound.outputs.values())
    if host == "cpp":
        return ort.make_cpp_runner(bound, name), outputs
    call, _ = ort.make_python_callable(bound)

    def keep() -> None:
        for to, output in zip(outputs, call(), strict=True):
            to.copy_(torch.as_tensor(output))

    mode = _core.GradMode.inference
    return _core.PythonRunner(keep, name, device="cpu", grad_mode=mode), outputs


def view(tensor: torch.Tensor) -> tuple[int, int, list[int], str]:
    dtype = str(tensor.dtype).removeprefix("torch.")
    return tensor.data_ptr(), tensor.nbytes, list(tensor.shape), dtype
