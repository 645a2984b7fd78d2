"""The image models of the zoo.

The surprising choice: ResNet-50 is the one of transformers, not of torchvision that the paper ran:
the layers, the stride in the 3x3 convolution and the parameter count are the same, and it needs no
further package.
"""

from ftax.models.huggingface import from_config
from ftax.models.inputs import make_images
from ftax.models.spec import ModelSpec

VISION_MODELS: tuple[ModelSpec, ...] = (
    ModelSpec(
        name="resnet-50",
        family="vision",
        description="ResNet-50 with its 1000-class head: 53 convolutions in 16 bottlenecks",
        source="transformers.ResNetForImageClassification, configuration of microsoft/resnet-50",
        paper_section="4",
        paper_name="resnet50",
        parameter_count=25_557_032,
        size=224,
        tiny_size=32,
        build=from_config(
            model="ResNetForImageClassification",
            config="ResNetConfig",
            settings={"num_labels": 1000},
            tiny={"embedding_size": 8, "hidden_sizes": [16, 32, 64, 128], "num_labels": 10},
        ),
        make_inputs=make_images,
    ),
)
