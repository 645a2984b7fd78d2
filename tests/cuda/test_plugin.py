"""Shared libraries on a GPU: the CUDA example conforms, and each GPU check fails what is made for
it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

import ftax
from ftax.conformance import CHECKS
from ftax.conformance.suite import _run, make_perceptron
from ftax.measure import Plan
from ftax.runtimes.plugin_case import make_case
from ftax.runtimes.plugin_worker import Answer, open_session

pytestmark = pytest.mark.needs_cuda

SOURCE = Path(__file__).parents[2] / "examples" / "mlp_cuda" / "mlp.cu"
NVCC = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
RETURN = '  return check(runner, cudaGetLastError(), "launch");  // asks the host, not the device'

# The check that has to fail, what is wrong, the changed text, and a word of the reason.
FAULTS = {
    "uses the given stream": (
        "launch_both<float>(*runner, static_cast<cudaStream_t>(stream))",
        "launch_both<float>(*runner, cudaStreamPerThread)",
        "uses another stream",
    ),
    "enqueue does not wait": (
        RETURN,
        "  cudaStreamSynchronize(static_cast<cudaStream_t>(stream));\n" + RETURN,
        "waits for the device",
    ),
    "waits for no other stream": (
        "  return check(runner, cudaStreamSynchronize(static_cast<cudaStream_t>(stream)),",
        "  return check(runner, cudaDeviceSynchronize(),",
        "only when another stream was idle",
    ),
    "no API call that waits": (
        RETURN,
        "  void* scratch = nullptr; cudaMalloc(&scratch, 64); cudaFree(scratch);\n" + RETURN,
        "enqueue calls .*Malloc",
    ),
    "gives back what it takes": (
        RETURN,
        "  void* kept = nullptr; cudaMalloc(&kept, 1 << 20);\n" + RETURN,
        "behind",
    ),
    "capture-safe, if it says so": (
        RETURN,
        "  cudaStreamSynchronize(static_cast<cudaStream_t>(stream));\n" + RETURN,
        "",
    ),
}
CUDA_CHECKS = [check for check in CHECKS if "cuda" in check.devices]


def compile_cuda(folder: Path, old: str = "", new: str = "") -> str:
    if not Path(NVCC).exists():
        pytest.skip("there is no nvcc")
    text = SOURCE.read_text()
    if old:
        assert text.count(old) == 1, f"the example has changed: {old!r}"
        text = text.replace(old, new)
    source, library = folder / "mlp.cu", folder / "libmlp.so"
    source.write_text(text)
    architecture = "sm_{}{}".format(*torch.cuda.get_device_capability())
    subprocess.run(
        [NVCC, f"-arch={architecture}", "-shared", "-Xcompiler", "-fPIC",
         f"-I{ftax.get_include()}", str(source), "-o", str(library)],
        check=True,
    )  # fmt: skip
    return str(library)


def run_check(library: str, name: str, dtype: str = "fp32") -> Answer:
    case = make_case(make_perceptron(dtype=dtype, device="cuda:0"))  # type: ignore[arg-type]
    with open_session(library, "", case) as session:
        check = next(item for item in CHECKS if item.name == name)
        return _run(session, check, case.device, 120.0)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    return compile_cuda(tmp_path_factory.mktemp("good"))


@pytest.mark.parametrize("name", [check.name for check in CUDA_CHECKS])
def test_example_passes(name: str, library: str) -> None:
    answer = run_check(library, name)
    if name == "no API call that waits" and "CUPTI" in answer.reason:
        pytest.skip(answer.reason)
    assert answer.status == "passed", answer.reason


def test_example_in_fp16(library: str) -> None:
    answer = run_check(library, "outputs equal eager's", "fp16")
    assert answer.status == "passed", answer.reason


@pytest.mark.parametrize("name", list(FAULTS))
def test_check_can_fail(name: str, tmp_path: Path) -> None:
    old, new, reason = FAULTS[name]
    answer = run_check(compile_cuda(tmp_path, old, new), name)
    if answer.status == "skipped" and "CUPTI" in answer.reason:
        pytest.skip(answer.reason)
    assert answer.status == "failed", answer.reason
    assert re.search(reason, answer.reason), answer.reason


def test_library_that_is_not_capture_safe_says_so(tmp_path: Path) -> None:
    path = compile_cuda(tmp_path, "FTAX_RUNS_ON_CUDA | FTAX_CAPTURE_SAFE", "FTAX_RUNS_ON_CUDA")
    answer = run_check(path, "capture-safe, if it says so")
    assert (answer.status, "says that it is not" in answer.reason) == ("skipped", True)


@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
def test_library_is_timed_beside_the_ladder(dtype: str, library: str) -> None:
    loaded = make_perceptron(dtype=dtype, device="cuda:0")  # type: ignore[arg-type]
    receipt = ftax.tax(
        loaded, runtimes=[library], plan=Plan(rounds=3, warmup=5), operators=False, trace="none"
    )
    (measurement,) = receipt.others
    assert measurement.checks["outputs"]["within_tolerance"]
    assert measurement.preparation["capture_safe"] is True
