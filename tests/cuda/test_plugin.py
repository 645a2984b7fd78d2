"""Shared libraries on a GPU: the CUDA example conforms, and each GPU check fails what is made for
it."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

import ftax
from ftax.errors import UnavailableError
from ftax.runtimes.plugins.case import TriedLibrary, make_case
from ftax.runtimes.plugins.conform import CHECKS, _run, make_perceptron
from ftax.runtimes.plugins.trial import Answer, open_session
from ftax.timing.plan import Plan

pytestmark = pytest.mark.needs_cuda

SOURCE = Path(__file__).parents[2] / "examples" / "mlp_cuda" / "mlp.cu"
NVCC = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
RETURN = '  return check(runner, cudaGetLastError(), "launch");  // asks the host, not the device'

# A stream of the library's own that waits for the given one, which does not wait for it.
FORK = """
cudaStream_t fork(cudaStream_t stream) {
  static cudaStream_t own = nullptr;
  static cudaEvent_t here = nullptr;
  if (own == nullptr) {
    cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking);
    cudaEventCreate(&here);
  }
  cudaEventRecord(here, stream);
  cudaStreamWaitEvent(own, here, 0);
  return own;
}

template <typename T>
void launch_both("""

# The check that has to fail, edits that make what is wrong, and a word of the reason.
FAULTS = {
    "uses the given stream": (
        "launch_both<float>(*runner, static_cast<cudaStream_t>(stream))",
        "launch_both<float>(*runner, cudaStreamPerThread)",
        "uses another stream",
    ),
    "is done when its stream is": (
        "s[kOutput].data, rows, stream);\n}",
        "s[kOutput].data, rows, fork(stream));\n}",
        "\ntemplate <typename T>\nvoid launch_both(",
        FORK,
        "were not there when the given stream was idle",
    ),
    "enqueue does not wait": (
        RETURN,
        "  cudaStreamSynchronize(static_cast<cudaStream_t>(stream));\n" + RETURN,
        "waits for the device",
    ),
}
# Of the example's table; a prepare that fills the hidden values, so that it has work on the stream.
SYNCHRONIZE = "      nullptr,  // synchronize is the CPU's"
PREPARE = "      nullptr,  // prepare: nothing is to be put back"
FILLS = """
      [](ftax_runner* runner, void* stream) -> int32_t {
        if (runner->hidden == nullptr) return FTAX_OK;
        return check(runner, cudaMemsetAsync(runner->hidden, 0, runner->hidden_bytes,
                                             static_cast<cudaStream_t>(stream)), "fill");
      },"""
CUDA_CHECKS = [check for check in CHECKS if "cuda" in check.devices]


def compile_cuda(folder: Path, *edits: str) -> str:
    """The example with edits: pieces of its source, each followed by what takes its place."""
    if not Path(NVCC).exists():
        pytest.skip("there is no nvcc")
    text = SOURCE.read_text()
    for old, new in zip(edits[::2], edits[1::2], strict=True):
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


@pytest.fixture(scope="module")
def prepares(tmp_path_factory: pytest.TempPathFactory) -> str:
    return compile_cuda(tmp_path_factory.mktemp("prepares"), PREPARE, FILLS)


@pytest.mark.parametrize("name", [check.name for check in CUDA_CHECKS])
def test_example_passes(name: str, library: str) -> None:
    answer = run_check(library, name)
    has_none = name == "prepare is no inference"
    assert answer.status == ("skipped" if has_none else "passed"), answer.reason


@pytest.mark.parametrize("name", [check.name for check in CUDA_CHECKS])
def test_library_that_has_to_be_prepared_passes(name: str, prepares: str) -> None:
    answer = run_check(prepares, name)
    assert answer.status == "passed", answer.reason


def test_example_in_fp16(library: str) -> None:
    answer = run_check(library, "outputs equal eager's", "fp16")
    assert answer.status == "passed", answer.reason


@pytest.mark.parametrize("name", list(FAULTS))
def test_check_can_fail(name: str, tmp_path: Path) -> None:
    *edits, reason = FAULTS[name]
    answer = run_check(compile_cuda(tmp_path, *edits), name)
    assert answer.status == "failed", answer.reason
    assert re.search(reason, answer.reason), answer.reason


@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
def test_library_is_timed_beside_the_ladder(dtype: str, library: str) -> None:
    loaded = make_perceptron(dtype=dtype, device="cuda:0")  # type: ignore[arg-type]
    receipt = ftax.tax(
        loaded, runtimes=[library], plan=Plan(rounds=3, warmup=5), operators=False, trace="none"
    )
    (measurement,) = receipt.others
    assert measurement.checks["outputs"]["within_tolerance"]


def test_ftax_waits_and_the_library_is_not_asked_to(tmp_path: Path) -> None:
    fails = "      [](ftax_runner*, void*) -> int32_t { return FTAX_ERROR; },"
    library = compile_cuda(tmp_path, SYNCHRONIZE, fails)
    loaded = make_perceptron(device="cuda:0")
    measurement = ftax.cpp_bench(loaded, runtime=library, plan=Plan(rounds=3, warmup=5))
    assert measurement.checks["outputs"]["within_tolerance"]


def test_what_prepare_does_is_not_traced(prepares: str) -> None:
    loaded = make_perceptron(device="cuda:0")
    try:
        trace = ftax.trace(loaded, runtime=prepares, host="cpp")
    except UnavailableError as error:
        pytest.skip(str(error))
    assert trace.memsets == () and trace.find_outside() == ()
    assert len(trace.kernels) == 2 * len(trace.iterations)


@pytest.mark.two_gpus
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_runner_is_destroyed_with_its_device_current(tmp_path: Path) -> None:
    library = compile_cuda(
        tmp_path,
        "  cudaFree(runner->hidden);\n  delete runner;",
        "  cudaGetDevice(&destroyed_on);\n  cudaFree(runner->hidden);\n  delete runner;",
        "int32_t fail(ftax_runner*",
        "int destroyed_on = -1;\nint32_t fail(ftax_runner*",
        'extern "C" const ftax_runner_api*',
        'extern "C" int read_destroyed_on() { return destroyed_on; }\n'
        'extern "C" const ftax_runner_api*',
    )
    case = make_case(make_perceptron(device="cuda:1"))
    plugin = TriedLibrary(path=library, config="", case=case).create()
    torch.cuda.set_device(0)
    del plugin
    assert ctypes.CDLL(library).read_destroyed_on() == 1
    assert torch.cuda.current_device() == 0
