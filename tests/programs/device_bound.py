"""Embeds a corpus in batches so large that the device is the limit, and looks at every tenth."""

import numpy as np
import torch
from torch import nn

from support import Block, Clock, finish, parse, plant

VOCABULARY = 8000


class Encoder(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.ModuleList(Block(width, 16) for _ in range(layers))

    def forward(self, ids):
        x = self.embedding(ids)
        for number, block in enumerate(self.blocks):
            if number == len(self.blocks) // 2:
                plant(1)  # hidden
            x = block(x)
        return x.mean(dim=1)


def load(random, shape, device):
    ids = torch.from_numpy(random.integers(0, VOCABULARY, shape))
    plant(0)  # hidden
    return ids.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else ids


def average(before, vectors):
    plant(2)  # hidden
    return 0.9 * before + 0.1 * vectors.float().mean(dim=0)


@torch.inference_mode()
def main():
    options = parse()
    device, big = options.device, options.device.type == "cuda"
    batch, tokens, width, layers = (64, 256, 1024, 12) if big else (4, 16, 64, 2)
    model = Encoder(width, layers).to(device, torch.float16 if big else torch.float32).eval()
    random = np.random.default_rng(1)
    clock, seen, mean = Clock(options), [], torch.zeros(width, device=device)
    ids = load(random, (batch, tokens), device)
    for i in clock.iterations():
        vectors = model(ids)
        mean = average(mean, vectors)
        ids = load(random, (batch, tokens), device)
        plant(3)  # hidden
        if i % 10 == 9:
            seen.append(mean.norm().item())
        plant(4)  # exposed 1/10: after the look the device has nothing to do
    finish(clock, mean * 1000)


if __name__ == "__main__":
    main()
