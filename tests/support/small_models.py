"""Models that tests write in one line, and an instrument of their own to watch them with.

The log here is written again rather than imported from ftax, because it judges what ftax's own log
says.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from ftax.steps.load import load_model
from ftax.steps.loaded import LoadedModel
from ftax.steps.outputs import flatten_outputs


class Lambda(nn.Module):
    """A function as a module, with one weight of four ones for functions that take it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


@dataclass
class Pair:
    left: torch.Tensor
    right: list[torch.Tensor]


class Nest(nn.Module):
    """Returns tensors in a dict of a tuple of a dataclass of a list."""

    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        return {"sum": x + x, "rest": (x.neg(), Pair(left=x.exp(), right=[x.abs(), x]))}


class Grows(nn.Module):
    """A list in an attribute, one longer at each call."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append(x + 1)
        return torch.stack(self.seen).sum(0)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def load_function(
    function: Callable[..., Any], *inputs: torch.Tensor, **options: Any
) -> LoadedModel:
    """`function` as a loaded model; its input is a (3, 4) tensor unless others are given."""
    return load_model(Lambda(function), inputs=inputs or (normal(3, 4),), **options)


class OperatorLog(TorchDispatchMode):
    """Names of the operators that run, as the tape writes them."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        packet, _, overload = str(func).replace(".", "::", 1).rpartition(".")
        self.names.append(packet if overload == "default" else f"{packet}.{overload}")
        return func(*args, **(kwargs or {}))


def log_operators(call: Callable[[], Any]) -> list[str]:
    with torch.inference_mode(), OperatorLog() as log:
        call()
    return log.names


def run_seeded(call: Callable[[], Any], seed: int = 0) -> list[torch.Tensor]:
    """The output tensors of `call` under inference mode and a seed of its own."""
    with torch.random.fork_rng(devices=[]), torch.inference_mode():
        torch.manual_seed(seed)
        return flatten_outputs(call())


def same_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    return left.contiguous().numpy().tobytes() == right.contiguous().numpy().tobytes()
