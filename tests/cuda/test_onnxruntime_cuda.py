"""ONNX Runtime on the GPU, under both hosts: where nodes run, on which stream, and what a captured
graph reads."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import cast

import pytest
import torch

import ftax
from ftax.instruments.gate import measure_gate
from ftax.runtimes.catalogue import find_runtime
from ftax.runtimes.onnx.rows import prepare_onnx_file
from ftax.runtimes.workspace import Workspace
from ftax.timing.candidate import Candidate, Host
from ftax.timing.plan import Plan
from support.onnx_models import S, Y, make_inputs, save_model

pytestmark = pytest.mark.needs_ort_cuda
HOSTS: list[Host] = ["python", "cpp"]
CUDA = "CUDAExecutionProvider"
RUNTIMES = ["onnxruntime", "onnxruntime-cuda-graph"]


@pytest.fixture(scope="module", params=["fp32", "fp16"])
def bert(request: pytest.FixtureRequest) -> Workspace:
    return Workspace(ftax.load_model("bert-base", tiny=True, dtype=request.param, device="cuda"))


@pytest.fixture(scope="module")
def resnet() -> Workspace:
    return Workspace(ftax.load_model("resnet-50", tiny=True, dtype="fp16", device="cuda"))


def prepare(workspace: Workspace, name: str, host: Host) -> Candidate:
    return find_runtime(name).prepare(workspace, host)


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("name", RUNTIMES)
def test_a_row_is_the_model_on_two_inputs(bert: Workspace, name: str, host: Host) -> None:
    prepared = prepare(bert, name, host)
    assert prepared.checks.judge_outputs().equal, prepared.checks
    nodes = cast(dict[str, dict[str, int]], prepared.preparation.details["nodes"])
    assert sum(nodes[CUDA].values()) > 0
    told = any("nodes run on the CPU" in warning for warning in prepared.warnings)
    assert told is (set(nodes) != {CUDA})
    assert all(output.is_cuda for output in prepared.run())


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("name", RUNTIMES)
def test_convolutions_run_on_the_gpu(resnet: Workspace, name: str, host: Host) -> None:
    prepared = prepare(resnet, name, host)
    assert prepared.checks.judge_outputs().equal, prepared.checks


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("name", RUNTIMES)
def test_all_work_is_on_the_stream_that_is_timed(bert: Workspace, name: str, host: Host) -> None:
    trace = ftax.trace(bert.loaded, runtime=name, host=host, iterations=5)
    assert trace.kernels
    assert len({item.stream_id for item in (*trace.kernels, *trace.memcpys)}) == 1


@pytest.mark.parametrize("host", HOSTS)
def test_issuing_returns_before_the_device_is_done(bert: Workspace, host: Host) -> None:
    """A request that waited inside could not be held by the gate."""
    gated = measure_gate(prepare(bert, "onnxruntime", host).runner, repetitions=5)
    assert not gated.cut, gated.reason


@pytest.mark.parametrize("host", HOSTS)
def test_a_captured_session_launches_one_graph_and_no_kernel(bert: Workspace, host: Host) -> None:
    trace = ftax.trace(bert.loaded, runtime="onnxruntime-cuda-graph", host=host, iterations=5)
    calls = Counter(call.name for call in trace.api_calls)
    assert sum(n for name, n in calls.items() if "GraphLaunch" in name) >= 5
    assert not any("LaunchKernel" in name for name in calls)


@pytest.mark.parametrize("order", [["python", "cpp"], ["cpp", "python"]], ids="-".join)
def test_both_hosts_live_in_one_process_in_either_order(order: list[str]) -> None:
    """Two copies of the library share one CUDA provider, which a crash would show."""
    code = (
        "import ftax; from ftax.runtimes.workspace import Workspace\n"
        "from ftax.runtimes.catalogue import find_runtime\n"
        "w = Workspace(ftax.load_model('bert-base', tiny=True, device='cuda'))\n"
        f"rows = [find_runtime('onnxruntime').prepare(w, host) for host in {order!r}]\n"
        "assert all(row.checks.outputs.within_tolerance for row in rows)\n"
        "for row in rows * 3: row.runner.run_once()\n"
        "print('alive')\n"
    )
    worker = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert worker.returncode == 0, worker.stderr[-2000:]
    assert worker.stdout == "alive\n"


def test_both_hosts_are_measured_in_the_same_rounds(bert: Workspace) -> None:
    python, cpp = ftax.compare_hosts(
        bert.loaded, runtime="onnxruntime", plan=Plan(rounds=3, warmup=3)
    )
    assert python.cell.host == "python" and cpp.cell.host == "cpp"
    assert python.preparation["session"] == cpp.preparation["session"]


def test_a_file_of_the_users_runs_on_the_gpu(tmp_path: Path) -> None:
    path = save_model(tmp_path / "model.onnx")
    inputs = tuple(tensor.cuda() for tensor in make_inputs())
    for host in HOSTS:
        y, s = prepare_onnx_file(path, inputs, host).run()
        torch.testing.assert_close(y.cpu(), Y)
        torch.testing.assert_close(s.cpu(), S)
