"""Convolutional networks that the transformers library does not have: in plain torch, or from
torchvision where that is installed.

Most are written from their papers' tables instead of taken from torchvision. The paper's Figure 12
needs them, and torchvision has to match torch release by release. Layers, parameters and
multiply-accumulates are those of torchvision (EfficientNet-Lite: of timm).
"""

import importlib
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import nn

from ftax.errors import UnavailableError
from ftax.steps.spec import Build, Variant


class Stage(NamedTuple):
    """Blocks of one shape in a row; only the first has the stride."""

    kernel: int
    stride: int
    expansion: int
    channels: int
    repeats: int


MNASNET_STAGES = (
    Stage(3, 1, 1, 16, 1),
    Stage(3, 2, 3, 24, 3),
    Stage(5, 2, 3, 40, 3),
    Stage(5, 2, 6, 80, 3),
    Stage(3, 1, 6, 96, 2),
    Stage(5, 2, 6, 192, 4),
    Stage(3, 1, 6, 320, 1),
)
# EfficientNet-B0 with 1.1 times the depth, except in the first and the last stage.
EFFICIENTNET_LITE1_STAGES = (
    Stage(3, 1, 1, 16, 1),
    Stage(3, 2, 6, 24, 3),
    Stage(5, 2, 6, 40, 3),
    Stage(3, 2, 6, 80, 4),
    Stage(5, 1, 6, 112, 4),
    Stage(5, 2, 6, 192, 5),
    Stage(3, 1, 6, 320, 1),
)
# (channels of a group, its convolutions); a pooling follows each group.
_VGG16_GROUPS = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))
# (squeeze, expand) channels of each fire module; a pooling precedes some.
_SQUEEZENET_FIRES = (
    *((16, 64), (16, 64), (32, 128), (32, 128)),
    *((48, 192), (48, 192), (64, 256), (64, 256)),
)
_SQUEEZENET_POOLS = (0, 3, 7)
_SHUFFLENET_REPEATS = (4, 8, 4)  # of the units of each stage


def from_network(
    network: Callable[..., nn.Module], *, tiny: Mapping[str, Any], **settings: Any
) -> Build:
    """A `ModelSpec.build` that calls `network(**settings)`, with `tiny` on top in the tiny form."""

    def build(variant: Variant) -> nn.Module:
        return network(**{**settings, **(tiny if variant.tiny else {})})

    return build


def from_torchvision(model: str, *, tiny: Mapping[str, Any], **settings: Any) -> Build:
    """`from_network` of `torchvision.models.<model>`.

    The build raises UnavailableError where torchvision does not import: the entry is listed all the
    same, so that a sweep says what is missing instead of leaving the row out.
    """

    def network(**chosen: Any) -> nn.Module:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                models: Any = importlib.import_module("torchvision.models")
            # A torchvision built for another torch fails on its own operators: no ImportError.
            except (ImportError, RuntimeError, OSError) as error:
                raise UnavailableError(
                    f"this model needs the torchvision package, which does not import ({error}): "
                    "pip install the torchvision that belongs to your torch"
                ) from error
            built: nn.Module = getattr(models, model)(**chosen)
        return built

    return from_network(network, tiny=tiny, **settings)


def make_conv_block(
    inner: int,
    outer: int,
    kernel: int,
    *,
    stride: int = 1,
    groups: int = 1,
    activation: Callable[..., nn.Module] | None = nn.ReLU,
) -> nn.Sequential:
    """Convolution without bias, batch norm, activation; stride 1 keeps the size of the image."""
    padding = kernel // 2
    layers: list[nn.Module] = [
        nn.Conv2d(inner, outer, kernel, stride, padding, groups=groups, bias=False),
        nn.BatchNorm2d(outer),
    ]
    if activation is not None:
        layers.append(activation(inplace=True))
    return nn.Sequential(*layers)


class InvertedBottleneck(nn.Module):
    """1x1 expansion, depthwise convolution, 1x1 projection without activation; a residual where
    the shapes allow it (Sandler et al. 2018)."""

    def __init__(
        self,
        inner: int,
        outer: int,
        kernel: int,
        *,
        stride: int = 1,
        expansion: int = 6,
        activation: Callable[..., nn.Module] = nn.ReLU6,
    ) -> None:
        super().__init__()
        wide = inner * expansion
        layers = [] if expansion == 1 else [make_conv_block(inner, wide, 1, activation=activation)]
        self.layers = nn.Sequential(
            *layers,
            make_conv_block(wide, wide, kernel, stride=stride, groups=wide, activation=activation),
            make_conv_block(wide, outer, 1, activation=None),
        )
        self.is_residual = stride == 1 and inner == outer

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Features (batch, outer, side / stride, side / stride)."""
        features: torch.Tensor = self.layers(images)
        return images + features if self.is_residual else features


class InvertedBottleneckNet(nn.Module):
    """MnasNet (Tan et al. 2019) and EfficientNet-Lite: a stem, stages of blocks, a 1x1 head."""

    def __init__(
        self,
        *,
        stages: tuple[Stage, ...],
        activation: Callable[..., nn.Module],
        width: float = 1.0,
        classes: int = 1000,
    ) -> None:
        super().__init__()
        inner = scale(32, width)
        blocks: list[nn.Module] = [make_conv_block(3, inner, 3, stride=2, activation=activation)]
        for stage in stages:
            outer = scale(stage.channels, width)
            for place in range(stage.repeats):
                block = InvertedBottleneck(
                    inner,
                    outer,
                    stage.kernel,
                    stride=stage.stride if place == 0 else 1,
                    expansion=stage.expansion,
                    activation=activation,
                )
                blocks.append(block)
                inner = outer
        head = scale(1280, width)
        blocks.append(make_conv_block(inner, head, 1, activation=activation))
        self.features = nn.Sequential(*blocks)
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(head, classes))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Logits (batch, classes)."""
        logits: torch.Tensor = self.classifier(self.features(images).mean((2, 3)))
        return logits


class ShuffleUnit(nn.Module):
    """Half of the channels pass, or a second branch strides; then both halves are interleaved."""

    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        half = outer // 2
        self.splits = stride == 1
        self.shortcut = (
            None
            if self.splits
            else nn.Sequential(
                make_conv_block(inner, inner, 3, stride=stride, groups=inner, activation=None),
                make_conv_block(inner, half, 1),
            )
        )
        self.branch = nn.Sequential(
            make_conv_block(half if self.splits else inner, half, 1),
            make_conv_block(half, half, 3, stride=stride, groups=half, activation=None),
            make_conv_block(half, half, 1),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Features (batch, outer, side / stride, side / stride)."""
        if self.shortcut is None:
            left, right = images.chunk(2, dim=1)
        else:
            left, right = self.shortcut(images), images
        joined = torch.cat([left, self.branch(right)], dim=1)
        batch, channels, height, width = joined.shape
        shuffled = joined.view(batch, 2, channels // 2, height, width).transpose(1, 2)
        return shuffled.reshape(batch, channels, height, width)


class ShuffleNetV2(nn.Module):
    """ShuffleNetV2 (Ma et al. 2018); `channels` of the stem, of the three stages, and of the head.

    They follow no rule (24, 116, 232, 464), so that a width factor would not give the published
    network.
    """

    def __init__(self, *, channels: tuple[int, int, int, int, int], classes: int = 1000) -> None:
        super().__init__()
        stem, *stages, head = channels
        units: list[nn.Module] = []
        inner = stem
        for outer, repeats in zip(stages, _SHUFFLENET_REPEATS, strict=True):
            for place in range(repeats):
                units.append(ShuffleUnit(inner, outer, 2 if place == 0 else 1))
                inner = outer
        self.features = nn.Sequential(
            make_conv_block(3, stem, 3, stride=2),
            nn.MaxPool2d(3, 2, 1),
            *units,
            make_conv_block(inner, head, 1),
        )
        self.classifier = nn.Linear(head, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Logits (batch, classes)."""
        logits: torch.Tensor = self.classifier(self.features(images).mean((2, 3)))
        return logits


class Fire(nn.Module):
    """A 1x1 squeeze, then a 1x1 and a 3x3 expansion side by side."""

    def __init__(self, inner: int, squeeze: int, expand: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(inner, squeeze, 1)
        self.squeeze_activation = nn.ReLU(inplace=True)
        self.narrow = nn.Conv2d(squeeze, expand, 1)
        self.narrow_activation = nn.ReLU(inplace=True)
        self.broad = nn.Conv2d(squeeze, expand, 3, padding=1)
        self.broad_activation = nn.ReLU(inplace=True)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Features (batch, 2 * expand, side, side)."""
        squeezed = self.squeeze_activation(self.squeeze(images))
        narrow = self.narrow_activation(self.narrow(squeezed))
        return torch.cat([narrow, self.broad_activation(self.broad(squeezed))], 1)


def make_squeezenet(*, width: float = 1.0, classes: int = 1000) -> nn.Sequential:
    """SqueezeNet 1.0 (Iandola et al. 2016)."""
    inner = scale(96, width)
    layers: list[nn.Module] = [nn.Conv2d(3, inner, 7, 2), nn.ReLU(inplace=True)]
    for place, (squeeze, expand) in enumerate(_SQUEEZENET_FIRES):
        if place in _SQUEEZENET_POOLS:
            layers.append(nn.MaxPool2d(3, 2, ceil_mode=True))
        layers.append(Fire(inner, scale(squeeze, width), scale(expand, width)))
        inner = 2 * scale(expand, width)
    layers += [nn.Dropout(0.5), nn.Conv2d(inner, classes, 1), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


def make_alexnet(*, width: float = 1.0, classes: int = 1000) -> nn.Sequential:
    """AlexNet in its one-column form (Krizhevsky 2014)."""
    first, second, third, last, hidden = (scale(c, width) for c in (64, 192, 384, 256, 4096))
    return nn.Sequential(
        *(nn.Conv2d(3, first, 11, 4, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2)),
        *(nn.Conv2d(first, second, 5, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2)),
        *(nn.Conv2d(second, third, 3, padding=1), nn.ReLU(inplace=True)),
        *(nn.Conv2d(third, last, 3, padding=1), nn.ReLU(inplace=True)),
        *(nn.Conv2d(last, last, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2)),
        *(nn.AdaptiveAvgPool2d(6), nn.Flatten()),
        *(nn.Dropout(0.5), nn.Linear(last * 36, hidden), nn.ReLU(inplace=True)),
        *(nn.Dropout(0.5), nn.Linear(hidden, hidden), nn.ReLU(inplace=True)),
        nn.Linear(hidden, classes),
    )


def make_vgg16(*, width: float = 1.0, classes: int = 1000) -> nn.Sequential:
    """VGG-16 without batch norms (Simonyan and Zisserman 2015)."""
    inner, hidden = 3, scale(4096, width)
    layers: list[nn.Module] = []
    for channels, convolutions in _VGG16_GROUPS:
        for _ in range(convolutions):
            outer = scale(channels, width)
            layers += [nn.Conv2d(inner, outer, 3, padding=1), nn.ReLU(inplace=True)]
            inner = outer
        layers.append(nn.MaxPool2d(2))
    layers += [nn.AdaptiveAvgPool2d(7), nn.Flatten()]
    for before in (inner * 49, hidden):
        layers += [nn.Linear(before, hidden), nn.ReLU(inplace=True), nn.Dropout(0.5)]
    return nn.Sequential(*layers, nn.Linear(hidden, classes))


def scale(channels: int, width: float) -> int:
    """`width` times `channels`, down to a multiple of 4 and at least 4."""
    return max(4, int(channels * width) // 4 * 4)
