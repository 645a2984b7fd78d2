"""ShuffleNetV2 (Ma et al. 2018) in plain torch.

The surprising choice: its channels are given stage by stage. They follow no rule (24, 116, 232,
464), so that a width factor would not give the published network.
"""

import torch
from torch import nn

from ftax.steps.zoo.convnets import make_conv_block

_REPEATS = (4, 8, 4)


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
    """`channels` are those of the stem, of the three stages, and of the head."""

    def __init__(self, *, channels: tuple[int, int, int, int, int], classes: int = 1000) -> None:
        super().__init__()
        stem, *stages, head = channels
        units: list[nn.Module] = []
        inner = stem
        for outer, repeats in zip(stages, _REPEATS, strict=True):
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
