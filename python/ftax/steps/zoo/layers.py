"""Single layers to measure, with their sizes in their names: `layer-conv2d-64-o128-k3-s2-i56`.

A size is part of the name and not an option. So a grid of layers is a list of names, and whatever
compares, stores or plots models needs to know nothing of widths.

The grids are those of the paper's repository as they stand (JaredFern/Framework-Tax@7b6c711,
pytorch/config/models/templates), thousands of cells for the convolutions. Cut them with `only`
before a sweep.
"""

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import product

import torch
from torch import nn

from ftax.errors import InvalidArgumentError
from ftax.steps.inputs import make_normal
from ftax.steps.spec import MakeInputs, ModelSpec, Variant
from ftax.steps.zoo.convnets import InvertedBottleneck

# What the letters in a name stand for; the number without a letter is the width.
LETTERS = {
    "w": "width",
    "o": "output channels",
    "k": "kernel",
    "s": "stride",
    "i": "pixels a side",
    "e": "expansion",
    "h": "heads",
    "x": "layers",
}
_TINY_WIDTH, _TINY_HEAD, _TINY_LENGTH, _TINY_IMAGE = 32, 4, 8, 16

Sizes = Mapping[str, int]

_FEATURES = make_normal(lambda module, shape: (shape.batch, shape.size, module.input_width))
_SIGNALS = make_normal(lambda module, shape: (shape.batch, module.input_width, shape.size))
_PLANES = make_normal(
    lambda module, shape: (shape.batch, module.input_width, shape.size, shape.size)
)


class SelfAttention(nn.Module):
    """Query, key, value and output projections around the fused attention operator.

    torch.nn.MultiheadAttention calls, in inference, one closed operator that no model of the zoo
    uses.
    """

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


def _make_feed_forward(width: int, layers: int) -> nn.Sequential:
    """`layers` times a square linear layer and a ReLU."""
    modules: list[nn.Module] = []
    for _ in range(layers):
        modules += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*modules)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerType:
    """One kind of layer, which takes features (batch, sequence, width) unless it makes others.

    `sizes` are the letters that its names take, with their defaults; the output is as wide as the
    input unless a name says otherwise.
    """

    name: str
    description: str
    source: str
    sizes: Sizes
    build: Callable[[Sizes], nn.Module]
    make_inputs: MakeInputs = _FEATURES
    # The default length of one request; that of images is the size "i".
    length: int = 128


_TYPES = (
    LayerType(
        name="layer-feed-forward",
        description="linear layer and ReLU",
        source="torch.nn.Linear",
        sizes={"w": 768, "x": 1},
        build=lambda n: _make_feed_forward(n["w"], n["x"]),
    ),
    LayerType(
        name="layer-conv1d",
        description="1-D convolution, padded by half of its kernel",
        source="torch.nn.Conv1d",
        sizes={"w": 3, "k": 3, "s": 1},
        build=lambda n: nn.Conv1d(n["w"], n["w"], n["k"], n["s"], n["k"] // 2),
        make_inputs=_SIGNALS,
        length=1024,
    ),
    LayerType(
        name="layer-conv2d",
        description="2-D convolution without padding",
        source="torch.nn.Conv2d",
        sizes={"w": 64, "o": 64, "k": 3, "s": 1, "i": 56},
        build=lambda n: nn.Conv2d(n["w"], n["o"], n["k"], n["s"]),
        make_inputs=_PLANES,
    ),
    LayerType(
        name="layer-inverted-bottleneck",
        description="inverted bottleneck: 1x1, depthwise and 1x1 convolutions with batch norms",
        source="plain torch, after Sandler et al. (2018)",
        sizes={"w": 32, "o": 32, "k": 3, "s": 1, "e": 6, "i": 56},
        build=lambda n: InvertedBottleneck(n["w"], n["o"], n["k"], stride=n["s"], expansion=n["e"]),
        make_inputs=_PLANES,
    ),
    LayerType(
        name="layer-norm",
        description="layer norm",
        source="torch.nn.LayerNorm",
        sizes={"w": 768},
        build=lambda n: nn.LayerNorm(n["w"]),
    ),
    LayerType(
        name="layer-attention",
        description="multi-head self-attention with its four projections",
        source="plain torch around torch.nn.functional.scaled_dot_product_attention",
        sizes={"w": 256, "h": 4},
        build=lambda n: SelfAttention(n["w"], n["h"]),
    ),
    LayerType(
        name="layer-rnn",
        description="recurrent network with ReLU",
        source="torch.nn.RNN",
        sizes={"w": 512, "x": 1},
        build=lambda n: nn.RNN(n["w"], n["w"], n["x"], nonlinearity="relu", batch_first=True),
    ),
    LayerType(
        name="layer-lstm",
        description="long short-term memory network",
        source="torch.nn.LSTM",
        sizes={"w": 512, "x": 1},
        build=lambda n: nn.LSTM(n["w"], n["w"], n["x"], batch_first=True),
    ),
)
LAYER_TYPES: dict[str, LayerType] = {kind.name: kind for kind in _TYPES}


def parse_layer_name(name: str) -> ModelSpec | None:
    """The entry for a layer's name with its sizes, such as `layer-feed-forward-768-x4`.

    None for a name that no layer begins. Raises InvalidArgumentError for a size that the layer does
    not have, has twice, or cannot have.
    """
    begins = any(f"{name}-".startswith(f"{kind}-") for kind in LAYER_TYPES)
    return _make_spec(name) if begins else None


def layer_name(kind: str, **sizes: int) -> str:
    """`layer_name("layer-rnn", w=512, x=2)` is `layer-rnn-512-x2`."""
    return "-".join([kind, *(f"{'' if key == 'w' else key}{n}" for key, n in sizes.items())])


# Cached, so that a name has one entry.
@functools.cache
def _make_spec(name: str) -> ModelSpec:
    kind = next(k for k in _TYPES if f"{name}-".startswith(f"{k.name}-"))
    sizes = _read_sizes(name, kind)
    tiny = _shrink(sizes)
    side = sizes.get("i")

    def build(variant: Variant) -> nn.Module:
        chosen = tiny if variant.tiny else sizes
        module = kind.build(chosen)
        # What makes its inputs has to know it.
        module.input_width = chosen["w"]  # type: ignore[assignment]
        return module

    with torch.device("meta"):
        unfilled = kind.build(sizes)
    described = ", ".join(f"{LETTERS[letter]} {size}" for letter, size in sizes.items())
    return ModelSpec(
        name=name,
        family="layer",
        description=f"{kind.description} ({described})",
        source=kind.source,
        parameter_count=sum(weights.numel() for weights in unfilled.parameters()),
        build=build,
        make_inputs=kind.make_inputs,
        size=side or kind.length,
        tiny_size=min(_TINY_IMAGE, side) if side else _TINY_LENGTH,
        has_sequence=side is None,
    )


def _read_sizes(name: str, kind: LayerType) -> dict[str, int]:
    given: dict[str, int] = {}
    for part in name.removeprefix(kind.name).split("-")[1:]:
        found = re.fullmatch(r"([a-z]?)([1-9][0-9]{0,5})", part)
        letter = (found[1] or "w") if found else ""
        if found is None or letter not in kind.sizes or letter in given:
            forms = ", ".join(f"{'' if key == 'w' else key}<{LETTERS[key]}>" for key in kind.sizes)
            raise InvalidArgumentError(
                f"{name!r} has the part {part!r}: {kind.name} takes each of {forms} at most once, "
                f"for example {layer_name(kind.name, **kind.sizes)!r}"
            )
        given[letter] = int(found[2])
    sizes = {**kind.sizes, **given}
    if "o" in sizes and "o" not in given:
        sizes["o"] = sizes["w"]
    if sizes["w"] % sizes.get("h", 1):
        raise InvalidArgumentError(
            f"{name!r} has width {sizes['w']}, which {sizes['h']} heads do not divide: "
            "give a multiple"
        )
    if "i" in sizes and sizes["k"] > sizes["i"]:
        raise InvalidArgumentError(
            f"{name!r} has a kernel of {sizes['k']} on {sizes['i']} pixels a side: "
            "give at least as many pixels"
        )
    return sizes


def _shrink(sizes: Sizes) -> dict[str, int]:
    """The same layers with few channels."""
    limit = _TINY_HEAD * sizes["h"] if "h" in sizes else _TINY_WIDTH
    tiny = {**sizes, "w": min(sizes["w"], limit)}
    if "o" in sizes:
        # A residual stays one.
        same = sizes["o"] == sizes["w"]
        tiny["o"] = tiny["w"] if same else min(sizes["o"], _TINY_WIDTH // 2)
    return tiny


LAYER_MODELS: tuple[ModelSpec, ...] = tuple(_make_spec(kind.name) for kind in _TYPES)


_POWERS = tuple(2**i for i in range(14))
_WIDTHS = (1, 2, 4, 8, 16, 32, 64, 256, 512, 1024, 2048, 3072, 4096)
_CHANNELS = (32, 64, 128, 256, 512, 1024)
_CONVOLUTION = {
    "w": _CHANNELS,
    "o": _CHANNELS,
    "k": (1, 3),
    "s": (1, 2, 5),
    "i": (7, 14, 28, 56, 112, 224),
}
_RECURRENT = {"w": (512, 768, 1024, 2048, 4096), "x": (1, 2, 4)}


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerGrid:
    """The sizes of one kind of layer by their letters in its names, and the batches and lengths to
    run each at; None is the length that the name says."""

    sizes: Mapping[str, tuple[int, ...]]
    batches: tuple[int, ...]
    sequences: tuple[int | None, ...] = (None,)
    kind: str = ""

    @property
    def models(self) -> tuple[str, ...]:
        """The names of all sizes."""
        return tuple(
            layer_name(self.kind, **dict(zip(self.sizes, values, strict=True)))
            for values in product(*self.sizes.values())
        )


_TEMPLATES = {
    "layer-feed-forward": LayerGrid(
        sizes={"w": _WIDTHS, "x": (1, 2, 4, 8, 16)},
        batches=_POWERS[:7],
        sequences=_POWERS[:10],
    ),
    "layer-conv1d": LayerGrid(
        sizes={"w": (1, 3, 5), "k": (3, 5, 7, 9), "s": (1, 2, 5)},
        batches=_POWERS[:6],
        sequences=_WIDTHS,
    ),
    "layer-conv2d": LayerGrid(sizes=_CONVOLUTION, batches=_POWERS[:7]),
    "layer-inverted-bottleneck": LayerGrid(sizes=_CONVOLUTION, batches=_POWERS[:11]),
    "layer-norm": LayerGrid(sizes={"w": _POWERS}, batches=(1,), sequences=(128,)),
    "layer-attention": LayerGrid(
        sizes={"w": (16, 32, 64, 128, 256), "h": (1, 2, 4, 8, 16)},
        batches=(1,),
        sequences=_POWERS[:11],
    ),
    "layer-rnn": LayerGrid(sizes=_RECURRENT, batches=_POWERS[:5], sequences=_POWERS[:8]),
    "layer-lstm": LayerGrid(sizes=_RECURRENT, batches=_POWERS[:5], sequences=_POWERS[:8]),
}


def make_layer_grid(kind: str, only: Mapping[str, tuple[int, ...]] | None = None) -> LayerGrid:
    """The original's grid for `kind`, such as "layer-conv2d".

    `only` gives other values for some sizes, by their letter in the names: `{"w": (64,)}` has one
    width. Raises InvalidArgumentError for an unknown kind or letter.
    """
    if kind not in _TEMPLATES:
        raise InvalidArgumentError(
            f"there is no layer {kind!r}: give one of {', '.join(LAYER_TYPES)}"
        )
    template, only = _TEMPLATES[kind], only or {}
    for letter in only:
        if letter not in template.sizes:
            takes = ", ".join(f"{key} ({LETTERS[key]})" for key in template.sizes)
            raise InvalidArgumentError(
                f"only has {letter!r}, but the grid of {kind} has {takes}: give one of these"
            )
    return replace(template, kind=kind, sizes={**template.sizes, **only})
