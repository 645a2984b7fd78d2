"""Language models that no library has: greedy generation as one forward pass, and an LSTM.

The loop of the generation is ours and not the library's `generate`. That one asks after every token
whether all texts have ended, which reads the device; here the number of tokens is fixed, so the
whole generation is one straight line of operators.
"""

from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from ftax.steps.kept_cache import name_cache
from ftax.steps.spec import Variant

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
