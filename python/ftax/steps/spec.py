"""What one entry of the zoo says: how to build a model, what it eats, and what it is known to
weigh.

An entry holds two plain functions (`build`, `make_inputs`) and no class of its own, so that a new
model is one `ModelSpec(...)` of a dozen lines.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

Family = Literal["text", "vision", "speech", "layer"]
Dtype = Literal["fp32", "fp16", "bf16"]
Attention = Literal["sdpa", "eager"]

ATTENTIONS: tuple[Attention, ...] = ("sdpa", "eager")
TORCH_DTYPES: dict[Dtype, torch.dtype] = {
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
}
# What `size` counts.
SIZE_UNITS: dict[Family, str] = {
    "text": "tokens",
    "speech": "samples",
    "vision": "pixels a side",
    "layer": "elements",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """Which form of a model to build. `None` where the model has no such choice."""

    attention: Attention | None = None
    use_cache: bool | None = None
    tiny: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The size of one input: requests, and tokens, audio samples or pixels a side of each."""

    batch: int
    size: int


Build = Callable[[Variant], nn.Module]
# (module, shape, generator) -> positional arguments on the CPU, floating point ones in fp32.
MakeInputs = Callable[[nn.Module, Shape, torch.Generator], tuple[Any, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """One model of the zoo.

    `build` returns the module on the device that is torch's current default, with any weights at
    all: the loader fills them. `parameter_count` is the published one; what `build` makes must
    agree within `parameter_tolerance_ratio` (the tests check each entry). `size` is the default
    length of one request: tokens of a text, samples of audio, pixels a side of an image;
    `tiny_size` replaces it in the tiny form. `paper_section` is None for what the paper does not
    have.
    """

    name: str
    family: Family
    description: str
    # Where the architecture comes from: class and configuration.
    source: str
    parameter_count: int
    build: Build
    make_inputs: MakeInputs
    size: int
    tiny_size: int
    paper_section: str | None = None
    # The model's name in the paper's published measurements, if it has one there. No two share one.
    paper_name: str | None = None
    # The shortest and the longest request that the model takes, if it has such a limit.
    min_size: int = 1
    max_size: int | None = None
    # Whether the model takes requests of its default size alone.
    fixed_size: bool = False
    parameter_tolerance_ratio: float = 1e-3
    # The default comes first; empty where the model has no attention to choose.
    attentions: tuple[Attention, ...] = ()
    has_cache: bool = False
    # Whether `size` is a length and not the pixels a side of an image.
    has_sequence: bool = True
    dtypes: tuple[Dtype, ...] = ("fp32", "fp16", "bf16")
    # Classes, linear in their parameters, that are scaled to give values of deviation 1 where
    # random weights would otherwise grow or starve.
    unit_layers: tuple[str, ...] = ()
    # What a reader of its results has to know: how it differs from what was published or expected.
    note: str = ""

    @property
    def sequence(self) -> int | None:
        """The default number of tokens or samples of one request; None for images."""
        return None if self.family == "vision" or not self.has_sequence else self.size

    @property
    def unit(self) -> str:
        """What `size` counts: tokens, samples, pixels a side."""
        return SIZE_UNITS["vision" if self.sequence is None else self.family]
