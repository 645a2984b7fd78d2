"""A recurrent language model, in plain torch.

The surprising choice: `config` is there only because the inputs are made from a model's vocabulary,
which transformers keeps in a thing of that name.
"""

from types import SimpleNamespace

import torch
from torch import nn

from ftax.steps.spec import Variant

_VOCABULARY, _TINY_VOCABULARY = 10_000, 1000
_WIDTH, _TINY_WIDTH = 1500, 32
_LAYERS = 2


class LstmLanguageModel(nn.Module):
    """Token ids (batch, sequence) to scores of the next token (batch, sequence, vocabulary)."""

    def __init__(self, *, vocabulary: int, width: int, layers: int) -> None:
        super().__init__()
        self.config = SimpleNamespace(vocab_size=vocabulary)
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
