"""Decoders and other language models: one pass over a prompt, and a real generation.

The surprising choice: the paper's GPT-2 is `gpt2-generate`. Its GPT-2 figures are of 16 generated
tokens; `gpt2` is the prefill alone, which no figure of the paper shows.
"""

from ftax.steps.inputs import make_token_ids
from ftax.steps.spec import ModelSpec, Variant
from ftax.steps.zoo.generation import GreedyGenerator
from ftax.steps.zoo.huggingface import TINY_ENCODER, from_config
from ftax.steps.zoo.recurrent import build_lstm_lm

_GENERATED_TOKENS = 16
_GPT2_POSITIONS = 1024

_build_gpt2 = from_config(
    model="GPT2LMHeadModel",
    config="GPT2Config",
    tiny={"n_embd": 32, "n_head": 4, "vocab_size": 1000},
)


def _build_generator(variant: Variant) -> GreedyGenerator:
    return GreedyGenerator(_build_gpt2(variant), tokens=_GENERATED_TOKENS)


DECODERS: tuple[ModelSpec, ...] = (
    ModelSpec(
        name="gpt2",
        family="text",
        description="GPT-2 small with its head: 12 layers of width 768, one prefill",
        source="transformers.GPT2LMHeadModel, configuration of gpt2",
        paper_section="C",
        paper_name=None,
        # The head shares the token embedding and is counted once.
        parameter_count=124_439_808,
        size=128,
        max_size=_GPT2_POSITIONS,
        tiny_size=8,
        attentions=("sdpa", "eager"),
        has_cache=True,
        build=_build_gpt2,
        make_inputs=make_token_ids,
    ),
    ModelSpec(
        name="gpt2-generate",
        family="text",
        description="GPT-2 small generating 16 tokens greedily with a key-value cache",
        source="transformers.GPT2LMHeadModel, configuration of gpt2, in a loop of ftax",
        paper_section="C",
        paper_name="gpt2",
        parameter_count=124_439_808,
        size=128,
        max_size=_GPT2_POSITIONS - _GENERATED_TOKENS,
        tiny_size=8,
        attentions=("sdpa", "eager"),
        build=_build_generator,
        make_inputs=make_token_ids,
        note="one request is the prefill and 15 steps of one token. A tape or a graph holds all of "
        "it: the growing caches, the choice of each token, and its way into the next step. It does "
        "not hold what a generation library does besides: sampling, asking after each token "
        "whether all texts have ended (here the length is fixed), and making text",
    ),
    ModelSpec(
        name="llama",
        family="text",
        description="Llama of GPT-2's depth and width: 12 layers of width 768",
        source="transformers.LlamaForCausalLM, configuration of JackFram/llama-160m",
        paper_section=None,
        paper_name=None,
        parameter_count=162_417_408,
        size=128,
        max_size=2048,
        tiny_size=8,
        attentions=("sdpa", "eager"),
        has_cache=True,
        build=from_config(
            model="LlamaForCausalLM",
            config="LlamaConfig",
            settings={
                "hidden_size": 768,
                "intermediate_size": 3072,
                "num_attention_heads": 12,
                "num_hidden_layers": 12,
            },
            tiny=TINY_ENCODER,
        ),
        make_inputs=make_token_ids,
    ),
    ModelSpec(
        name="mamba",
        family="text",
        description="Mamba-130M: 24 layers of selective state spaces, width 768",
        source="transformers.MambaModel, configuration of state-spaces/mamba-130m-hf",
        paper_section=None,
        paper_name=None,
        parameter_count=129_135_360,
        size=128,
        tiny_size=8,
        has_cache=True,
        build=from_config(
            model="MambaModel",
            config="MambaConfig",
            settings={"num_hidden_layers": 24},
            tiny={"hidden_size": 32, "vocab_size": 1000},
        ),
        make_inputs=make_token_ids,
        note="without the fused kernels (packages mamba_ssm and causal_conv1d, which transformers "
        "takes where they are installed): the scan is a loop in Python, one turn a token and "
        "layer, so it shows what fusing saves",
    ),
    ModelSpec(
        name="lstm-lm",
        family="text",
        description="LSTM language model: 2 layers of 1500 units, vocabulary of 10000",
        source="torch.nn.LSTM; the large model of Zaremba et al. 2014 (arXiv 1409.2329)",
        paper_section=None,
        paper_name=None,
        parameter_count=66_034_000,
        size=128,
        tiny_size=8,
        build=build_lstm_lm,
        make_inputs=make_token_ids,
        # Rows of unit length are for models that start with a norm: a gate would not notice them.
        unit_layers=("Embedding",),
    ),
)
