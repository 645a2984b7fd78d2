"""An environment: the versions in use, the switches that change what is measured, host and GPU; and
what of it could disturb.
"""

import functools
import os
import platform
import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import torch

from ftax import _build_info
from ftax.errors import InvalidArgumentError
from ftax.machines.gpu import GpuFacts, collect_gpu
from ftax.machines.host import Condition, HostFacts, collect_condition, collect_host
from ftax.records.fields import Rule
from ftax.records.record import Count, Name, PositiveInt, Record

_DEVICE = re.compile(r"cpu|cuda(:\d+)?")
Device = Annotated[
    str,
    Rule("'cpu', 'cuda' or 'cuda:<number>'", lambda text: _DEVICE.fullmatch(text) is not None),
]

_VARIABLE_PREFIXES = (
    "CUBLAS_",
    "CUDA_",
    "CUDNN_",
    "DNNL_",
    "GOMP_",
    "KMP_",
    "LD_PRELOAD",  # another allocator, perhaps
    "MALLOC_",
    "MKL_",
    "NVIDIA_TF32_OVERRIDE",
    "OMP_",
    "ONEDNN_",
    "ORT_",
    "PYTHONHASHSEED",
    "PYTORCH_",
)
_WITHHELD = "(set; the value holds a path)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(Record):
    """Torch's switches as they were when read, in torch's own words, and the variables."""

    num_threads: PositiveInt  # within an operator
    num_interop_threads: PositiveInt
    default_dtype: Name
    grad_enabled: bool
    inference_mode: bool
    deterministic_algorithms: bool
    # None: torch's old and new switches contradict each other.
    float32_matmul_precision: Name | None
    matmul_fp32_precision: Name  # CUDA: "tf32", "ieee", or "none" (torch's default holds)
    conv_fp32_precision: Name  # cuDNN, likewise
    onednn_matmul_fp32_precision: Name
    cudnn_enabled: bool
    cudnn_benchmark: bool
    cudnn_deterministic: bool
    sdpa_backends: tuple[str, ...]  # that torch may choose from
    variables: Mapping[str, str]  # environment variables that are set


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftwareFacts(Record):
    """Versions. None: not installed, or not built in."""

    python: Name
    python_implementation: Name
    torch: Name
    torch_cuda: Name | None  # that torch was built with
    torch_commit: Name | None
    cudnn: Count | None  # as cuDNN counts: 91002 is 9.10.2; None on a CPU device
    mkl: bool
    onednn: bool
    parallel_backend: Name | None  # "OpenMP" or "native thread pool"
    cpu_capability: Name  # the instruction set that torch's kernels use: "AVX2"
    transformers: Name | None
    onnx: Name | None
    onnxruntime: Name | None
    onnxruntime_gpu: Name | None
    numpy: Name | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFacts(Record):
    """Which ftax measured."""

    ftax: Name
    commit: Name | None  # of the checkout that it runs from, or was built from; None: unknown
    dirty: bool | None  # whether the sources differ from the commit; None where commit is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment(Record):
    """Where and with what a measurement was made."""

    device: Device
    machine: str = ""  # what the user calls it, by FTAX_MACHINE; a host's name is nobody's business
    host: HostFacts
    software: SoftwareFacts
    settings: Settings
    source: SourceFacts
    gpu: GpuFacts | None  # None on a CPU device, and where NVML's Python package is missing
    condition: Condition


def collect_environment(*, device: str = "cpu") -> Environment:
    """Read the machine, the versions and the switches that hold now, in this thread.

    What cannot change is read once in a process, so that the second call is cheap.

    Raises:
        InvalidArgumentError: `device` is none of "cpu", "cuda", "cuda:<number>".
        UnavailableError: torch sees no such device.
    """
    if _DEVICE.fullmatch(device) is None:
        raise InvalidArgumentError(f"device is {device!r}; it has to be 'cpu', 'cuda' or 'cuda:0'")
    on_cuda = device != "cpu"
    return Environment(
        device=device,
        machine=os.environ.get("FTAX_MACHINE", ""),
        gpu=collect_gpu(device) if on_cuda else None,
        host=collect_host(),
        software=collect_software(with_cudnn=on_cuda),
        settings=collect_settings(),
        source=collect_source(),
        condition=collect_condition(),
    )


def find_concerns(environment: Environment) -> list[str]:
    """What could disturb a measurement here, in sentences with a remedy; none on a quiet, bare
    machine."""
    host = environment.host
    concerns = []
    if host.virtualised:
        name = host.hypervisor or "an unknown hypervisor"
        concerns.append(
            f"this is a virtual machine ({name}): floors are higher than on bare metal, and others "
            "may take CPU time (steal is recorded with each round)"
        )
    if host.governor and set(host.governor.split("+")) - {"performance"}:
        concerns.append(
            f"the frequency governor is {host.governor}: `cpupower frequency-set -g performance` "
            "makes latencies steadier"
        )
    if host.smt:
        concerns.append(
            "cores run two threads each: pin to one thread a core with --cpus for steadier numbers"
        )
    load = environment.condition.load_average[0]
    if load > 0.5 * host.usable_cpus:
        concerns.append(
            f"the load average is {load:.1f} on {host.usable_cpus} CPUs: something else is running"
        )
    if environment.settings.num_threads > host.usable_cpus:
        concerns.append(
            f"torch uses {environment.settings.num_threads} threads on {host.usable_cpus} usable "
            "CPUs: set OMP_NUM_THREADS or --threads"
        )
    return concerns


def collect_settings() -> Settings:
    """Read the switches of the calling thread."""
    backends: Any = torch.backends  # parts of which torch leaves untyped
    return Settings(
        num_threads=torch.get_num_threads(),
        num_interop_threads=torch.get_num_interop_threads(),
        default_dtype=str(torch.get_default_dtype()).removeprefix("torch."),
        grad_enabled=torch.is_grad_enabled(),
        inference_mode=torch.is_inference_mode_enabled(),
        deterministic_algorithms=torch.are_deterministic_algorithms_enabled(),
        float32_matmul_precision=_read_float32_matmul_precision(),
        matmul_fp32_precision=_read_precision(
            lambda: backends.cuda.matmul.fp32_precision, lambda: backends.cuda.matmul.allow_tf32
        ),
        conv_fp32_precision=_read_precision(
            lambda: backends.cudnn.conv.fp32_precision, lambda: backends.cudnn.allow_tf32
        ),
        onednn_matmul_fp32_precision=_read_precision(
            lambda: backends.mkldnn.matmul.fp32_precision, lambda: backends.mkldnn.allow_tf32
        ),
        cudnn_enabled=backends.cudnn.enabled,
        cudnn_benchmark=backends.cudnn.benchmark,
        cudnn_deterministic=backends.cudnn.deterministic,
        sdpa_backends=_list_sdpa_backends(),
        variables=_collect_variables(),
    )


def _read_float32_matmul_precision() -> str | None:
    # torch refuses to answer once the same precision was set through both of its interfaces.
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return None


def _read_precision(read: Callable[[], str], read_old: Callable[[], bool]) -> str:
    try:
        return read()
    except AttributeError:  # torch before 2.9, which has the old switches alone
        return "tf32" if read_old() else "ieee"


def _list_sdpa_backends() -> tuple[str, ...]:
    cuda: Any = torch.backends.cuda
    enabled = {
        "cudnn": cuda.cudnn_sdp_enabled(),
        "efficient": cuda.mem_efficient_sdp_enabled(),
        "flash": cuda.flash_sdp_enabled(),
        "math": cuda.math_sdp_enabled(),
    }
    return tuple(name for name, is_on in enabled.items() if is_on)


def _collect_variables() -> dict[str, str]:
    return {
        name: _WITHHELD if "/" in value else value
        for name, value in sorted(os.environ.items())
        if name.startswith(_VARIABLE_PREFIXES)
    }


def list_portable_variables() -> dict[str, str]:
    """The variables among them that mean the same on another machine: no paths, and no choice of
    this machine's GPUs."""
    found = {**_collect_variables()}
    found.pop("CUDA_VISIBLE_DEVICES", None)
    return {name: value for name, value in found.items() if value != _WITHHELD}


@functools.cache
def collect_software(*, with_cudnn: bool) -> SoftwareFacts:
    """Read versions, from package metadata where importing the package would cost seconds."""
    backends: Any = torch.backends  # parts of which torch leaves untyped
    return SoftwareFacts(
        python=platform.python_version(),
        python_implementation=platform.python_implementation(),
        torch=torch.__version__[:],  # a plain str, not torch's subclass
        torch_cuda=torch.version.cuda,
        torch_commit=torch.version.git_version,
        cudnn=backends.cudnn.version() if with_cudnn else None,
        mkl=backends.mkl.is_available(),
        onednn=backends.mkldnn.is_available(),
        parallel_backend=_read_parallel_backend(),
        cpu_capability=backends.cpu.get_cpu_capability(),
        transformers=_find_version("transformers"),
        onnx=_find_version("onnx"),
        onnxruntime=_find_version("onnxruntime"),
        onnxruntime_gpu=_find_version("onnxruntime-gpu"),
        numpy=_find_version("numpy"),
    )


def _find_version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _read_parallel_backend() -> str | None:
    for line in torch.__config__.parallel_info().splitlines():
        name, _, value = line.partition(":")
        if name == "ATen parallel backend":
            return value.strip()
    return None


@functools.cache
def collect_source() -> SourceFacts:
    """Read ftax's version and its commit: of the checkout it runs from, else of its build."""
    package = Path(__file__).resolve().parents[1]
    commit, dirty = read_commit(package.parents[1])
    if commit is None and _build_info.SOURCE_COMMIT is not None:
        commit, dirty = _build_info.SOURCE_COMMIT, _build_info.SOURCE_DIRTY
    return SourceFacts(ftax=_build_info.VERSION, commit=commit, dirty=dirty)


def read_commit(checkout: Path) -> tuple[str | None, bool | None]:
    """Return the commit that is checked out in `checkout` and whether its sources differ from it.

    The directory itself has to be the top of a checkout: an ftax that is installed in a virtual
    environment inside somebody else's checkout must not report that project's commit.
    """
    if not (checkout / ".git").exists():
        return None, None
    command = "git status --porcelain=v2 --branch -- python csrc CMakeLists.txt"
    try:
        done = subprocess.run(
            command.split(),
            cwd=checkout,
            capture_output=True,
            text=True,
            timeout=10,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},  # look, do not refresh the index
        )
    except (OSError, subprocess.TimeoutExpired):
        return None, None
    lines = done.stdout.splitlines()
    commit = next((line.split()[2] for line in lines if line.startswith("# branch.oid ")), None)
    if done.returncode != 0 or commit is None or commit == "(initial)":
        return None, None
    return commit, any(not line.startswith("#") for line in lines)
