"""What the entries of all image models have in common.

The surprising choice: each request is 224 pixels a side, Inception's too. Its authors used 299; the
multiply-accumulates in the paper's data are those of 224.
"""

from collections.abc import Mapping
from typing import Any

from ftax.steps.inputs import make_images
from ftax.steps.spec import Attention, Build, ModelSpec
from ftax.steps.zoo.huggingface import from_config


def image_model(
    name: str,
    description: str,
    *,
    source: str,
    parameter_count: int,
    build: Build,
    paper_name: str | None = None,
    tiny_size: int = 32,
    attentions: tuple[Attention, ...] = (),
    note: str = "",
) -> ModelSpec:
    """An entry of the zoo that takes images (batch, 3, 224, 224)."""
    return ModelSpec(
        name=name,
        family="vision",
        description=description,
        source=source,
        paper_section="4" if paper_name else None,
        paper_name=paper_name,
        parameter_count=parameter_count,
        size=224,
        tiny_size=tiny_size,
        attentions=attentions,
        build=build,
        make_inputs=make_images,
        note=note,
    )


def from_classifier(
    architecture: str, *, settings: Mapping[str, Any] | None = None, tiny: Mapping[str, Any]
) -> Build:
    """Builds `transformers.<architecture>ForImageClassification` with 1000 classes, 10 if tiny."""
    return from_config(
        model=f"{architecture}ForImageClassification",
        config=f"{architecture}Config",
        settings={"num_labels": 1000, **(settings or {})},
        tiny={"num_labels": 10, **tiny},
    )
