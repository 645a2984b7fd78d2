"""JAX as a runtime of ftax: torchax traces the model, XLA compiles it.

A request moves its inputs to JAX and waits for the outputs: JAX has streams of its own, for which
no synchronisation of torch waits.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils.dlpack import from_dlpack

import ftax
from ftax.runtimes.compilers.flattened import Flattened
from ftax.steps.loaded import LoadedModel


@contextmanager
def _importing_torchax() -> Iterator[None]:
    """torchax 0.0.13 lists overloads of named tensors, which torch 2.13 no longer has: their names
    stand in for them. It also switches torch's fast path for encoders off, which eager uses."""
    packet: Any = torch._ops.OpOverloadPacket
    find, fast_path = packet.__getattr__, torch.backends.mha.get_fastpath_enabled()

    def find_or_name(self: Any, overload: str) -> Any:
        try:
            return find(self, overload)
        except AttributeError:
            if overload.startswith("__") or "name" not in overload.lower():
                raise
            return f"{self}.{overload}"

    # Read by JAX, which would take three quarters of a GPU's memory, and by torchax, which would
    # report home.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    os.environ.setdefault("ENABLE_RUNTIME_UPTIME_TELEMETRY", "0")
    packet.__getattr__ = find_or_name
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        packet.__getattr__ = find
        torch.backends.mha.set_fastpath_enabled(fast_path)


with _importing_torchax():
    import jax
    import torchax

    ENVIRONMENT = torchax.default_env()


def prepare(loaded: LoadedModel) -> Callable[[], list[torch.Tensor]]:
    """The model jitted by JAX, compiled and run once; a call is one request.

    Raises ftax.UnavailableError if JAX has no such device, ftax.UnsupportedError if torchax cannot
    trace the model or XLA cannot compile it.
    """
    device = find_device(loaded.device)
    tensors = tuple(loaded.flat_inputs())  # other values are written into them
    precision = choose_precision(loaded)

    def move() -> Any:
        if loaded.device != "cpu":
            torch.cuda.current_stream(loaded.device).synchronize()
        return jax.device_put(ENVIRONMENT.t2j_copy(tensors), device)

    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # int64 becomes int32, as JAX has it by default
            weights, function = torchax.extract_jax(Flattened(loaded))
            weights = jax.device_put(weights, device)

            def forward(weights: Any, inputs: Any) -> Any:
                with jax.default_matmul_precision(precision):  # becomes part of the program
                    return function(weights, inputs)

            jitted = jax.jit(forward)
            jax.block_until_ready(jitted(weights, move()))
    except Exception as error:
        raise ftax.UnsupportedError(
            f"jax.jit through torchax cannot compile {loaded.name}: {type(error).__name__}: {error}"
        ) from error

    def request() -> list[torch.Tensor]:
        outputs = jax.block_until_ready(jitted(weights, move()))
        return [from_dlpack(output) for output in jax.tree.leaves(outputs)]

    return request


def choose_precision(loaded: LoadedModel) -> str | None:
    """JAX's precision of products in fp32 that is torch's here; None for other dtypes. JAX has one
    switch where torch has two: a model with convolutions follows that of cuDNN."""
    if loaded.dtype != "fp32":
        return None
    convolves = any(isinstance(m, nn.modules.conv._ConvNd) for m in loaded.module.modules())
    backend: Any = torch.backends.cudnn if convolves else torch.backends.cuda.matmul
    return "tensorfloat32" if loaded.device != "cpu" and backend.allow_tf32 else "highest"


def find_device(device: str) -> Any:
    """JAX's name for a device of torch."""
    kind, _, index = device.partition(":")
    try:
        return jax.devices(kind)[int(index or 0)]
    except (RuntimeError, IndexError) as error:
        raise ftax.UnavailableError(
            f"jax.devices({kind!r}) has no {device} ({error}); for a GPU: "
            "`pip install 'jax[cuda13]'`, or cuda12 as torch has it"
        ) from error
