"""Greedy generation as one forward pass.

The surprising choice: the loop is ours and not the library's `generate`. That one asks after every
token whether all texts have ended, which reads the device; here the number of tokens is fixed, so
the whole generation is one straight line of operators.
"""

from typing import Any

import torch
from torch import nn


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
        self.config: Any = model.config

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        """The next `tokens` tokens of each row."""
        # Only the last place of the prompt is asked for, as the library's own generation does.
        output = self.model(input_ids, use_cache=True, logits_to_keep=1)
        token = output.logits.argmax(dim=-1)
        chosen = [token]
        for _ in range(self.tokens - 1):
            output = self.model(token, past_key_values=output.past_key_values, use_cache=True)
            token = output.logits.argmax(dim=-1)
            chosen.append(token)
        return torch.cat(chosen, dim=1)
