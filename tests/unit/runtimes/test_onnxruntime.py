"""Both hosts of ONNX Runtime against hand-computed outputs, and what each failure says."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pytest
import torch

from ftax import _core
from ftax.errors import InvalidArgumentError, RunnerError
from ftax.runtimes.adoption import make_request
from support.onnx_models import CPU, S, Y, make_inputs, make_runner, save_model

pytestmark = pytest.mark.needs_ort

X = torch.zeros(1, 2)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("onnx") / "model.onnx")


def test_both_hosts_compute_the_hand_computed_outputs(model: Path) -> None:
    runner, (y, s) = make_runner(model, make_inputs(), name="ort")
    assert (runner.name, runner.host, runner.needs_gil) == ("ort", "cpp", False)
    python, (python_y, python_s) = make_runner(model, make_inputs(), host="python")
    for tensor in (y, s, python_y, python_s):
        tensor.fill_(float("nan"))
    runner.run_once()
    python.run_once()
    assert torch.equal(y, Y)
    assert torch.equal(s, S)
    assert torch.equal(python_y, Y)
    assert torch.equal(python_s, S)


def test_each_run_reads_its_inputs_anew(model: Path) -> None:
    inputs = make_inputs()
    runner, (y, _) = make_runner(model, inputs)
    python, (python_y, _) = make_runner(model, inputs, host="python")
    inputs[0].mul_(10)
    runner.run_once()
    python.run_once()
    assert torch.equal(y, Y * 10)
    assert torch.equal(python_y, Y * 10)


@pytest.mark.parametrize("captures", [False, True])
def test_a_request_on_a_gpu_writes_the_outputs_of_its_inputs(model: Path, captures: bool) -> None:
    """The lines of a GPU, with a session on the CPU."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(model), providers=[CPU])
    x, w = make_inputs()
    y, s = torch.full((1, 3), float("nan")), torch.full((), float("nan"))
    binding, place, kind = session.io_binding(), ("cpu", 0), 1
    for name, tensor in zip("ys", (y, s), strict=True):
        binding.bind_output(name, *place, kind, tensor.shape, tensor.data_ptr())
    given = (x, w.t().contiguous().t())  # as a user may give it
    names = {"session": session, "binding": binding, "written": (y, s), "inputs": given}
    names["run"] = onnxruntime.RunOptions()
    if captures:
        memory = (torch.zeros(1, 2), torch.zeros(2, 3))
        for name, tensor in zip("xw", memory, strict=True):
            binding.bind_input(name, *place, kind, tensor.shape, tensor.data_ptr())
        request = make_request("onnxruntime-cuda-graph", memory=memory, **names)
    else:
        names |= {"names": ["x", "w"], "kinds": [kind, kind], "place": place}
        request = make_request("onnxruntime", on_cuda=True, **names)
    outputs = request()
    assert torch.equal(outputs[0], Y) and torch.equal(outputs[1], S)
    x.mul_(10)
    request()
    assert torch.equal(y, Y * 10)


def test_inputs_go_by_name_as_well(model: Path) -> None:
    x, w = make_inputs()
    runner, (y, _) = make_runner(model, {"w": w, "x": x})
    runner.run_once()
    assert torch.equal(y, Y)


def test_an_input_that_is_not_contiguous_is_read_in_its_own_order(model: Path) -> None:
    x, w = make_inputs()
    transposed = w.t().contiguous().t()
    assert not transposed.is_contiguous()
    _, (y, _) = make_runner(model, [x, transposed])
    assert torch.equal(y, Y)


def test_bound_tensors_live_as_long_as_what_runs_them(model: Path) -> None:
    inputs = make_inputs()
    runner, outputs = make_runner(model, inputs)
    watched = [weakref.ref(tensor) for tensor in outputs]
    del inputs, outputs
    gc.collect()
    assert all(reference() is not None for reference in watched)
    del runner
    gc.collect()
    assert all(reference() is None for reference in watched)


def test_a_measurement_drives_both_hosts(model: Path) -> None:
    runner, (y, _) = make_runner(model, make_inputs())
    python, (python_y, _) = make_runner(model, make_inputs(), host="python")
    plan = _core.RoundPlan()
    plan.rule.min_rounds = plan.rule.max_rounds = 2
    plan.samples_per_round, plan.dropped_per_round = 5, 1
    plan.warmup.iterations = 1
    y.zero_()
    python_y.zero_()
    result = _core.measure_rounds([runner, python], plan)
    assert [rounds.error for rounds in result.runners] == ["", ""]
    assert all(len(rounds.values_ns) == 2 for rounds in result.runners)
    assert torch.equal(y, Y)
    assert torch.equal(python_y, Y)


@pytest.mark.parametrize(
    ("inputs", "error", "message"),
    [
        ([X], InvalidArgumentError, "1 inputs were passed; model.onnx takes 2: x, w"),
        ({"x": X}, InvalidArgumentError, "inputs named x were passed; model.onnx takes 2: x, w"),
        ([X, X], InvalidArgumentError, r"'w' is bound to shape \[1, 2\].*\[2, 3\]"),
        ([X, torch.zeros(2, 3).long()], InvalidArgumentError, "'w' is bound to int64"),
        ([X.to("meta"), X], InvalidArgumentError, "input 'x' is on meta; the session reads cpu"),
    ],
)
def test_wrong_inputs_teach(
    model: Path, inputs: object, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        make_runner(model, inputs)


def test_a_file_that_is_missing_or_no_model_is_named(tmp_path: Path, model: Path) -> None:
    content = model.read_bytes()
    broken = {
        "text.onnx": b"this is a letter, not a model",
        "cut.onnx": content[: len(content) // 2],
        "empty.onnx": b"",
    }
    for name, data in broken.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(InvalidArgumentError, match=rf"{name}.*export the model again"):
            make_runner(tmp_path / name, make_inputs())
    with pytest.raises(InvalidArgumentError, match=r"no ONNX file at .*none\.onnx"):
        make_runner(tmp_path / "none.onnx", make_inputs())


def test_an_operator_that_nobody_knows_is_named(tmp_path: Path) -> None:
    path = save_model(tmp_path / "foreign.onnx", first_operator="Teleport")
    with pytest.raises(InvalidArgumentError, match=r"Teleport.*foreign\.onnx"):
        make_runner(path, make_inputs())


def test_a_model_that_fails_while_it_runs_says_where_and_prints_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from onnx import TensorProto, helper, save

    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "index"], ["row"], name="lookup")],
        "graph",
        [
            helper.make_tensor_value_info("table", TensorProto.FLOAT, [4]),
            helper.make_tensor_value_info("index", TensorProto.INT64, [1]),
        ],
        [helper.make_tensor_value_info("row", TensorProto.FLOAT, [1])],
    )
    path = tmp_path / "gather.onnx"
    opset = helper.make_opsetid("", 18)
    save(helper.make_model(graph, opset_imports=[opset], ir_version=10), path)
    index = torch.tensor([3])
    runner, (row,) = make_runner(path, [torch.arange(4.0), index])
    assert row.tolist() == [3.0]
    index.fill_(99)
    with pytest.raises(RunnerError, match=r"gather\.onnx with INVALID_ARGUMENT.*lookup.*try"):
        runner.run_once()
    assert capfd.readouterr() == ("", "")
    index.fill_(1)
    runner.run_once()
    assert row.tolist() == [1.0]
