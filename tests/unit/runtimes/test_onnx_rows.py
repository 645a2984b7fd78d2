"""The ONNX Runtime rows: what each is set up with, what it is checked on, and what it says."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import ftax
from ftax.errors import InvalidArgumentError
from ftax.runtimes.catalogue import find_runtime
from ftax.runtimes.onnx import rows
from ftax.runtimes.onnx import sessions as ort
from ftax.runtimes.onnx.sessions import find_provider_obstacle, match_torch
from ftax.runtimes.workspace import Workspace
from ftax.steps.given import use_threads
from ftax.steps.loaded import LoadedModel
from ftax.steps.setting import Setting
from ftax.timing.candidate import Host
from ftax.timing.plan import Plan
from ftax.timing.session import make_cell
from support.onnx_models import CPU, make_inputs, save_model
from support.small_models import load_function, normal

pytestmark = pytest.mark.needs_ort
HOSTS: list[Host] = ["python", "cpp"]
QUICK = Plan(rounds=2, warmup=1, round_ms=1.0)


@pytest.fixture(scope="module")
def bert() -> Workspace:
    return Workspace(ftax.load_model("bert-base", tiny=True, sequence=8))


@pytest.fixture
def tf32_restored() -> Iterator[None]:
    conv, matmul = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    yield
    torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = conv, matmul


@pytest.mark.parametrize("host", HOSTS)
def test_a_row_is_the_model_on_two_inputs(host: Host, mlp: LoadedModel) -> None:
    prepared = find_runtime("onnxruntime").prepare(Workspace(mlp), host)
    assert prepared.checks.outputs.within_tolerance
    assert prepared.checks.second_input.within_tolerance
    assert torch.allclose(prepared.run()[0], mlp.call(), atol=1e-6)
    assert set(prepared.preparation.details["nodes"]) == {CPU}
    assert prepared.warnings == ()


def test_the_plain_run_is_a_row_of_its_own_on_a_cpu(mlp: LoadedModel) -> None:
    spec = find_runtime("onnxruntime-run")
    prepared = spec.prepare(Workspace(mlp), "python")
    assert prepared.checks.outputs.within_tolerance
    assert prepared.checks.second_input.within_tolerance
    assert torch.allclose(prepared.run()[0], mlp.call(), atol=1e-6)
    assert prepared.preparation.details["exporter"] == "dynamo"
    assert spec.quick and "does not run on cuda" in str(spec.find_obstacle(device="cuda:0"))
    with pytest.raises(InvalidArgumentError, match="'most'; use one of disable, basic, extended"):
        ftax.py_bench(
            mlp, runtime="onnxruntime-run", runtime_options={"optimization": "most"}, plan=QUICK
        )


@pytest.mark.parametrize("host", HOSTS)
def test_a_row_that_is_right_on_one_input_only_says_so(host: Host) -> None:
    def branch(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if float(x.sum()) > 0 else x - 1

    ones = torch.ones(3, 4)
    loaded = load_function(branch, ones, check_inputs=-ones)
    prepared = find_runtime("onnxruntime").prepare(Workspace(loaded), host)
    assert prepared.checks.outputs.bitwise
    assert not prepared.checks.second_input.within_tolerance
    assert torch.equal(prepared.run()[0], ones + 1)  # the memory has the main input again


def test_a_row_does_not_write_into_the_inputs_of_the_model(mlp: LoadedModel) -> None:
    before = [tensor.clone() for tensor in mlp.flat_inputs()]
    find_runtime("onnxruntime").prepare(Workspace(mlp), "cpp")
    for tensor, copy in zip(mlp.flat_inputs(), before, strict=True):
        assert torch.equal(tensor, copy)


@pytest.mark.slow
def test_the_optimization_that_is_asked_for_is_used_and_recorded(bert: Workspace) -> None:
    counts = {}
    for level in ("disable", "all"):
        workspace = Workspace(bert.loaded.run_as(Setting(runtime_options={"optimization": level})))
        prepared = find_runtime("onnxruntime").prepare(workspace, "cpp")
        assert make_cell(bert.loaded, prepared).options["optimization"] == level
        counts[level] = sum(prepared.preparation.details["nodes"][CPU].values())
    assert counts["all"] != counts["disable"]  # counted after the rewrites that a level allows


def test_an_option_reaches_a_measurement(mlp: LoadedModel) -> None:
    options = {"optimization": "basic"}
    for bench in (ftax.cpp_bench, ftax.py_bench):
        found = bench(mlp, runtime="onnxruntime", runtime_options=options, plan=QUICK)
        assert found.cell.options["optimization"] == "basic"
        assert found.preparation["session"]["optimization"] == "basic"


@pytest.mark.parametrize(
    ("runtime", "options", "message"),
    [
        ("eager", {"optimization": "all"}, "eager has no option 'optimization'; its options: none"),
        ("onnxruntime", {"level": "all"}, "no option 'level'; its options: optimization"),
        ("onnxruntime", {"optimization": "most"}, "'most'; use one of disable, basic, extended"),
    ],
)
def test_an_option_that_a_runtime_does_not_take_teaches(
    mlp: LoadedModel, runtime: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        ftax.cpp_bench(mlp, runtime=runtime, runtime_options=options, plan=QUICK)


def test_a_file_takes_no_options(tmp_path: Path) -> None:
    path = save_model(tmp_path / "model.onnx")
    with pytest.raises(InvalidArgumentError, match=r"model\.onnx is a file, which is run as it is"):
        ftax.cpp_bench(
            path,
            tuple(make_inputs()),
            runtime="onnxruntime",
            runtime_options={"optimization": "all"},
        )


@pytest.mark.slow
@pytest.mark.parametrize("host", HOSTS)
def test_threads_do_not_spin_between_requests(host: Host) -> None:
    """By default they do, for some 40 ms, on the cores of whatever is timed next."""
    loaded = load_function(lambda x: x @ x, normal(256, 256))
    with use_threads(2):
        workspace = Workspace(loaded)
        runner = find_runtime("onnxruntime").prepare(workspace, host).runner
    idle_ms = []
    for _ in range(3):
        runner.run_once()
        before = resource.getrusage(resource.RUSAGE_SELF)
        time.sleep(0.1)
        after = resource.getrusage(resource.RUSAGE_SELF)
        idle_ms.append((after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3)
    assert min(idle_ms) < 10


@pytest.mark.parametrize(
    ("operators", "conv", "matmul", "tf32", "warned"),
    [
        ({"MatMul": 1}, True, False, "0", False),
        ({"MatMul": 1}, False, True, "1", False),
        ({"Conv": 1}, True, False, "1", False),
        ({"Conv": 1, "Gemm": 1}, True, False, "1", True),
        ({"Conv": 1, "Gemm": 1}, False, True, "0", True),
        ({"Conv": 1, "Gemm": 1}, True, True, "1", False),
    ],
)
@pytest.mark.usefixtures("tf32_restored")
def test_one_switch_follows_the_two_of_torch(
    operators: dict[str, int],
    conv: bool,
    matmul: bool,
    tf32: str,
    warned: bool,
) -> None:
    torch.backends.cudnn.allow_tf32 = conv
    torch.backends.cuda.matmul.allow_tf32 = matmul
    options, warnings = match_torch(operators, float32=True)
    assert options["use_tf32"] == tf32
    assert bool(warnings) is warned
    assert match_torch(operators, float32=False)[1] == ()


@pytest.mark.parametrize(("benchmark", "search"), [(False, "HEURISTIC"), (True, "EXHAUSTIVE")])
def test_the_search_for_convolutions_is_that_of_torch(
    monkeypatch: pytest.MonkeyPatch, benchmark: bool, search: str
) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", benchmark)
    assert match_torch({}, float32=True)[0]["cudnn_conv_algo_search"] == search


def test_nodes_on_the_cpu_are_a_loud_warning() -> None:
    judge = rows._judge_nodes
    assert judge({"CUDAExecutionProvider": {"MatMul": 3}}) == ()
    (said,) = judge({"CUDAExecutionProvider": {"MatMul": 3}, CPU: {"Shape": 2, "Gather": 1}})
    assert said.startswith("3 of 6 nodes run on the CPU (Shape 2, Gather 1)")
    (unknown,) = judge({})
    assert "not known" in unknown and "1.24" in unknown


def test_a_wheel_without_the_cuda_provider_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(ort, "_find_folders", lambda: [tmp_path])
    assert "pip install onnxruntime-gpu" in str(find_provider_obstacle("cuda:1"))
    assert find_provider_obstacle("cpu") is None
    (tmp_path / "capi").mkdir()
    (tmp_path / "capi" / "libonnxruntime_providers_cuda.so").touch()
    assert find_provider_obstacle("cuda") is None


def test_a_session_for_the_gpu_without_its_provider_does_not_run_on_the_cpu(
    tmp_path: Path,
) -> None:
    if torch.cuda.is_available():
        pytest.skip("needs a machine without a GPU")
    settings = ort.SessionSettings(device="cuda:0")
    with pytest.raises(ftax.UnavailableError, match="provider"):
        ort.bind_session(save_model(tmp_path / "model.onnx"), make_inputs(), settings)


def test_transfers_need_a_gpu(mlp: LoadedModel) -> None:
    with pytest.raises(InvalidArgumentError, match="transfers is asked for, but the device is"):
        ftax.cpp_bench(mlp, transfers=True, plan=QUICK)
    with pytest.raises(InvalidArgumentError, match="transfers is asked for, but the device is"):
        ftax.tax(mlp, transfers=True, plan=QUICK)
