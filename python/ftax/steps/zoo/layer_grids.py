"""The sizes at which the paper's repository ran its single layers.

They are its templates as they stand (JaredFern/Framework-Tax@7b6c711,
pytorch/config/models/templates), thousands of cells for the convolutions. Cut them with `only`
before a sweep.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
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
