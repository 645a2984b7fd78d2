"""BERT in every size: the two published ones, those of Table 1 and Figure 6, and any other by name.

Heads are 64 wide at every width, so a wider BERT has more of them. The paper gives widths and not
heads.
"""

import re
from typing import Any

from ftax.errors import InvalidArgumentError
from ftax.steps.spec import ModelSpec
from ftax.steps.zoo.entries import BOTH, text_model

_HEAD_WIDTH = 64
_VOCABULARY, _POSITIONS, _TYPES = 30_522, 512, 2
# More is a typing error before it is a model: 96 layers of 12288 are those of GPT-3.
_MAX_LAYERS, _MAX_WIDTH = 96, 12_288
_NAME = re.compile(r"bert-(\d+)x(\d+)")


def make_bert(
    layers: int,
    width: int,
    *,
    name: str | None = None,
    form: str = "BERT-base with another depth or width",
    paper_section: str = "4.2.1",
    **own: Any,
) -> ModelSpec:
    """The entry for a BERT of `layers` layers that are `width` wide; feed-forward is 4 widths."""
    heads = width // _HEAD_WIDTH
    return text_model(
        name or f"bert-{layers}x{width}",
        f"BERT encoder with pooler: {layers} layers of width {width}, {heads} heads",
        "BertModel",
        form,
        paper_section=paper_section,
        parameter_count=count_bert_parameters(layers, width),
        attentions=BOTH,
        settings={
            "num_hidden_layers": layers,
            "hidden_size": width,
            "num_attention_heads": heads,
            "intermediate_size": 4 * width,
        },
        **own,
    )


def count_bert_parameters(layers: int, width: int) -> int:
    """Parameters of a BERT encoder with pooler, by hand: what `build` makes must have as many."""
    norm = 2 * width
    embeddings = (_VOCABULARY + _POSITIONS + _TYPES) * width + norm
    attention = 4 * (width * width + width) + norm
    feed_forward = 2 * 4 * width * width + 4 * width + width + norm
    pooler = width * width + width
    return embeddings + layers * (attention + feed_forward) + pooler


def parse_bert(name: str) -> ModelSpec | None:
    """The entry for `bert-<layers>x<width>`; None for any other name.

    Raises InvalidArgumentError for a depth or width that cannot be built.
    """
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    layers, width = int(found[1]), int(found[2])
    if not 1 <= layers <= _MAX_LAYERS:
        raise InvalidArgumentError(f"{name!r} has {layers} layers: give 1 to {_MAX_LAYERS}")
    if width % _HEAD_WIDTH or not _HEAD_WIDTH <= width <= _MAX_WIDTH:
        raise InvalidArgumentError(
            f"{name!r} has width {width}: give a multiple of {_HEAD_WIDTH}, the width of a head, "
            f"up to {_MAX_WIDTH}"
        )
    return make_bert(layers, width)


BERT_MODELS = (
    make_bert(
        12,
        768,
        name="bert-base",
        form="configuration of bert-base-uncased",
        paper_section="4",
        paper_name="bert",
    ),
    make_bert(
        24,
        1024,
        name="bert-large",
        form="configuration of bert-large-uncased",
        paper_section="4",
    ),
    # The rows of Table 1: attention 768 wide with feed-forward 3072, and twice that.
    make_bert(12, 768, name="bert-768", paper_section="5", paper_name="bert-sa768-fc3072"),
    make_bert(12, 1536, name="bert-1536", paper_section="5", paper_name="bert-sa1536-fc6144"),
    # Half and twice the depth of BERT-base, and half its width.
    make_bert(6, 768),
    make_bert(24, 768),
    make_bert(12, 384),
)
