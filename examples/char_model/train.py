"""Trains a character model on the help texts that ship with Python, eager and captured.

Both runs begin with the same weights and see the same batches. Their losses are the same numbers,
bit for bit; the captured step is faster, by what Python and dispatch cost.

    python examples/char_model/train.py --steps 300
    python examples/char_model/train.py --steps 300 --device cuda
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pydoc_data.topics import topics

import torch
import torch.nn.functional as F
from torch import nn

import ftax

WIDTH, LAYERS, HEADS, CONTEXT, BATCH = 64, 2, 4, 32, 8


class CharModel(nn.Module):
    """A small decoder of characters; tokens (batch, context) to logits over the vocabulary."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, WIDTH)
        self.position = nn.Embedding(CONTEXT, WIDTH)
        self.mix = nn.ModuleList(nn.Linear(WIDTH, 3 * WIDTH) for _ in range(LAYERS))
        self.think = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(),
                nn.Linear(4 * WIDTH, WIDTH),
            )
            for _ in range(LAYERS)
        )  # fmt: skip
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, vocabulary)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits of the character after each."""
        x = self.embed(tokens) + self.position.weight
        for norm, mix, think in zip(self.norms, self.mix, self.think, strict=True):
            shape = (*tokens.shape, HEADS, WIDTH // HEADS)
            parts = mix(norm(x)).chunk(3, dim=-1)
            query, key, value = (part.view(shape).transpose(1, 2) for part in parts)
            mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
            x = x + mixed.transpose(1, 2).reshape(x.shape)
            x = x + think(x)
        return self.head(x)


def make_batches(text: str, steps: int, device: str) -> tuple[list[torch.Tensor], int]:
    """Random pieces of ``text`` as numbers, (batch, context + 1); how many characters it has."""
    letters = {letter: number for number, letter in enumerate(sorted(set(text)))}
    data = torch.tensor([letters[letter] for letter in text])
    generator = torch.Generator().manual_seed(1)
    starts = torch.randint(len(data) - CONTEXT - 1, (steps, BATCH), generator=generator)
    pieces = data[starts[..., None] + torch.arange(CONTEXT + 1)]
    return list(pieces.to(device)), len(letters)


def make_step(vocabulary: int, device: str) -> Callable[[torch.Tensor], torch.Tensor]:
    """One step of training, of a model with the same weights each time."""
    torch.manual_seed(0)
    model = CharModel(vocabulary).to(device)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=3e-3, fused=True, capturable=device != "cpu"
    )

    def step(piece: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        logits = model(piece[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), piece[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        return loss

    return step


def run(
    step: Callable[[torch.Tensor], torch.Tensor], batches: list[torch.Tensor]
) -> tuple[list[float], float]:
    """The loss of each step, and the median time of one, in ms."""
    losses, times = [], []
    for batch in batches:
        start = time.perf_counter()
        losses.append(step(batch).item())
        times.append(1e3 * (time.perf_counter() - start))
    return losses, statistics.median(times)


def main() -> None:
    """Train both and compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    batches, vocabulary = make_batches("".join(topics.values()), options.steps, options.device)
    losses, eager_ms = run(make_step(vocabulary, options.device), batches)
    step = make_step(vocabulary, options.device)
    captured, captured_ms = run(ftax.capture(step, batches[0]), batches)
    for place in range(0, options.steps, max(1, options.steps // 10)):
        print(f"step {place:4d}  loss {losses[place]:.4f}  captured {captured[place]:.4f}")
    if captured != losses:
        raise SystemExit("the losses are not the same")
    print(
        f"{options.steps} losses, the same bits; a step takes {eager_ms:.2f} ms, captured "
        f"{captured_ms:.2f} ms: {eager_ms / captured_ms:.1f} times as fast"
    )


if __name__ == "__main__":
    main()
