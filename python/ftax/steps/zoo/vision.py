"""The image models of the zoo.

What transformers has is taken from there, not from torchvision that the paper ran: layers, strides
and parameter counts are the same, and it needs no further package. Where the paper's data name a
family only, the entry is the member whose multiply-accumulates its data have: DenseNet-161,
EfficientNetV2-M and EfficientNet-Lite1.

The wide ResNet and the ResNeXt are the ResNet-50 of transformers with other blocks put in. So they
run its Python code and its operators in its order, and a difference in latency is one of shapes
alone, which is what the paper's Figures 11 and 12 are about.
"""

from typing import Any

from torch import nn

from ftax.steps.spec import Build, ModelSpec, Variant
from ftax.steps.zoo.convnets import (
    EFFICIENTNET_LITE1_STAGES,
    MNASNET_STAGES,
    InvertedBottleneckNet,
    ShuffleNetV2,
    from_network,
    from_torchvision,
    make_alexnet,
    make_squeezenet,
    make_vgg16,
)
from ftax.steps.zoo.entries import BOTH, classifier, from_classifier, image_model

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

_NARROW = {"width": 0.125, "classes": 10}
# Any narrower, and two stages of inverted bottlenecks would be equally wide, with a residual that
# the full size lacks, and all ReLUs of a squeeze might be off.
_HALF_NARROW = {"width": 0.25, "classes": 10}
_FEW_CLASSES = {"num_classes": 10}

_PLAIN = (
    image_model(
        "alexnet",
        "AlexNet in one column: 5 convolutions and 3 linear layers",
        source="plain torch, after Krizhevsky (2014), as in torchvision",
        paper_name="alexnet",
        parameter_count=61_100_840,
        # Its strides leave nothing of fewer than 63 pixels.
        tiny_size=64,
        build=from_network(make_alexnet, tiny=_NARROW),
    ),
    image_model(
        "vgg16",
        "VGG-16 without batch norms: 13 convolutions and 3 linear layers",
        source="plain torch, after Simonyan and Zisserman (2015), as in torchvision",
        paper_name="vgg16",
        parameter_count=138_357_544,
        build=from_network(make_vgg16, tiny=_NARROW),
    ),
    image_model(
        "squeezenet",
        "SqueezeNet 1.0: 8 fire modules",
        source="plain torch, after Iandola et al. (2016), as in torchvision",
        paper_name="squeezenet",
        parameter_count=1_248_424,
        build=from_network(make_squeezenet, tiny=_HALF_NARROW),
    ),
    image_model(
        "mnasnet",
        "MnasNet 1.0: 17 inverted bottlenecks",
        source="plain torch, after Tan et al. (2019), as in torchvision",
        paper_name="mnasnet",
        parameter_count=4_383_312,
        build=from_network(
            InvertedBottleneckNet, stages=MNASNET_STAGES, activation=nn.ReLU, tiny=_HALF_NARROW
        ),
    ),
    image_model(
        "shufflenet-v2",
        "ShuffleNetV2 x1.0: 16 units of two branches",
        source="plain torch, after Ma et al. (2018), as in torchvision",
        paper_name="shufflenet",
        parameter_count=2_278_604,
        build=from_network(
            ShuffleNetV2,
            channels=(24, 116, 232, 464, 1024),
            tiny={"channels": (8, 16, 32, 64, 128), "classes": 10},
        ),
    ),
    image_model(
        "efficientnet-lite1",
        "EfficientNet-Lite1: 21 inverted bottlenecks without squeeze-and-excitation",
        source="plain torch, after google's efficientnet-lite, as in timm",
        paper_name="efficientnet_lite",
        parameter_count=5_416_680,
        build=from_network(
            InvertedBottleneckNet,
            stages=EFFICIENTNET_LITE1_STAGES,
            activation=nn.ReLU6,
            tiny=_HALF_NARROW,
        ),
    ),
)

_DENSENET_TINY = {"growth_rate": 8, "num_init_features": 16, **_FEW_CLASSES}

# Most of these have no narrow form: their tiny one has small images and few classes.
_TORCHVISION = (
    image_model(
        "densenet121",
        "DenseNet-121: 58 dense layers",
        source="torchvision.models.DenseNet with growth 32",
        parameter_count=7_978_856,
        build=from_torchvision("DenseNet", tiny=_DENSENET_TINY),
    ),
    image_model(
        "densenet161",
        "DenseNet-161: 78 dense layers",
        source="torchvision.models.DenseNet with growth 48",
        paper_name="densenet",
        parameter_count=28_681_000,
        build=from_torchvision(
            "DenseNet",
            growth_rate=48,
            block_config=(6, 12, 36, 24),
            num_init_features=96,
            tiny=_DENSENET_TINY,
        ),
    ),
    image_model(
        "inception-v3",
        "Inception v3 without its auxiliary head: 94 convolutions",
        source="torchvision.models.Inception3",
        paper_name="inception",
        note="images of 224 pixels, as in the paper's data; its authors used 299",
        parameter_count=23_834_568,
        # Its strides leave nothing of fewer than 75 pixels.
        tiny_size=80,
        build=from_torchvision(
            "Inception3", aux_logits=False, init_weights=False, tiny=_FEW_CLASSES
        ),
    ),
    image_model(
        "googlenet",
        "GoogLeNet without its auxiliary heads: 57 convolutions",
        source="torchvision.models.GoogLeNet",
        paper_name="googlenet",
        parameter_count=6_624_904,
        build=from_torchvision(
            "GoogLeNet", aux_logits=False, init_weights=False, tiny=_FEW_CLASSES
        ),
    ),
    image_model(
        "efficientnet-v2-m",
        "EfficientNetV2-M: 57 blocks, the early ones with the expansion fused",
        source="torchvision.models.efficientnet_v2_m",
        paper_name="efficientnet",
        parameter_count=54_139_356,
        build=from_torchvision("efficientnet_v2_m", tiny=_FEW_CLASSES),
    ),
)

CONVNETS = (*_PLAIN, *_TORCHVISION)


_TINY_VIT = {
    "image_size": 64,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}

_OTHERS = (
    classifier(
        "mobilenet-v2",
        "MobileNetV2: 17 inverted bottlenecks",
        "MobileNetV2",
        "without TensorFlow's padding",
        paper_name="mobilenet_v2",
        parameter_count=3_504_872,
        # That padding would be an operator of its own before each convolution.
        settings={"tf_padding": False},
        tiny={"depth_multiplier": 0.25},
    ),
    classifier(
        "efficientnet-b0",
        "EfficientNet-B0: 16 inverted bottlenecks with squeeze-and-excitation",
        "EfficientNet",
        "configuration of google/efficientnet-b0",
        parameter_count=5_288_548,
        settings={
            "width_coefficient": 1.0,
            "depth_coefficient": 1.0,
            "hidden_dim": 1280,
            "depthwise_padding": [16],
        },
        tiny={"width_coefficient": 0.25, "hidden_dim": 320},
    ),
    classifier(
        "vit-b-16",
        "ViT-B/16: 12 layers of width 768 on 196 patches and a class token",
        "ViT",
        "configuration of google/vit-base-patch16-224",
        parameter_count=86_567_656,
        tiny_size=64,
        attentions=BOTH,
        settings={"patch_size": 16},
        tiny=_TINY_VIT,
    ),
    classifier(
        "vit-b-32",
        "ViT-B/32: 12 layers of width 768 on 49 patches and a class token",
        "ViT",
        "with patches of 32 pixels",
        paper_name="vit32",
        parameter_count=88_224_232,
        tiny_size=64,
        attentions=BOTH,
        settings={"patch_size": 32},
        tiny=_TINY_VIT,
    ),
    classifier(
        "swin-t",
        "Swin-T: 12 layers of attention in windows of 7x7 patches",
        "Swin",
        "configuration of microsoft/swin-tiny-patch4-window7-224",
        parameter_count=28_288_354,
        # As many stages of shifted windows as with 224 pixels and windows of 7.
        tiny_size=64,
        tiny={"image_size": 64, "window_size": 2, "embed_dim": 24},
    ),
    classifier(
        "regnet-y-400mf",
        "RegNetY-400MF: 16 blocks of grouped convolutions with squeeze-and-excitation",
        "RegNet",
        "configuration of facebook/regnet-y-004",
        parameter_count=4_344_144,
        settings={
            "depths": [1, 3, 6, 6],
            "hidden_sizes": [48, 104, 208, 440],
            "groups_width": 8,
        },
        # Fewer classes would have larger weights, and logits beyond those of other models.
        tiny={"embedding_size": 16, "hidden_sizes": [24, 32, 40, 48], "num_labels": 100},
    ),
    classifier(
        "convnext-t",
        "ConvNeXt-T: 18 blocks of depthwise 7x7 convolutions",
        "ConvNext",
        "configuration of facebook/convnext-tiny-224",
        parameter_count=28_589_128,
        tiny={"hidden_sizes": [8, 16, 32, 64]},
    ),
)

VISION_MODELS = (*RESNETS, *_OTHERS, *CONVNETS)
