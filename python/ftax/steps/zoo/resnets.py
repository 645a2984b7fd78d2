"""The residual networks of the zoo.

The surprising choice: the wide ResNet and the ResNeXt are the ResNet-50 of transformers with other
blocks put in. So they run its Python code and its operators in its order, and a difference in
latency is one of shapes alone, which is what the paper's Figures 11 and 12 are about.
"""

from typing import Any

from torch import nn

from ftax.steps.spec import Build, Variant
from ftax.steps.zoo.image_entry import from_classifier, image_model

_SOURCE = "transformers.ResNetForImageClassification, configuration of microsoft/resnet-"
_TINY = {"embedding_size": 8, "hidden_sizes": [16, 32, 64, 128]}


def _from_resnet(*depths: int) -> Build:
    return from_classifier("ResNet", settings={"depths": list(depths)}, tiny=_TINY)


def _with_wide_bottlenecks(*, groups: int = 1) -> Build:
    """ResNet-50 whose bottlenecks keep half of the channels instead of a quarter."""
    tiny = {**_TINY, "hidden_sizes": [64, 128, 256, 512]} if groups > 1 else _TINY
    build_plain = from_classifier("ResNet", tiny=tiny)

    def build(variant: Variant) -> nn.Module:
        module: Any = build_plain(variant)
        for stage in module.resnet.encoder.stages:
            for place, block in enumerate(stage.layers):
                stage.layers[place] = _widen(block, groups)
        built: nn.Module = module
        return built

    return build


def _widen(block: Any, groups: int) -> Any:
    first, middle, last = (layer.convolution for layer in block.layer)
    outer, stride = last.out_channels, middle.stride[0]
    wide = type(block)(first.in_channels, outer, stride=stride, reduction=2)
    if groups > 1:
        wide.layer[1].convolution = nn.Conv2d(
            outer // 2, outer // 2, 3, stride, 1, groups=groups, bias=False
        )
    return wide


RESNETS = (
    image_model(
        "resnet-18",
        "ResNet-18 with its 1000-class head: 20 convolutions in 8 basic blocks",
        source=f"{_SOURCE}18",
        paper_name="resnet18",
        parameter_count=11_689_512,
        build=from_classifier(
            "ResNet",
            settings={
                "layer_type": "basic",
                "depths": [2, 2, 2, 2],
                "hidden_sizes": [64, 128, 256, 512],
            },
            # The first stage is as wide as the stem, so that it has no projection.
            tiny={"embedding_size": 8, "hidden_sizes": [8, 16, 32, 64]},
        ),
    ),
    image_model(
        "resnet-50",
        "ResNet-50 with its 1000-class head: 53 convolutions in 16 bottlenecks",
        source=f"{_SOURCE}50",
        paper_name="resnet50",
        parameter_count=25_557_032,
        build=_from_resnet(3, 4, 6, 3),
    ),
    image_model(
        "resnet-101",
        "ResNet-101 with its 1000-class head: 104 convolutions in 33 bottlenecks",
        source=f"{_SOURCE}101",
        paper_name="resnet101",
        parameter_count=44_549_160,
        build=_from_resnet(3, 4, 23, 3),
    ),
    image_model(
        "resnet-152",
        "ResNet-152 with its 1000-class head: 155 convolutions in 50 bottlenecks",
        source=f"{_SOURCE}152",
        paper_name="resnet152",
        parameter_count=60_192_808,
        build=_from_resnet(3, 8, 36, 3),
    ),
    image_model(
        "wide-resnet-50-2",
        "Wide ResNet-50-2: ResNet-50 with bottlenecks of twice the width",
        source=f"{_SOURCE}50, bottlenecks with reduction 2",
        paper_name="wide_resnet50_2",
        parameter_count=68_883_240,
        build=_with_wide_bottlenecks(),
    ),
    image_model(
        "resnext-50-32x4d",
        "ResNeXt-50 32x4d: ResNet-50 with wider bottlenecks in 32 groups",
        source=f"{_SOURCE}50, bottlenecks with reduction 2 and 32 groups",
        paper_name="resnext50_32x4d",
        parameter_count=25_028_904,
        build=_with_wide_bottlenecks(groups=32),
    ),
)
