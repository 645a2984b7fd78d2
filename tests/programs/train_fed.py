"""Training, with a data loader that keeps up."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, default_collate

from support import Block, Clock, finish, parse, plant

VOCABULARY = 2000


class Sentences(Dataset):
    def __init__(self, tokens):
        self.tokens = tokens

    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        sentence = np.random.default_rng(index).integers(0, VOCABULARY, self.tokens + 1)
        return sentence[:-1], sentence[1:]


def collate(items):
    plant(0)  # hidden
    return default_collate(items)


class Model(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, ids):
        x = self.embedding(ids)
        for number, block in enumerate(self.blocks):
            if number == 1:
                plant(1)
            x = block(x)
        return self.head(x)


def loss_of(logits, targets):
    plant(2)
    return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


def log(losses, loss):
    losses.append(loss)
    plant(3)
    return sum(losses[-20:]) / len(losses[-20:])


def main():
    options = parse()
    device, big = options.device, options.device.type == "cuda"
    batch, tokens, width, layers = (8, 64, 512, 4) if big else (2, 16, 64, 2)
    loader = DataLoader(
        Sentences(tokens), batch, shuffle=True, num_workers=2, collate_fn=collate, pin_memory=big
    )
    model = Model(width, layers).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    clock, losses = Clock(options), []
    for i, (ids, targets) in zip(clock.iterations(), loader):
        ids, targets = ids.to(device, non_blocking=True), targets.to(device, non_blocking=True)
        with torch.autocast(device.type, torch.bfloat16, enabled=big):
            loss = loss_of(model(ids), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        log(losses, loss.item())
        for group in optimizer.param_groups:
            group["lr"] = 1e-4 / (1 + i / 1000)
        plant(4)
    finish(clock, losses[-1])


if __name__ == "__main__":
    main()
