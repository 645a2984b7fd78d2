"""What a runtime is: how it is made ready, which hosts can drive it, and what keeps it from
running here.

Its code is named by a text and imported when the runtime is first prepared, so that asking what
there is loads none of the libraries behind it.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch

from ftax import _core
from ftax.errors import InvalidArgumentError, UnavailableError, UnsupportedError, name_faults
from ftax.runtimes.candidates import check_both_inputs, check_later, draws_random
from ftax.runtimes.cuda_graph import require_cuda_build
from ftax.runtimes.workspace import Workspace
from ftax.timing.candidate import Candidate, Host

Prepare = Callable[[Workspace, Host], Candidate]

_DRAWS_OTHERS = (
    "may give other outputs for its random numbers alone: the model draws some, as dropout does, "
    "and a compiler draws others; torch._inductor.config.fallback_random = True has torch.compile "
    "draw eager's"
)

if TYPE_CHECKING:
    from ftax.runtimes.workspace import Workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeSpec:
    """One way to execute a model.

    ``function`` is ``module:name`` under ftax, or the function itself. ``obstacle`` is
    asked last; it may take long.
    A ``quick`` one is ready in seconds, and part of every receipt that is not told otherwise.
    ``files``, as ``module:name``, is what makes the files that it loads, if any. What ``tunes``
    chooses between kernels by timing them while it is made ready, so nothing may run beside it.
    An ``instrument`` is a rung that shows a cost, and nothing that anybody would deploy. With
    ``any_step`` it runs any step, and not only a module's forward pass. With one of the hosts in
    ``bakes`` it repeats calls that were recorded or traced once, with the numbers that were read
    then.
    """

    name: str
    description: str
    hosts: tuple[Host, ...]
    function: str | Prepare
    files: str = ""
    packages: tuple[str, ...] = ()
    devices: tuple[str, ...] = ("cpu", "cuda")
    why_not_cpp: str = ""
    why_not_python: str = ""
    quick: bool = False
    tunes: bool = False
    instrument: bool = False
    any_step: bool = False
    bakes: tuple[Host, ...] = ()
    options: tuple[str, ...] = ()  # that it takes from `Setting.runtime_options`
    obstacle: Callable[[str], str | None] | None = None

    def find_obstacle(
        self, *, host: Host | None = None, device: str = "cpu", kind: str = "forward"
    ) -> str | None:
        """Why it cannot run such a kind of step here, with the remedy; None if it can."""
        if kind != "forward" and not self.any_step:
            return (
                f"{self.name} runs the forward pass of a module, and this step is any callable, "
                "which may write what outlives it; measure the module itself for this runtime"
            )
        if host is not None and host not in self.hosts:
            reason = self.why_not_cpp if host == "cpp" else self.why_not_python
            return reason or f"{self.name} has no {host} host"
        if device.split(":")[0] not in self.devices:
            return f"{self.name} does not run on {device} in this version of ftax"
        missing = [name for name in self.packages if find_spec(name) is None]
        if missing:
            return f"not installed: `pip install {' '.join(missing)}`"
        return self.obstacle(device) if self.obstacle else None

    def check_options(self, options: Mapping[str, str]) -> None:
        """Raises InvalidArgumentError for an option that it does not take."""
        for name in options:
            if name not in self.options:
                known = ", ".join(self.options) or "none"
                raise InvalidArgumentError(
                    f"{self.name} has no option {name!r}; its options: {known}"
                )

    def prepare(self, workspace: Workspace, host: Host) -> Candidate:
        """Make it ready.

        Raises UnavailableError for an obstacle, RunnerError if torch or CUDA failed or memory ran
        out, and what else preparing raises.
        """
        loaded = workspace.loaded
        obstacle = self.find_obstacle(host=host, device=loaded.device, kind=loaded.kind)
        if obstacle:
            raise UnavailableError(f"{self.name} with host {host}: {obstacle}")
        if (self.files or self.packages) and not workspace.loaded.flat_inputs():
            raise UnsupportedError(
                f"{self.name} runs a program of tensors, and this model is called with none: "
                "exported, it would be one answer and not a model; let it take tensors"
            )
        function = self._find_function()
        start = time.perf_counter()
        with name_faults(f"{self.name} with host {host} could not be prepared"):
            prepared = function(workspace, host)
            if host in self.bakes and not _is_exported(prepared):
                read = workspace.find_dependent_read()
                prepared = replace(prepared, checks=replace(prepared.checks, baked=read))
            if prepared.checks.second_input is None:
                check = functools.partial(check_both_inputs, workspace, prepared)
                prepared = replace(prepared, checks=check())
                if prepared.watch is None:  # or eager itself, at which a watch looks
                    again = functools.partial(check_later, prepared.checks, check)
                    prepared = replace(prepared, check_again=again)
            known = prepared.checks.outputs is not None
            if known and not prepared.checks.judge_outputs().equal and draws_random(loaded):
                warnings = (*prepared.warnings, f"{self.name}/{host} {_DRAWS_OTHERS}")
                prepared = replace(prepared, warnings=warnings)
            if workspace.setting.transfers:
                prepared = add_transfers(workspace, prepared)
            ready = replace(prepared.preparation, ready_seconds=time.perf_counter() - start)
            runner = workspace.on_stream(loaded.wrap_runner(prepared.runner))
            prepared = replace(prepared, preparation=ready, runner=runner)
            return _make_cold(prepared) if workspace.setting.cold else prepared

    def make_files(self, workspace: Workspace) -> None:
        """Have the files that it loads in the cache, so that `prepare` finds them there.

        Raises what making them raises.
        """
        if self.files:
            with name_faults(f"{self.name} could not be exported"):
                _find(self.files)(workspace)

    def _find_function(self) -> Prepare:
        if not isinstance(self.function, str):
            return self.function
        found: Prepare = _find(self.function)
        return found


def _is_exported(prepared: Candidate) -> bool:
    """Whether it is of a program of torch.export, which refuses what hangs on values."""
    return prepared.preparation.details.get("exporter") == "dynamo"


def _make_cold(prepared: Candidate) -> Candidate:
    """The same, with the GPU's L2 flushed before each request, outside its time."""
    require_cuda_build("cold needs")
    options = {**prepared.options, "cold": True}
    return replace(prepared, runner=_core.ColdRunner(prepared.runner), options=options)


def _find(place: str) -> Any:
    """What ``module:name`` under ftax is."""
    module, _, name = place.partition(":")
    return getattr(import_module(f"ftax.{module}"), name)


def add_transfers(workspace: Workspace, prepared: Candidate) -> Candidate:
    """``prepared`` with its inputs copied from pinned host memory before each request and its
    outputs copied back after it, on the stream of the request.

    Raises UnavailableError in a build without CUDA parts.
    """
    require_cuda_build("transfers need")
    buffers = prepared.buffers
    read = buffers.inputs if buffers else workspace.loaded.flat_inputs()
    written = buffers.outputs if buffers else workspace.reference
    inputs, foreign = _choose_memory(read, own=True)
    outputs, made = _choose_memory(written, own=buffers is not None)
    sources = [tensor.cpu().pin_memory() for tensor in inputs]
    targets = [torch.empty_like(tensor, device="cpu", pin_memory=True) for tensor in outputs]
    torch.cuda.synchronize(workspace.loaded.device)
    runner = _core.TransferRunner(
        prepared.runner,
        [
            (to.data_ptr(), out.data_ptr(), to.nbytes)
            for to, out in zip(inputs, sources, strict=True)
        ],
        [
            (to.data_ptr(), out.data_ptr(), to.nbytes)
            for to, out in zip(targets, outputs, strict=True)
        ],
        (inputs, sources, outputs, targets),
    )
    facts = {
        "input_bytes": sum(tensor.nbytes for tensor in inputs),
        "output_bytes": sum(tensor.nbytes for tensor in outputs),
        "input_stand_ins": foreign,
        "output_stand_ins": made,
    }
    return replace(
        prepared,
        runner=runner,
        preparation=prepared.preparation.also(transfers=facts),
        options={**prepared.options, "transfers": True},
    )


def _choose_memory(tensors: Sequence[torch.Tensor], *, own: bool) -> tuple[list[torch.Tensor], int]:
    """The memory of the tensors that are on the GPU and in one piece, and stand-ins for the others
    there; how many of those."""
    on_gpu = [tensor.detach() for tensor in tensors if tensor.is_cuda]
    kept = [own and tensor.is_contiguous() for tensor in on_gpu]
    memory = [
        tensor if keep else tensor.clone(memory_format=torch.contiguous_format)
        for tensor, keep in zip(on_gpu, kept, strict=True)
    ]
    return memory, kept.count(False)
