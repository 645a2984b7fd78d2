"""The residual networks of the zoo.

The wide ResNet and the ResNeXt are the ResNet-50 of transformers with other blocks put in. So they
run its Python code and its operators in its order, and a difference in latency is one of shapes
alone, which is what the paper's Figures 11 and 12 are about.
"""

from typing import Any

from torch import nn

from ftax.steps.spec import Build, ModelSpec, Variant
from ftax.steps.zoo.entries import classifier, from_classifier

_TINY = {"embedding_size": 8, "hidden_sizes": [16, 32, 64, 128]}


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


def _resnet(name: str, description: str, layers: int, **own: Any) -> ModelSpec:
    form = f"configuration of microsoft/resnet-{layers}"
    return classifier(name, description, "ResNet", form, **{"tiny": _TINY, **own})


def _wide(name: str, description: str, form: str, *, groups: int = 1, **own: Any) -> ModelSpec:
    form = f"configuration of microsoft/resnet-50, bottlenecks with reduction 2{form}"
    build = _with_wide_bottlenecks(groups=groups)
    return classifier(name, description, "ResNet", form, tiny={}, build=build, **own)


RESNETS = (
    _resnet(
        "resnet-18",
        "ResNet-18 with its 1000-class head: 20 convolutions in 8 basic blocks",
        18,
        paper_name="resnet18",
        parameter_count=11_689_512,
        settings={
            "layer_type": "basic",
            "depths": [2, 2, 2, 2],
            "hidden_sizes": [64, 128, 256, 512],
        },
        # The first stage is as wide as the stem, so that it has no projection.
        tiny={"embedding_size": 8, "hidden_sizes": [8, 16, 32, 64]},
    ),
    _resnet(
        "resnet-50",
        "ResNet-50 with its 1000-class head: 53 convolutions in 16 bottlenecks",
        50,
        paper_name="resnet50",
        parameter_count=25_557_032,
    ),
    _resnet(
        "resnet-101",
        "ResNet-101 with its 1000-class head: 104 convolutions in 33 bottlenecks",
        101,
        paper_name="resnet101",
        parameter_count=44_549_160,
        settings={"depths": [3, 4, 23, 3]},
    ),
    _resnet(
        "resnet-152",
        "ResNet-152 with its 1000-class head: 155 convolutions in 50 bottlenecks",
        152,
        paper_name="resnet152",
        parameter_count=60_192_808,
        settings={"depths": [3, 8, 36, 3]},
    ),
    _wide(
        "wide-resnet-50-2",
        "Wide ResNet-50-2: ResNet-50 with bottlenecks of twice the width",
        "",
        paper_name="wide_resnet50_2",
        parameter_count=68_883_240,
    ),
    _wide(
        "resnext-50-32x4d",
        "ResNeXt-50 32x4d: ResNet-50 with wider bottlenecks in 32 groups",
        " and 32 groups",
        groups=32,
        paper_name="resnext50_32x4d",
        parameter_count=25_028_904,
    ),
)
