"""Decoders and other language models: one pass over a prompt, and a real generation.

The paper's GPT-2 is `gpt2-generate`. Its GPT-2 figures are of 16 generated tokens; `gpt2` is the
prefill alone, which no figure of the paper shows.
"""

from ftax.steps.spec import Variant
from ftax.steps.zoo.decoder_modules import GreedyGenerator, build_lstm_lm
from ftax.steps.zoo.entries import BOTH, TINY_ENCODER, text_model
from ftax.steps.zoo.huggingface import from_config

_GENERATED_TOKENS = 16
_GPT2_POSITIONS = 1024
_LLAMA_POSITIONS = 16_384
_LLAMA3_POSITIONS = 131_072

_LLAMA_1B = {
    "vocab_size": 128_256,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": _LLAMA3_POSITIONS,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
    "bos_token_id": 128_000,
    "eos_token_id": 128_001,
    "rope_parameters": {
        "rope_type": "llama3",
        "rope_theta": 500_000.0,
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
}

_build_gpt2 = from_config("GPT2LMHeadModel", tiny={"n_embd": 32, "n_head": 4, "vocab_size": 1000})


def _build_generator(variant: Variant) -> GreedyGenerator:
    return GreedyGenerator(_build_gpt2(variant), tokens=_GENERATED_TOKENS)


DECODERS = (
    text_model(
        "gpt2",
        "GPT-2 small with its head: 12 layers of width 768, one prefill",
        "GPT2LMHeadModel",
        "configuration of gpt2",
        paper_section="C",
        # The head shares the token embedding and is counted once.
        parameter_count=124_439_808,
        max_size=_GPT2_POSITIONS,
        attentions=BOTH,
        has_cache=True,
        build=_build_gpt2,
    ),
    text_model(
        "gpt2-generate",
        "GPT-2 small generating 16 tokens greedily with a key-value cache",
        "GPT2LMHeadModel",
        "configuration of gpt2, in a loop of ftax",
        paper_section="C",
        paper_name="gpt2",
        parameter_count=124_439_808,
        max_size=_GPT2_POSITIONS - _GENERATED_TOKENS,
        attentions=BOTH,
        build=_build_generator,
        note="one request is the prefill and 15 steps of one token, in one tape or graph; without "
        "sampling, without a test for the end of a text, without making text",
    ),
    text_model(
        "llama",
        "Llama of GPT-2's depth and width: 12 layers of width 768",
        "LlamaForCausalLM",
        "configuration of JackFram/llama-160m",
        parameter_count=162_417_408,
        max_size=_LLAMA_POSITIONS,
        attentions=BOTH,
        has_cache=True,
        settings={
            "hidden_size": 768,
            "intermediate_size": 3072,
            "num_attention_heads": 12,
            "num_hidden_layers": 12,
            "max_position_embeddings": _LLAMA_POSITIONS,
        },
        note="also named llama-160m; published with 2048 positions, which have no weights",
    ),
    text_model(
        "llama-1b",
        "Llama 3.2 1B: 16 layers of width 2048, 32 heads that share 8 keys and values",
        "LlamaForCausalLM",
        "configuration of meta-llama/Llama-3.2-1B",
        # The head shares the token embedding and is counted once.
        parameter_count=1_235_814_400,
        max_size=_LLAMA3_POSITIONS,
        attentions=BOTH,
        has_cache=True,
        settings=_LLAMA_1B,
        # As many heads to a key as in the full form.
        tiny={**TINY_ENCODER, "num_attention_heads": 8, "num_key_value_heads": 2},
    ),
    text_model(
        "mamba",
        "Mamba-130M: 24 layers of selective state spaces, width 768",
        "MambaModel",
        "configuration of state-spaces/mamba-130m-hf",
        parameter_count=129_135_360,
        max_size=None,
        has_cache=True,
        settings={"num_hidden_layers": 24},
        tiny={"hidden_size": 32, "vocab_size": 1000},
        note="without the fused kernels (packages mamba_ssm and causal_conv1d) the scan is a "
        "Python loop over tokens",
    ),
    text_model(
        "lstm-lm",
        "LSTM language model: 2 layers of 1500 units, vocabulary of 10000",
        source="torch.nn.LSTM; the large model of Zaremba et al. 2014 (arXiv 1409.2329)",
        parameter_count=66_034_000,
        max_size=None,
        build=build_lstm_lm,
        # Rows of unit length are for models that start with a norm: a gate would not notice them.
        unit_layers=("Embedding",),
    ),
)
