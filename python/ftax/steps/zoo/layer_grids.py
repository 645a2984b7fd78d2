"""The sizes at which the paper's repository ran its single layers.

The surprising choice: they are its templates as they stand (JaredFern/Framework-Tax@7b6c711,
pytorch/config/models/templates), thousands of cells for the convolutions. Cut them with `only`
before a sweep.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

from ftax.errors import InvalidArgumentError
from ftax.steps.zoo.layers import LAYER_TYPES, LETTERS, layer_name

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
    """Names of layers, and the batches and lengths to run each at; None is what the name says."""

    models: tuple[str, ...]
    batches: tuple[int, ...]
    sequences: tuple[int | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Template:
    sizes: Mapping[str, tuple[int, ...]]
    batches: tuple[int, ...]
    sequences: tuple[int | None, ...] = (None,)


_TEMPLATES = {
    "layer-feed-forward": _Template(
        sizes={"w": _WIDTHS, "x": (1, 2, 4, 8, 16)},
        batches=_POWERS[:7],
        sequences=_POWERS[:10],
    ),
    "layer-conv1d": _Template(
        sizes={"w": (1, 3, 5), "k": (3, 5, 7, 9), "s": (1, 2, 5)},
        batches=_POWERS[:6],
        sequences=_WIDTHS,
    ),
    "layer-conv2d": _Template(sizes=_CONVOLUTION, batches=_POWERS[:7]),
    "layer-inverted-bottleneck": _Template(sizes=_CONVOLUTION, batches=_POWERS[:11]),
    "layer-norm": _Template(sizes={"w": _POWERS}, batches=(1,), sequences=(128,)),
    "layer-attention": _Template(
        sizes={"w": (16, 32, 64, 128, 256), "h": (1, 2, 4, 8, 16)},
        batches=(1,),
        sequences=_POWERS[:11],
    ),
    "layer-rnn": _Template(sizes=_RECURRENT, batches=_POWERS[:5], sequences=_POWERS[:8]),
    "layer-lstm": _Template(sizes=_RECURRENT, batches=_POWERS[:5], sequences=_POWERS[:8]),
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
    axes = {letter: only.get(letter, values) for letter, values in template.sizes.items()}
    names = tuple(
        layer_name(kind, **dict(zip(axes, values, strict=True)))
        for values in product(*axes.values())
    )
    return LayerGrid(models=names, batches=template.batches, sequences=template.sequences)
