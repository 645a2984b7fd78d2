"""Encoders like BERT that differ in size, sharing, positions or training.

The surprising choice: almost every size is spelled out. The defaults of the library's
configurations are often not those of the published model: ALBERT's are xxlarge, DeBERTa's have no
relative positions, RoBERTa's have two positions too few.
"""

from ftax.steps.inputs import make_token_ids
from ftax.steps.spec import ModelSpec
from ftax.steps.zoo.huggingface import TINY_ENCODER, from_config

# RoBERTa's vocabulary, and positions that start behind the padding id.
_ROBERTA = {
    "vocab_size": 50_265,
    "max_position_embeddings": 514,
    "type_vocab_size": 1,
    "layer_norm_eps": 1e-5,
}

ENCODERS: tuple[ModelSpec, ...] = (
    ModelSpec(
        name="distilbert",
        family="text",
        description="DistilBERT-base: 6 layers of width 768, no pooler",
        source="transformers.DistilBertModel, configuration of distilbert-base-uncased",
        paper_section="4",
        paper_name="distilbert",
        parameter_count=66_362_880,
        size=128,
        max_size=512,
        tiny_size=8,
        attentions=("sdpa", "eager"),
        build=from_config(
            model="DistilBertModel",
            config="DistilBertConfig",
            tiny={"dim": 32, "n_heads": 4, "hidden_dim": 64, "vocab_size": 1000},
        ),
        make_inputs=make_token_ids,
    ),
    ModelSpec(
        name="roberta",
        family="text",
        description="RoBERTa-base: BERT-base with a vocabulary of 50265",
        source="transformers.RobertaModel, configuration of roberta-base",
        paper_section=None,
        paper_name=None,
        parameter_count=124_645_632,
        size=128,
        max_size=512,
        tiny_size=8,
        attentions=("sdpa", "eager"),
        build=from_config(
            model="RobertaModel", config="RobertaConfig", settings=_ROBERTA, tiny=TINY_ENCODER
        ),
        make_inputs=make_token_ids,
    ),
    ModelSpec(
        name="albert",
        family="text",
        description="ALBERT-base v2: 12 layers of width 768 that share one set of weights",
        source="transformers.AlbertModel, configuration of albert-base-v2",
        paper_section="4",
        paper_name="albert",
        parameter_count=11_683_584,
        size=128,
        max_size=512,
        tiny_size=8,
        attentions=("sdpa", "eager"),
        build=from_config(
            model="AlbertModel",
            config="AlbertConfig",
            settings={"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072},
            tiny={**TINY_ENCODER, "embedding_size": 16},
        ),
        make_inputs=make_token_ids,
    ),
    ModelSpec(
        name="deberta",
        family="text",
        description="DeBERTa-base: 12 layers of width 768, relative positions",
        source="transformers.DebertaModel, configuration of microsoft/deberta-base",
        paper_section=None,
        paper_name=None,
        parameter_count=138_601_728,
        size=128,
        max_size=512,
        tiny_size=8,
        build=from_config(
            model="DebertaModel",
            config="DebertaConfig",
            settings={
                "relative_attention": True,
                "pos_att_type": ["c2p", "p2c"],
                "position_biased_input": False,
            },
            tiny=TINY_ENCODER,
        ),
        make_inputs=make_token_ids,
    ),
    ModelSpec(
        name="ibert",
        family="text",
        description="I-BERT: RoBERTa-base in layers made for integer arithmetic",
        source="transformers.IBertModel, configuration of kssteven/ibert-roberta-base",
        paper_section=None,
        paper_name=None,
        parameter_count=124_645_632,
        size=128,
        max_size=512,
        tiny_size=8,
        build=from_config(
            model="IBertModel", config="IBertConfig", settings=_ROBERTA, tiny=TINY_ENCODER
        ),
        make_inputs=make_token_ids,
        note="quantisation is off, as published: its integers are simulated in floating point and "
        "need ranges that only training gives",
    ),
)
