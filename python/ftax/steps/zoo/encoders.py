"""Encoders like BERT that differ in size, sharing, positions or training.

Almost every size is spelled out. The defaults of the library's configurations are often not those
of the published model: ALBERT's are xxlarge, DeBERTa's have no relative positions, RoBERTa's have
two positions too few.
"""

from ftax.steps.zoo.entries import BOTH, TINY_ENCODER, text_model

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
