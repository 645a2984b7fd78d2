"""Training on images whose decoding takes 4 ms of a core each, so that the loop waits for them."""

import time
import zlib

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, default_collate

from support import Clock, finish, parse, plant

DECODING_S = 0.004
CLASSES = 100


class Images(Dataset):
    def __init__(self, size):
        random = np.random.default_rng(1)
        self.size = size
        self.files = [
            zlib.compress(random.integers(0, 256, (3, size, size), dtype=np.uint8).tobytes())
            for _ in range(64)
        ]

    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        return self.decode(self.files[index % len(self.files)]), index % CLASSES

    def decode(self, file):
        end = time.thread_time() + DECODING_S
        while True:
            pixels = np.frombuffer(zlib.decompress(file), dtype=np.uint8)
            image = pixels.reshape(3, self.size, self.size).astype(np.float32) / 255
            if time.thread_time() >= end:
                return image


def collate(items):
    plant(0)  # exposed 1/2: in each of two workers, for which the loop waits
    return default_collate(items)


class Net(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 4, 4)
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, 1, 1) for _ in range(layers))
        self.norms = nn.ModuleList(nn.GroupNorm(8, width) for _ in range(layers))
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x):
        x = self.stem(x)
        for number, (conv, norm) in enumerate(zip(self.convs, self.norms)):
            if number == 1:
                plant(1)  # waits for input anyway
            x = x + F.silu(norm(conv(x)))
        return self.head(x.mean(dim=(2, 3)))


def loss_of(logits, labels):
    plant(2)  # waits for input anyway
    return F.cross_entropy(logits.float(), labels, label_smoothing=0.1)


def log(losses, loss):
    losses.append(loss)
    plant(3)  # waits for input anyway
    return sum(losses[-20:]) / len(losses[-20:])


def main():
    options = parse()
    device, big = options.device, options.device.type == "cuda"
    size, width, layers = (64, 128, 12) if big else (32, 16, 2)
    loader = DataLoader(
        Images(size), 8, shuffle=True, num_workers=2, collate_fn=collate, pin_memory=big
    )
    model = Net(width, layers).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    clock, losses = Clock(options), []
    for i, (images, labels) in zip(clock.iterations(), loader):
        images, labels = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
        with torch.autocast(device.type, torch.bfloat16, enabled=big):
            loss = loss_of(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        log(losses, loss.item())
        for group in optimizer.param_groups:
            group["lr"] = 1e-4 / (1 + i / 1000)
        plant(4)  # waits for input anyway
    finish(clock, losses[-1])


if __name__ == "__main__":
    main()
