"""The runtimes there are, which hosts can drive them, and why one is not to be had here.

A runtime is one line in `_RUNTIMES` and one file beside this one; the file is imported when the
runtime is first prepared. Two kinds come from elsewhere: what installed packages bring, and
shared libraries, which are named by their path.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import partial
from importlib.metadata import EntryPoint

import torch

from ftax.errors import (
    InvalidArgumentError,
    suggest,
)
from ftax.runtimes.onnx.sessions import find_provider_obstacle
from ftax.runtimes.plugins import entry_points
from ftax.runtimes.spec import RuntimeSpec
from ftax.runtimes.workspace import Workspace
from ftax.timing.candidate import Candidate, Host


def _find_thread_obstacle(device: str) -> str | None:
    """Where torch has one thread, eager is on one already."""
    if torch.get_num_threads() > 1:
        return None
    return "torch has one thread already: this would be eager once more"


_BOTH: tuple[Host, ...] = ("python", "cpp")
_COMPILE_IS_PYTHON = "torch.compile's guards and wrappers are Python; its C++ form is aoti"
_on_onnxruntime = partial(
    RuntimeSpec,
    bakes=_BOTH,
    files="runtimes.onnx.rows:make_file",
    quick=True,
    packages=("onnxruntime", "onnx"),
    options=("optimization",),
    obstacle=find_provider_obstacle,
)
_compiled = partial(RuntimeSpec, hosts=("python",), tunes=True, why_not_cpp=_COMPILE_IS_PYTHON)
_rung_of_compile = partial(_compiled, any_step=True, instrument=True)
_launches_of_compile = partial(
    RuntimeSpec,
    hosts=("cpp",),
    any_step=True,
    tunes=True,
    instrument=True,
    devices=("cuda",),
    why_not_python="its launches are C++",
)

_RUNTIMES = (
    RuntimeSpec(
        name="library",
        description="a step as the library that people use makes it, such as generate()",
        hosts=("python",),
        function="runtimes.eager.eager:prepare_library",
        any_step=True,
        instrument=True,
        why_not_cpp="a library's own loop is Python",
    ),
    RuntimeSpec(
        name="eager",
        description="PyTorch eager; called from C++ the same operator calls from a tape",
        hosts=_BOTH,
        function="runtimes.eager.eager:prepare_eager",
        bakes=("cpp",),
        any_step=True,
    ),
    RuntimeSpec(
        name="tape-with-autograd",
        description="the calls of a step with autograd, which replays its graph and its engine too",
        hosts=("cpp",),
        function="runtimes.eager.eager:prepare_tape_with_autograd",
        bakes=_BOTH,
        any_step=True,
        instrument=True,
        why_not_python="it is a tape, which C++ drives",
    ),
    RuntimeSpec(
        name="flat",
        description="straight-line Python that makes the tape's operator calls",
        hosts=("python",),
        function="runtimes.eager.eager:prepare_flat",
        bakes=_BOTH,
        any_step=True,
        instrument=True,
        why_not_cpp="flat is Python by definition; without Python it is eager called from C++",
    ),
    RuntimeSpec(
        name="eager-one-thread",
        description="eager with one intra-op thread, beside the threads of all else",
        hosts=("python",),
        function="runtimes.eager.eager:prepare_one_thread",
        any_step=True,
        quick=True,
        devices=("cpu",),
        obstacle=_find_thread_obstacle,
        why_not_cpp="what it shows, one thread in place of several, is no matter of the host",
    ),
    RuntimeSpec(
        name="tape-without-host-reads",
        description="the tape without the values that the model reads back to the host",
        hosts=("cpp",),
        function="runtimes.cuda_graph:prepare_tape_without_host_reads",
        bakes=_BOTH,
        any_step=True,
        instrument=True,
        devices=("cuda",),
    ),
    RuntimeSpec(
        name="launch-replay",
        description="the tape's kernels, launched one driver call each, without operators",
        hosts=("cpp",),
        function="runtimes.cuda_graph:prepare_launch_replay",
        bakes=_BOTH,
        any_step=True,
        instrument=True,
        devices=("cuda",),
    ),
    RuntimeSpec(
        name="cuda-graph",
        description="the tape's kernels as one CUDA graph",
        hosts=_BOTH,
        function="runtimes.cuda_graph:prepare_cuda_graph",
        bakes=_BOTH,
        any_step=True,
        devices=("cuda",),
    ),
    RuntimeSpec(
        name="capture",
        description="ftax.capture: the same operators or kernels replayed, called from Python",
        hosts=("python",),
        function="captures.entry:prepare_capture",
        any_step=True,
        quick=True,
        why_not_cpp="it is called in the model's place, from Python; without Python it is eager "
        "called from C++, or cuda-graph",
    ),
    RuntimeSpec(
        name="torchscript",
        description="traced by torch.jit.trace, loaded from a file",
        hosts=_BOTH,
        function="runtimes.compilers.torchscript:prepare_torchscript",
        bakes=_BOTH,
        files="runtimes.compilers.torchscript:make_file",
        quick=True,
    ),
    RuntimeSpec(
        name="torchscript-frozen",
        description="the trace with weights folded in (torch.jit.freeze)",
        hosts=_BOTH,
        function="runtimes.compilers.torchscript:prepare_frozen",
        bakes=_BOTH,
        files="runtimes.compilers.torchscript:make_frozen_file",
        quick=True,
    ),
    _on_onnxruntime(
        name="onnxruntime",
        description="exported to ONNX, run by its IO binding; from C++ through the C API",
        hosts=_BOTH,
        function="runtimes.onnx.rows:prepare_onnxruntime",
    ),
    _on_onnxruntime(
        name="onnxruntime-run",
        description="the same session called by InferenceSession.run, on numpy arrays",
        hosts=("python",),
        function="runtimes.onnx.rows:prepare_run",
        devices=("cpu",),
        why_not_cpp="C++ has no numpy; its row is onnxruntime",
    ),
    _on_onnxruntime(
        name="onnxruntime-cuda-graph",
        description="the same session, captured by ONNX Runtime as a CUDA graph",
        hosts=_BOTH,
        function="runtimes.onnx.rows:prepare_cuda_graph",
        devices=("cuda",),
    ),
    _compiled(
        name="compile",
        description="torch.compile with inductor, in its default mode",
        function="runtimes.compilers.torch_compile:prepare_compile",
        any_step=True,
    ),
    _rung_of_compile(
        name="compile-without-guards",
        description="compile, told to skip its guards",
        function="runtimes.compilers.taken_apart:prepare_without_guards",
    ),
    _rung_of_compile(
        name="compile-graph",
        description="what TorchDynamo's bytecode calls in compile: AOTAutograd's function",
        function="runtimes.compilers.taken_apart:prepare_graph",
    ),
    _rung_of_compile(
        name="inductor-graph",
        description="what AOTAutograd calls in compile: Inductor's object",
        function="runtimes.compilers.taken_apart:prepare_inductor_graph",
    ),
    _rung_of_compile(
        name="inductor-call",
        description="the Python that Inductor generated for compile, called alone",
        function="runtimes.compilers.taken_apart:prepare_inductor_call",
    ),
    _rung_of_compile(
        name="inductor-cpp-call",
        description="the same graph with C++ generated in place of Python, called alone",
        function="runtimes.compilers.taken_apart:prepare_inductor_cpp_call",
    ),
    _launches_of_compile(
        name="inductor-launch-replay",
        description="what compile's generated code launches, one driver call each",
        function="runtimes.compilers.taken_apart:prepare_inductor_launch_replay",
    ),
    _launches_of_compile(
        name="inductor-cuda-graph",
        description="what compile's generated code launches, as one CUDA graph",
        function="runtimes.compilers.taken_apart:prepare_inductor_cuda_graph",
    ),
    _compiled(
        name="compile-reduce-overhead",
        description="torch.compile with CUDA graphs (mode reduce-overhead)",
        function="runtimes.compilers.torch_compile:prepare_reduce_overhead",
        any_step=True,
        devices=("cuda",),
    ),
    _compiled(
        name="compile-capture",
        description="ftax.capture of what torch.compile made: its graphs as CUDA graphs",
        function="captures.entry:prepare_compile_capture",
        devices=("cuda",),
    ),
    _compiled(
        name="compile-max-autotune",
        description="torch.compile with kernels chosen by trial (mode max-autotune-no-cudagraphs)",
        function="runtimes.compilers.torch_compile:prepare_max_autotune",
        any_step=True,
    ),
    RuntimeSpec(
        name="aoti",
        description="compiled ahead of time by AOTInductor, loaded from a package",
        hosts=_BOTH,
        function="runtimes.compilers.aoti:prepare_aoti",
        files="runtimes.compilers.aoti:make_package",
        tunes=True,
    ),
    RuntimeSpec(
        name="eager-channels-last",
        description="eager with convolutions in channels-last memory format; from C++ its tape",
        hosts=_BOTH,
        function="runtimes.eager.eager:prepare_channels_last",
        bakes=("cpp",),
    ),
    RuntimeSpec(
        name="padded",
        description="eager on padded texts of natural lengths with a mask; the baseline of nested",
        hosts=_BOTH,
        function="runtimes.eager.nested:prepare_padded",
        bakes=("cpp",),
    ),
    RuntimeSpec(
        name="nested",
        description="BetterTransformer: torch's fast path with nested tensors, texts as in padded",
        hosts=_BOTH,
        function="runtimes.eager.nested:prepare_nested",
        bakes=("cpp",),
    ),
)


def list_runtimes() -> tuple[RuntimeSpec, ...]:
    """All runtimes, also those that are not to be had on this machine, and those that installed
    packages bring."""
    return (*_RUNTIMES, *_list_installed())


def find_runtime(name: str) -> RuntimeSpec:
    """The runtime of that name, or the shared library of that path. Raises InvalidArgumentError
    with the nearest name otherwise."""
    for spec in _RUNTIMES:
        if spec.name == name:
            return spec
    if is_library(name):
        return _describe_library(name)
    installed = _list_installed()
    for spec in installed:
        if spec.name == name:
            return spec
    if name.partition("?")[0].endswith(".so"):
        raise InvalidArgumentError(
            f"there is no runtime {name!r}; for a shared library in this folder write './{name}'"
        )
    names = [spec.name for spec in (*_RUNTIMES, *installed)]
    raise InvalidArgumentError(
        f"there is no runtime {name!r}; {suggest(name, names)}there are {', '.join(names)}"
    )


def is_library(name: str) -> bool:
    """Whether a runtime of this name is code in a file, which preparing it loads and runs."""
    path, _, _ = name.partition("?")
    return path.endswith(".so") and os.sep in path


def _describe_library(name: str) -> RuntimeSpec:
    return RuntimeSpec(
        name=name,
        description="a shared library that implements ftax/runner.h (docs/extending.md)",
        hosts=("cpp",),
        function=lambda workspace, host: _prepare_library(workspace, name),
        tunes=True,  # for all that is known
        why_not_python=f"{name} is a shared library, which the C++ loop calls: give host cpp",
    )


def _prepare_library(workspace: Workspace, name: str) -> Candidate:
    from ftax.runtimes.plugins.shared_library import prepare_plugin

    return prepare_plugin(workspace, name)


def _list_installed() -> list[RuntimeSpec]:
    points = entry_points.find_entry_points()
    taken = {spec.name for spec in _RUNTIMES}
    return [_describe_installed(point, taken, points) for point in points]


def _describe_installed(
    point: EntryPoint, taken: Iterable[str], points: Iterable[EntryPoint]
) -> RuntimeSpec:
    clash = entry_points.find_clash(point, taken, points)
    return RuntimeSpec(
        # A name that is taken stays its owner's; the row says whose it would have been.
        name=f"{point.name} ({entry_points.origin(point)})" if clash else point.name,
        description=f"brought by {entry_points.origin(point)}",
        hosts=("python",),
        function=lambda workspace, host: entry_points.prepare_entry_point(workspace, point),
        quick=True,
        tunes=True,  # for all that is known
        why_not_cpp=f"{point.name} is called from Python",
        obstacle=lambda device: clash or entry_points.find_obstacle(point),
    )


def check_host(host: str) -> Host:
    """``host`` if it is one. Raises InvalidArgumentError otherwise."""
    if host not in _BOTH:
        raise InvalidArgumentError(f"host is {host!r}; it has to be 'python' or 'cpp'")
    return "python" if host == "python" else "cpp"
