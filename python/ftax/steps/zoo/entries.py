"""What the entries of a family have in common, so that each says only what is its own.

Each image is 224 pixels a side, Inception's too. Its authors used 299; the multiply-accumulates in
the paper's data are those of 224.
"""

from collections.abc import Mapping
from typing import Any

from ftax.steps.inputs import make_images, make_token_ids, make_waves
from ftax.steps.spec import Attention, Build, ModelSpec
from ftax.steps.zoo.huggingface import from_config

Settings = Mapping[str, Any]

BOTH: tuple[Attention, ...] = ("sdpa", "eager")
# The widths of a tiny encoder, in the words that most configurations share.
TINY_ENCODER: Settings = {
    "hidden_size": 32,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "vocab_size": 1000,
}
# 2 s of sound at 16 kHz, as in the paper. The tiny form hears 0.2 s: the convolutions in front, of
# kernels 10, 3, 3, 3, 3, 2, 2 and strides 5, then 2s, need 400 samples for their first value.
_SOUND = {"size": 32_000, "tiny_size": 3200, "min_size": 400}
_TINY_SOUND = {
    "conv_dim": [16] * 7,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_conv_pos_embedding_groups": 4,
}


# In training these models leave out layers and mask places at random, each time others: no two of
# their steps would do the same work.
_STEADY = {"layerdrop": 0.0, "apply_spec_augment": False}


def text_model(
    name: str,
    description: str,
    architecture: str = "",
    form: str = "",
    *,
    settings: Settings | None = None,
    tiny: Settings = TINY_ENCODER,
    **own: Any,
) -> ModelSpec:
    """An entry that takes token ids, 128 of at most 512 unless `own` fields say otherwise.

    It is `transformers.<architecture>` with `settings`; `form` says which that makes it, and `tiny`
    are those that the tiny form changes on top.
    """
    common = {
        "family": "text",
        "source": f"transformers.{architecture}, {form}",
        "paper_section": "4" if "paper_name" in own else None,
        "size": 128,
        "max_size": 512,
        "tiny_size": 8,
        "build": from_config(architecture, settings, tiny),
        "make_inputs": make_token_ids,
    }
    return ModelSpec(name=name, description=description, **{**common, **own})


def speech_model(
    name: str, description: str, architecture: str, form: str, **own: Any
) -> ModelSpec:
    """An entry that takes sound, with the arguments of `text_model`."""
    fields = {
        "family": "speech", "make_inputs": make_waves, "max_size": None, "settings": _STEADY,
        **_SOUND, **own,
    }  # fmt: skip
    return text_model(name, description, architecture, form, tiny=_TINY_SOUND, **fields)


def image_model(name: str, description: str, **own: Any) -> ModelSpec:
    """An entry that takes images (batch, 3, 224, 224)."""
    common = {
        "family": "vision",
        "paper_section": "4" if "paper_name" in own else None,
        "size": 224,
        "tiny_size": 32,
        "make_inputs": make_images,
    }
    return ModelSpec(name=name, description=description, **{**common, **own})


def from_classifier(
    architecture: str, *, settings: Settings | None = None, tiny: Settings
) -> Build:
    """Builds `transformers.<architecture>ForImageClassification` with 1000 classes, 10 if tiny."""
    return from_config(
        f"{architecture}ForImageClassification",
        {"num_labels": 1000, **(settings or {})},
        {"num_labels": 10, **tiny},
    )


def classifier(
    name: str,
    description: str,
    architecture: str,
    form: str,
    *,
    settings: Settings | None = None,
    tiny: Settings,
    **own: Any,
) -> ModelSpec:
    """`image_model` of `from_classifier`, with the arguments of `text_model`."""
    source = f"transformers.{architecture}ForImageClassification, {form}"
    build = from_classifier(architecture, settings=settings, tiny=tiny)
    return image_model(name, description, **{"source": source, "build": build, **own})
