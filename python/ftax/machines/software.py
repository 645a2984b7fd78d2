"""The versions in use, and the commit of ftax itself; constant, so read once in a process."""

import functools
import os
import platform
import subprocess
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from ftax import _build_info
from ftax.records.record import Count, Name, Record


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
