"""How an ONNX Runtime session is set up: with torch's threads and numeric modes.

No pool of threads spins. By default it does, for some 40 ms after a request, and burns the cores
that the next runtime is timed on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

import torch

from ftax.errors import InvalidArgumentError
from ftax.tape.equality import allows_tf32_convolutions, allows_tf32_products

Optimization = Literal["disable", "basic", "extended", "layout", "all"]

_CONVOLUTIONS = frozenset({"Conv", "ConvTranspose", "FusedConv", "ConvInteger"})
_PRODUCTS = frozenset({"MatMul", "Gemm", "Attention", "FusedMatMul", "Einsum"})


def check_level(optimization: str) -> None:
    """Raise InvalidArgumentError for a level that there is not."""
    if optimization not in get_args(Optimization):
        known = ", ".join(get_args(Optimization))
        raise InvalidArgumentError(f"optimization is {optimization!r}; use one of {known}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """What both hosts give a session. ``threads`` is the size of the intra-op pool, the calling
    thread included. ``stream`` is a cudaStream_t as a number; 0 lets ONNX Runtime make its own."""

    threads: int = 1
    optimization: Optimization = "all"
    device: str = "cpu"
    stream: int = 0
    provider_options: Mapping[str, str] = field(default_factory=dict)  # CUDA only

    @property
    def on_cuda(self) -> bool:
        """Whether the session has the CUDA provider."""
        return torch.device(self.device).type == "cuda"

    @property
    def device_index(self) -> int:
        """Of the GPU; 0 on a CPU."""
        if not self.on_cuda:
            return 0
        index = torch.device(self.device).index
        return torch.cuda.current_device() if index is None else index

    @property
    def captures(self) -> bool:
        """Whether ONNX Runtime captures the first run as a CUDA graph."""
        return self.provider_options.get("enable_cuda_graph") == "1"

    def to_facts(self) -> dict[str, object]:
        """JSON-able: what decides how the same file runs."""
        return {
            "optimization": self.optimization,
            "threads": self.threads,
            "provider_options": dict(self.provider_options),
        }


def match_torch(
    operators: Mapping[str, int], *, float32: bool
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Options of the CUDA provider that repeat torch's numeric modes, and warnings.

    ``operators`` are the operator types of the model. ONNX Runtime has one switch for TF32 where
    torch has two: the one for convolutions decides where there are any.
    """
    products, convolutions = allows_tf32_products(), allows_tf32_convolutions()
    has_convolutions = not _CONVOLUTIONS.isdisjoint(operators)
    fast = convolutions if has_convolutions else products
    options = {
        "use_tf32": str(int(fast)),
        "cudnn_conv_algo_search": "EXHAUSTIVE" if torch.backends.cudnn.benchmark else "HEURISTIC",
        "do_copy_in_default_stream": "1",
    }
    if not float32 or products == fast or _PRODUCTS.isdisjoint(operators):
        return options, ()
    said = ("off", "on")
    return options, (
        f"torch has TF32 {said[convolutions]} for convolutions and {said[products]} for matrix "
        f"products; ONNX Runtime has one switch, and it is {said[fast]} for both",
    )
