"""The model under JAX: torchax traces it, XLA compiles it, weights and inputs are on the device.

The surprising choice: a request waits for its outputs inside the callable. JAX has streams of its
own, which no synchronisation of torch's waits for; so issue time is latency here.
"""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.dlpack import from_dlpack

from ftax import _core
from ftax.errors import UnavailableError, UnsupportedError, describe_fault
from ftax.runtimes import tf32
from ftax.runtimes.candidates import grad_mode
from ftax.runtimes.compilers.flattened import Flattened
from ftax.runtimes.environment_variables import environment_with
from ftax.runtimes.workspace import Workspace
from ftax.steps.loaded import LoadedModel
from ftax.timing.candidate import Candidate, Host

_PACKAGES = ("jax", "jaxlib", "torchax")
_Call = Callable[[], Any]
_Feed = Callable[[Sequence[torch.Tensor]], None]


def prepare_jax(workspace: Workspace, host: Host) -> Candidate:
    """The model jitted by JAX; what XLA compiled is kept on disk.

    Raises UnavailableError if JAX does not import or has no such device, UnsupportedError if
    torchax cannot trace the model, XLA cannot compile it, or transfers are asked for.
    """
    loaded = workspace.loaded
    if workspace.setting.transfers:
        raise UnsupportedError(
            "transfers of JAX are not measured: it reads memory and has streams of its own"
        )
    jax, torchax = _import_packages()
    device = _find_device(jax, loaded.device)
    precision = choose_precision(loaded)
    versions = {name: version(name) for name in _PACKAGES}
    compiled: list[tuple[_Call, _Feed]] = []

    def make(folder: Path) -> Mapping[str, object]:
        before = _read_memory(device)
        compiled.append(_compile(jax, torchax, loaded, device, precision, folder))
        return {"jax_peak_device_bytes": _compute_peak(before, _read_memory(device))}

    options = {**versions, "precision": precision, "kind": device.device_kind}
    artefact = workspace.artefact("jax", options, make)
    if not compiled:
        compiled.append(_compile(jax, torchax, loaded, device, precision, artefact.folder))
    ((call, feed),) = compiled

    def run() -> list[torch.Tensor]:
        outputs = call()
        copies = [from_dlpack(output).clone() for output in outputs]
        if loaded.device != "cpu":
            torch.cuda.synchronize(loaded.device)  # before JAX uses the outputs' memory again
        return copies

    return Candidate(
        runtime="jax",
        host=host,
        # "cpu": the callable has waited for the device when it returns.
        runner=_core.PythonRunner(call, "jax", device="cpu", grad_mode=grad_mode(workspace)),
        run=run,
        feed=feed,
        preparation=artefact.to_preparation(
            # What torch's allocator says is not about JAX.
            peak_device_bytes=artefact.facts.get("jax_peak_device_bytes"),
            waits="inside the request",
            matmul_precision=precision,
            **versions,
        ),
        warnings=_warn_of_threads(loaded.device),
    )


def choose_precision(loaded: LoadedModel) -> str | None:
    """JAX's precision for products of fp32 that torch's switches amount to; None for other dtypes.

    JAX has one switch where torch has two: a model with convolutions follows cuDNN's.
    """
    if loaded.dtype != "fp32":
        return None
    if loaded.device == "cpu":
        return "highest"
    convolves = any(isinstance(m, nn.modules.conv._ConvNd) for m in loaded.module.modules())
    fast = tf32.allows_convolutions() if convolves else tf32.allows_products()
    return "tensorfloat32" if fast else "highest"


@functools.cache
def _import_once() -> tuple[Any, Any] | UnavailableError:
    """JAX and torchax, or why not: a second try would fail half-way, with another message."""
    fast_path = torch.backends.mha.get_fastpath_enabled()
    try:
        with warnings.catch_warnings(), environment_with(_quiet_start()):
            warnings.simplefilter("ignore")
            import jax
            import torchax

            torchax.default_env()
    except Exception as error:  # versions that do not fit fail in any way
        packages = ", ".join(f"{name} {version(name)}" for name in (*_PACKAGES, "torch"))
        obstacle = UnavailableError(
            f"`import torchax` failed ({describe_fault(error)}): {packages} do not fit together; "
            "install a torchax made for this torch, or the torch that this torchax was made for"
        )
        obstacle.__cause__ = error
        return obstacle
    finally:
        torch.backends.mha.set_fastpath_enabled(fast_path)  # torchax turns it off for everybody
    return jax, torchax


def _quiet_start() -> dict[str, str]:
    """Read when JAX's back end starts, which would take three quarters of the GPU's memory, and by
    torchax, which would report home; what the user has set stays."""
    wanted = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "ENABLE_RUNTIME_UPTIME_TELEMETRY": "0"}
    return {name: os.environ.get(name, value) for name, value in wanted.items()}


def _import_packages() -> tuple[Any, Any]:
    packages = _import_once()
    if isinstance(packages, UnavailableError):
        raise packages
    return packages


def _find_device(jax: Any, device: str) -> Any:
    kind, _, index = device.partition(":")
    try:
        with environment_with(_quiet_start()):
            return jax.devices(kind)[int(index or 0)]
    except (RuntimeError, IndexError) as error:
        raise UnavailableError(
            f"jax.devices({kind!r}) has no {device} ({describe_fault(error)}); for a GPU: "
            "`pip install 'jax[cuda13]'`, or cuda12 as torch has it"
        ) from error


def _compile(
    jax: Any,
    torchax: Any,
    loaded: LoadedModel,
    device: Any,
    precision: str | None,
    folder: Path,
) -> tuple[_Call, _Feed]:
    """A request as a callable (compiled, run once, and blocking), and what gives it other inputs,
    which JAX keeps in memory of its own."""

    inputs: Any = None

    def move(tensors: Sequence[torch.Tensor]) -> Any:
        return jax.device_put(torchax.default_env().t2j_copy(tuple(tensors)), device)

    def feed(tensors: Sequence[torch.Tensor]) -> None:
        nonlocal inputs
        inputs = move(tensors)

    try:
        with warnings.catch_warnings(), _cache_in(jax, folder), torch.no_grad():
            warnings.simplefilter("ignore")  # int64 becomes int32, as JAX has it by default
            weights, function = torchax.extract_jax(Flattened(loaded))
            weights = jax.device_put(weights, device)
            inputs = move(loaded.flat_inputs())

            # Inside, so that the precision belongs to the program and not to who calls it.
            def forward(weights: Any, inputs: Any) -> Any:
                with jax.default_matmul_precision(precision):
                    return function(weights, inputs)

            jitted = jax.jit(forward)
            jax.block_until_ready(jitted(weights, inputs))
    except Exception as error:
        raise UnsupportedError(
            f"jax.jit through torchax cannot compile {loaded.name}: {describe_fault(error)}"
        ) from error
    wait = jax.block_until_ready
    return (lambda: wait(jitted(weights, inputs))), feed


@contextmanager
def _cache_in(jax: Any, folder: Path) -> Iterator[None]:
    """Keep what XLA compiles inside the block in ``folder``, or take it from there."""
    from jax.experimental.compilation_cache import compilation_cache

    wanted = {
        "jax_compilation_cache_dir": str(folder),
        "jax_persistent_cache_min_compile_time_secs": 0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
        "jax_persistent_cache_enable_xla_caches": "none",  # would hold the folder's name
    }
    before = {name: getattr(jax.config, name) for name in wanted}

    def apply(values: Mapping[str, object]) -> None:
        for name, value in values.items():
            jax.config.update(name, value)
        compilation_cache.reset_cache()  # which otherwise stays where it first was

    apply(wanted)
    try:
        yield
    finally:
        apply(before)


def _read_memory(device: Any) -> Mapping[str, int]:
    return device.memory_stats() or {}  # None on a CPU


def _compute_peak(before: Mapping[str, int], after: Mapping[str, int]) -> int | None:
    """Bytes at the peak beyond those in use before; None if an earlier peak hides it."""
    peak = after.get("peak_bytes_in_use")
    if peak is None or peak <= before.get("peak_bytes_in_use", 0):
        return None
    return peak - before.get("bytes_in_use", 0)


def _warn_of_threads(device: str) -> tuple[str, ...]:
    cores = len(os.sched_getaffinity(0))
    if device != "cpu" or torch.get_num_threads() == cores:
        return ()
    return (f"jax: XLA uses {cores} threads, torch {torch.get_num_threads()}",)
