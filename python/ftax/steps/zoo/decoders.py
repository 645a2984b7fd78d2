"""Decoders and other language models: one pass over a prompt, and a real generation.

The paper's GPT-2 is `gpt2-generate`. Its GPT-2 figures are of 16 generated tokens; `gpt2` is the
prefill alone, which no figure of the paper shows.

The loop of the generation is ours and not the library's `generate`. That one asks after every token
whether all texts have ended, which reads the device; here the number of tokens is fixed, so the
whole generation is one straight line of operators.
"""

from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from ftax.steps.prompt import name_cache
from ftax.steps.spec import Variant
from ftax.steps.zoo.entries import BOTH, TINY_ENCODER, text_model
from ftax.steps.zoo.huggingface import from_config

_VOCABULARY, _TINY_VOCABULARY = 10_000, 1000
_WIDTH, _TINY_WIDTH = 1500, 32
_LAYERS = 2


class GreedyGenerator(nn.Module):
    """The tokens that `model`, a causal language model of transformers, goes on with.

    `forward` takes token ids (batch, prompt) int64 and returns (batch, tokens) int64: the most
    likely token after the prompt, then after the prompt and that token, and so on. Keys and values
    are cached, so each step after the first works on one token.
    """

    def __init__(self, model: nn.Module, *, tokens: int) -> None:
        super().__init__()
        self.model = model
        self.tokens = tokens
        self.cache = name_cache(model)
        self.config: Any = model.config

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        """The next `tokens` tokens of each row."""
        # Only the last place of the prompt is asked for, as the library's own generation does.
        output = self.model(input_ids, use_cache=True, logits_to_keep=1)
        token = output.logits.argmax(dim=-1)
        chosen = [token]
        for _ in range(self.tokens - 1):
            output = self.model(token, use_cache=True, **{self.cache: getattr(output, self.cache)})
            token = output.logits.argmax(dim=-1)
            chosen.append(token)
        return torch.cat(chosen, dim=1)


class LstmLanguageModel(nn.Module):
    """Token ids (batch, sequence) to scores of the next token (batch, sequence, vocabulary)."""

    def __init__(self, *, vocabulary: int, width: int, layers: int) -> None:
        super().__init__()
        self.config = SimpleNamespace(vocab_size=vocabulary)  # inputs are made from it
        self.embedding = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width, num_layers=layers, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        """The scores of the token that follows each place."""
        hidden, _ = self.lstm(self.embedding(input_ids))
        scores: torch.Tensor = self.head(hidden)
        return scores


def build_lstm_lm(variant: Variant) -> nn.Module:
    """The large model of Zaremba et al. 2014, or a narrow one of the same depth."""
    return LstmLanguageModel(
        vocabulary=_TINY_VOCABULARY if variant.tiny else _VOCABULARY,
        width=_TINY_WIDTH if variant.tiny else _WIDTH,
        layers=_LAYERS,
    )


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
