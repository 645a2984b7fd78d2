"""The encoders of the zoo: BERT in every size, those like it, those built to need less work, and
speech.

BERT has the two published sizes, those of Table 1 and Figure 6, and any other by name. Heads are 64
wide at every width, so a wider BERT has more of them: the paper gives widths and not heads.

Almost every size is spelled out. The defaults of the library's configurations are often not those
of the published model: ALBERT's are xxlarge, DeBERTa's have no relative positions, RoBERTa's have
two positions too few. Where a published configuration switches a model's own idea off at the
paper's 128 tokens, its lengths are cut so that the idea runs; `note` says so. No weight changes.
"""

import re
from typing import Any

from ftax.errors import InvalidArgumentError
from ftax.steps.spec import ModelSpec
from ftax.steps.zoo.entries import BOTH, TINY_ENCODER, speech_model, text_model

# RoBERTa's vocabulary, and positions that start behind the padding id.
ROBERTA = {
    "vocab_size": 50_265,
    "max_position_embeddings": 514,
    "type_vocab_size": 1,
    "layer_norm_eps": 1e-5,
}

ENCODERS = (
    text_model(
        "distilbert",
        "DistilBERT-base: 6 layers of width 768, no pooler",
        "DistilBertModel",
        "configuration of distilbert-base-uncased",
        paper_name="distilbert",
        parameter_count=66_362_880,
        attentions=BOTH,
        tiny={"dim": 32, "n_heads": 4, "hidden_dim": 64, "vocab_size": 1000},
    ),
    text_model(
        "roberta",
        "RoBERTa-base: BERT-base with a vocabulary of 50265",
        "RobertaModel",
        "configuration of roberta-base",
        parameter_count=124_645_632,
        attentions=BOTH,
        settings=ROBERTA,
    ),
    text_model(
        "albert",
        "ALBERT-base v2: 12 layers of width 768 that share one set of weights",
        "AlbertModel",
        "configuration of albert-base-v2",
        paper_name="albert",
        parameter_count=11_683_584,
        attentions=BOTH,
        settings={"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072},
        tiny={**TINY_ENCODER, "embedding_size": 16},
    ),
    text_model(
        "deberta",
        "DeBERTa-base: 12 layers of width 768, relative positions",
        "DebertaModel",
        "configuration of microsoft/deberta-base",
        parameter_count=138_601_728,
        settings={
            "relative_attention": True,
            "pos_att_type": ["c2p", "p2c"],
            "position_biased_input": False,
        },
    ),
    text_model(
        "ibert",
        "I-BERT: RoBERTa-base in layers made for integer arithmetic",
        "IBertModel",
        "configuration of kssteven/ibert-roberta-base",
        parameter_count=124_645_632,
        settings=ROBERTA,
        note="quantisation is off, as published: it needs ranges that only training gives",
    ),
)


_TINY_FUNNEL = {"d_model": 32, "n_head": 4, "d_head": 8, "d_inner": 64, "vocab_size": 1000}

EFFICIENT_ENCODERS = (
    text_model(
        "funnel",
        "Funnel small: 3 blocks of 4 layers, halved twice, and a decoder",
        "FunnelModel",
        "configuration of funnel-transformer/small",
        paper_name="funnel_transformer",
        parameter_count=130_973_184,
        tiny=_TINY_FUNNEL,
        note="the paper names no size; its 8.27 G multiply-accumulates at 128 tokens are those of "
        "small with its decoder",
    ),
    text_model(
        "funnel-base",
        "Funnel small without its decoder: 3 blocks of 4 layers, halved twice",
        "FunnelBaseModel",
        "configuration of funnel-transformer/small-base",
        parameter_count=115_611_648,
        tiny=_TINY_FUNNEL,
        note="the paper's text (42 % fewer multiply-accumulates than BERT) fits this form; its "
        "measurements fit the one with a decoder",
    ),
    text_model(
        "squeezebert",
        "SqueezeBERT: 12 layers of width 768 made of grouped convolutions",
        "SqueezeBertModel",
        "configuration of squeezebert/squeezebert-uncased",
        paper_name="squeeze_bert",
        parameter_count=51_089_664,
        tiny={**TINY_ENCODER, "embedding_size": 32},
    ),
    text_model(
        "mobilebert",
        "MobileBERT: 24 layers of width 512 with bottlenecks of 128",
        "MobileBertModel",
        "configuration of google/mobilebert-uncased",
        paper_name="mobile_bert",
        parameter_count=24_581_888,
        attentions=BOTH,
        settings={"classifier_activation": False},
        tiny={
            **TINY_ENCODER,
            "embedding_size": 16,
            "intermediate_size": 32,
            "intra_bottleneck_size": 16,
        },
        # Without a norm, the sums of 24 residual layers grow until fp16 overflows.
        unit_layers=("NoNorm",),
    ),
    text_model(
        "fnet",
        "FNet-base: 12 layers of width 768 with Fourier transforms for attention",
        "FNetModel",
        "configuration of google/fnet-base",
        parameter_count=82_861_056,
        dtypes=("fp32",),
        tiny={"hidden_size": 32, "intermediate_size": 64, "vocab_size": 1000},
        note="fp32 only: torch has no Fourier transform of 768 values in half precision",
    ),
    text_model(
        "nystromformer",
        "Nyströmformer: 12 layers of width 768, attention through 64 landmarks",
        "NystromformerModel",
        "configuration of uw-madison/nystromformer-512",
        parameter_count=108_500_112,
        max_size=128,
        fixed_size=True,
        dtypes=("fp32",),
        settings={"segment_means_seq_len": 128, "num_landmarks": 64},
        tiny={**TINY_ENCODER, "segment_means_seq_len": 8, "num_landmarks": 4},
        note="128 tokens only, in segments of 2: with as many landmarks as segments, as published, "
        "the library computes plain attention. fp32 only: it multiplies by an identity in fp32",
    ),
    text_model(
        "longformer",
        "Longformer-base: 12 layers of width 768, attention in windows of 512",
        "LongformerModel",
        "configuration of allenai/longformer-base-4096",
        paper_name="longformer",
        parameter_count=148_659_456,
        max_size=4096,
        settings={**ROBERTA, "max_position_embeddings": 4098},
        tiny={**TINY_ENCODER, "attention_window": 16},
        note="pads every request to a multiple of 512 tokens, as in the paper; no token has global "
        "attention",
    ),
    text_model(
        "reformer",
        "Reformer: 12 reversible layers of width 1024, 3 with hashed attention",
        "ReformerModelWithLMHead",
        "configuration of google/reformer-enwik8",
        parameter_count=149_182_722,
        max_size=65_536,
        settings={
            "attn_layers": [*("local", "local", "lsh", "local") * 3],
            "attention_head_size": 128,
            "axial_pos_embds_dim": [256, 768],
            "axial_pos_shape": [128, 512],
            "feed_forward_size": 4096,
            "hidden_size": 1024,
            "is_decoder": True,
            "local_attn_chunk_length": 64,
            "lsh_attn_chunk_length": 64,
            "max_position_embeddings": 65_536,
            "num_attention_heads": 8,
            "num_buckets": 512,
            "num_hashes": 4,
            "use_cache": False,
            "vocab_size": 258,
        },
        tiny={
            "attention_head_size": 8,
            "axial_pos_embds_dim": [8, 24],
            "axial_pos_shape": [16, 16],
            "feed_forward_size": 64,
            "hidden_size": 32,
            "local_attn_chunk_length": 4,
            "lsh_attn_chunk_length": 4,
            "num_attention_heads": 4,
            "num_buckets": 8,
        },
        note="chunks of 64 tokens (published: 128 and 256), so that 128 tokens are hashed; hashing "
        "draws random numbers in every pass",
    ),
)


SPEECH_MODELS = (
    speech_model(
        "wavlm",
        "WavLM-base: 7 convolutions, 12 layers of width 768, gated positions",
        "WavLMModel",
        "configuration of microsoft/wavlm-base",
        paper_section="E",
        paper_name="wavlm",
        parameter_count=94_381_936,
    ),
    speech_model(
        "wav2vec2",
        "wav2vec 2.0 base: 7 convolutions, 12 layers of width 768",
        "Wav2Vec2Model",
        "configuration of facebook/wav2vec2-base",
        parameter_count=94_371_712,
        attentions=BOTH,
    ),
    speech_model(
        "hubert",
        "HuBERT-base: wav2vec 2.0's layers, trained otherwise",
        "HubertModel",
        "configuration of facebook/hubert-base-ls960",
        parameter_count=94_371_712,
        attentions=BOTH,
    ),
)

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
