"""Random inputs of the kind that a model expects.

They are always drawn on the CPU and in fp32, then moved and rounded, so that every device and dtype
sees the same request.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from ftax.steps.spec import MakeInputs, Shape

# Independent streams of random numbers from one seed.
WEIGHT_STREAM, INPUT_STREAM, CHECK_STREAM, CALIBRATION_STREAM = range(4)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class InputPair:
    """Two inputs of equal shapes, and what a reader of results should know about the second.

    ``is_drawn``: the second is like the first, which the user gave, and may be invalid for a model.
    ``varied`` names arguments that are constant in the first and not in the second; with
    ``steady_check`` (args, kwargs) there is a second input in which they are.
    """

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    check_args: tuple[Any, ...]
    check_kwargs: Mapping[str, Any]
    warnings: tuple[str, ...] = ()
    is_drawn: bool = False
    steady_check: tuple[tuple[Any, ...], Mapping[str, Any]] | None = None
    varied: tuple[str, ...] = ()


def repeat_input(
    args: tuple[Any, ...], kwargs: Mapping[str, Any], warnings: tuple[str, ...] = ()
) -> InputPair:
    """One input as both of a pair."""
    return InputPair(
        args=args, kwargs=kwargs, check_args=args, check_kwargs=kwargs, warnings=warnings
    )


def make_generator(seed: int, stream: int) -> torch.Generator:
    """A CPU generator of its own, so that the global one is never touched."""
    return torch.Generator().manual_seed(4 * seed + stream)


def make_token_ids(
    module: nn.Module, shape: Shape, generator: torch.Generator
) -> tuple[torch.Tensor, ...]:
    """Token ids, (batch, sequence) int64, uniform over the vocabulary (paper section 4)."""
    config: Any = module.config
    size = (shape.batch, shape.size)
    return (torch.randint(0, config.vocab_size, size, generator=generator),)


def make_normal(sizes: Callable[[Any, Shape], tuple[int, ...]]) -> MakeInputs:
    """What makes one fp32 tensor of `sizes(module, shape)`, normal, of mean 0 and deviation 1."""

    def make(
        module: nn.Module, shape: Shape, generator: torch.Generator
    ) -> tuple[torch.Tensor, ...]:
        return (torch.randn(sizes(module, shape), generator=generator),)

    return make


def _size_images(module: Any, shape: Shape) -> tuple[int, ...]:
    channels = getattr(getattr(module, "config", None), "num_channels", 3)
    return (shape.batch, channels, shape.size, shape.size)


make_images = make_normal(_size_images)
# Sound as the models expect it (paper section E).
make_waves = make_normal(lambda module, shape: (shape.batch, shape.size))


def make_input_pair(
    make_inputs: MakeInputs,
    module: nn.Module,
    shape: Shape,
    *,
    seed: int,
    dtype: torch.dtype,
    device: str,
) -> InputPair:
    """The main and the check input, from two streams of `seed`, on `device`."""

    def place(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        return leaf.to(device=device, dtype=dtype if leaf.is_floating_point() else leaf.dtype)

    args, check_args = (
        pytree.tree_map(place, make_inputs(module, shape, make_generator(seed, stream)))
        for stream in (INPUT_STREAM, CHECK_STREAM)
    )
    return InputPair(args=args, kwargs={}, check_args=check_args, check_kwargs={})
