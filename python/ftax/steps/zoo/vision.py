"""The image models of the zoo.

What transformers has is taken from there, not from torchvision that the paper ran: layers, strides
and parameter counts are the same, and it needs no further package.
"""

from ftax.steps.zoo.convnet_entries import CONVNETS
from ftax.steps.zoo.entries import BOTH, classifier
from ftax.steps.zoo.resnets import RESNETS

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
