"""The modules of the single-layer benchmarks, and their inputs.

The surprising choice: attention is written out rather than taken from torch.nn.MultiheadAttention,
which in inference calls one closed operator that no model of the zoo uses.
"""

from typing import Any

import torch
from torch import nn

from ftax.steps.spec import Shape


class SelfAttention(nn.Module):
    """Query, key, value and output projections around the fused attention operator."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Features (batch, sequence, width), as the input."""
        batch, sequence, width = features.shape
        query, key, value = (
            project(features).view(batch, sequence, self.heads, -1).transpose(1, 2)
            for project in (self.query, self.key, self.value)
        )
        attended = nn.functional.scaled_dot_product_attention(query, key, value)
        joined: torch.Tensor = self.output(attended.transpose(1, 2).reshape(batch, sequence, width))
        return joined


def make_feed_forward(width: int, layers: int) -> nn.Sequential:
    """`layers` times a square linear layer and a ReLU."""
    modules: list[nn.Module] = []
    for _ in range(layers):
        modules += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*modules)


def make_features(
    module: nn.Module, shape: Shape, generator: torch.Generator
) -> tuple[torch.Tensor, ...]:
    """Features (batch, sequence, width), fp32, normal."""
    return (torch.randn(shape.batch, shape.size, _input_width(module), generator=generator),)


def make_signals(
    module: nn.Module, shape: Shape, generator: torch.Generator
) -> tuple[torch.Tensor, ...]:
    """Signals (batch, channels, length), fp32, normal."""
    return (torch.randn(shape.batch, _input_width(module), shape.size, generator=generator),)


def make_planes(
    module: nn.Module, shape: Shape, generator: torch.Generator
) -> tuple[torch.Tensor, ...]:
    """Images (batch, channels, side, side), fp32, normal."""
    size = (shape.batch, _input_width(module), shape.size, shape.size)
    return (torch.randn(size, generator=generator),)


def _input_width(module: Any) -> int:
    width: int = module.input_width
    return width
