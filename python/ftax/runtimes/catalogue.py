"""The runtimes there are, which hosts can drive them, and why one is not to be had here.

A runtime is one line in `_RUNTIMES` and one file beside this one; the file is imported when the
runtime is first prepared.
"""

from __future__ import annotations

import difflib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec

from ftax.errors import InvalidArgumentError, UnavailableError
from ftax.faults import name_faults
from ftax.runtimes.onnxruntime_wheel import find_provider_obstacle
from ftax.runtimes.prepared import Host, Prepared
from ftax.runtimes.transfers import add_transfers
from ftax.runtimes.workspace import Workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeSpec:
    """One way to execute a model. ``function`` is ``module:name`` under ftax.runtimes."""

    name: str
    description: str
    hosts: tuple[Host, ...]
    function: str
    packages: tuple[str, ...] = ()
    devices: tuple[str, ...] = ("cpu", "cuda")
    why_not_cpp: str = ""
    options: tuple[str, ...] = ()  # that it takes from `Workspace.runtime_options`
    find_device_obstacle: Callable[[str], str | None] | None = None  # beyond the packages

    def find_obstacle(self, *, host: Host | None = None, device: str = "cpu") -> str | None:
        """Why it cannot run here, with the remedy; None if it can."""
        if host is not None and host not in self.hosts:
            return self.why_not_cpp or f"{self.name} has no {host} host"
        if device.split(":")[0] not in self.devices:
            return f"{self.name} does not run on {device} in this version of ftax"
        missing = [name for name in self.packages if find_spec(name) is None]
        if missing:
            return f"not installed: `pip install {' '.join(missing)}`"
        return self.find_device_obstacle(device) if self.find_device_obstacle else None

    def check_options(self, options: Mapping[str, str]) -> None:
        """Raises InvalidArgumentError for an option that it does not take."""
        for name in options:
            if name not in self.options:
                known = ", ".join(self.options) or "none"
                raise InvalidArgumentError(
                    f"{self.name} has no option {name!r}; its options: {known}"
                )

    def prepare(self, workspace: Workspace, host: Host) -> Prepared:
        """Make it ready.

        Raises UnavailableError for an obstacle, RunnerError if torch or CUDA failed or memory ran
        out, and what else preparing raises.
        """
        obstacle = self.find_obstacle(host=host, device=workspace.loaded.device)
        if obstacle:
            raise UnavailableError(f"{self.name} with host {host}: {obstacle}")
        module, _, name = self.function.partition(":")
        function: Callable[[Workspace, Host], Prepared] = getattr(
            import_module(f"ftax.runtimes.{module}"), name
        )
        start = time.perf_counter()
        with name_faults(f"{self.name} with host {host} could not be prepared"):
            prepared = function(workspace, host)
            if workspace.transfers:
                prepared = add_transfers(workspace, prepared)
            facts = {**prepared.facts, "ready_seconds": time.perf_counter() - start}
            return replace(prepared, facts=facts, runner=workspace.on_stream(prepared.runner))


_BOTH: tuple[Host, ...] = ("python", "cpp")
_ONNX_PACKAGES = ("onnxruntime", "onnx")
_ONNX_OPTIONS = ("optimization",)

_RUNTIMES = (
    RuntimeSpec(
        name="eager",
        description="PyTorch eager; host cpp replays the same operator calls from a tape",
        hosts=_BOTH,
        function="eager:prepare_eager",
    ),
    RuntimeSpec(
        name="flat",
        description="straight-line Python that makes the tape's operator calls",
        hosts=("python",),
        function="eager:prepare_flat",
        why_not_cpp="flat is Python by definition; without Python it is eager with host cpp",
    ),
    RuntimeSpec(
        name="tape-without-host-reads",
        description="the tape without the values that the model reads back to the host",
        hosts=("cpp",),
        function="cuda_graph:prepare_tape_without_host_reads",
        devices=("cuda",),
    ),
    RuntimeSpec(
        name="launch-replay",
        description="the tape's kernels, launched one driver call each, without operators",
        hosts=("cpp",),
        function="cuda_graph:prepare_launch_replay",
        devices=("cuda",),
    ),
    RuntimeSpec(
        name="cuda-graph",
        description="the tape's kernels as one CUDA graph",
        hosts=_BOTH,
        function="cuda_graph:prepare_cuda_graph",
        devices=("cuda",),
    ),
    RuntimeSpec(
        name="torchscript",
        description="traced by torch.jit.trace, loaded from a file",
        hosts=_BOTH,
        function="torchscript:prepare_torchscript",
    ),
    RuntimeSpec(
        name="torchscript-frozen",
        description="the trace with weights folded in (torch.jit.freeze)",
        hosts=_BOTH,
        function="torchscript:prepare_frozen",
    ),
    RuntimeSpec(
        name="onnxruntime",
        description="exported to ONNX, inputs and outputs bound; host cpp through the C API",
        hosts=_BOTH,
        function="onnx:prepare_onnxruntime",
        packages=_ONNX_PACKAGES,
        options=_ONNX_OPTIONS,
        find_device_obstacle=find_provider_obstacle,
    ),
    RuntimeSpec(
        name="onnxruntime-defaults",
        description="the same file with ONNX Runtime's own numeric modes and spinning threads",
        hosts=_BOTH,
        function="onnx:prepare_defaults",
        packages=_ONNX_PACKAGES,
        options=_ONNX_OPTIONS,
        find_device_obstacle=find_provider_obstacle,
    ),
    RuntimeSpec(
        name="onnxruntime-fused",
        description="the file after ONNX Runtime's fusions for transformers",
        hosts=_BOTH,
        function="onnx:prepare_fused",
        packages=_ONNX_PACKAGES,
        options=_ONNX_OPTIONS,
        find_device_obstacle=find_provider_obstacle,
    ),
    RuntimeSpec(
        name="onnxruntime-cuda-graph",
        description="the same session, captured by ONNX Runtime as a CUDA graph",
        hosts=_BOTH,
        function="onnx:prepare_cuda_graph",
        packages=_ONNX_PACKAGES,
        devices=("cuda",),
        options=_ONNX_OPTIONS,
        find_device_obstacle=find_provider_obstacle,
    ),
)


def list_runtimes() -> tuple[RuntimeSpec, ...]:
    """All runtimes, also those that are not to be had on this machine."""
    return _RUNTIMES


def find_runtime(name: str) -> RuntimeSpec:
    """The runtime of that name. Raises InvalidArgumentError with the nearest name otherwise."""
    for spec in _RUNTIMES:
        if spec.name == name:
            return spec
    names = [spec.name for spec in _RUNTIMES]
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise InvalidArgumentError(f"there is no runtime {name!r}; {hint}there are {', '.join(names)}")


def check_host(host: str) -> Host:
    """``host`` if it is one. Raises InvalidArgumentError otherwise."""
    if host not in _BOTH:
        raise InvalidArgumentError(f"host is {host!r}; it has to be 'python' or 'cpp'")
    return "python" if host == "python" else "cpp"
