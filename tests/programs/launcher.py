"""Starts two processes that each run a small model on the same device, and waits for both."""

import json

import torch
import torch.multiprocessing as mp
from torch import nn

from support import Clock, apply, parse, plant, summary

WORKERS = 2
VOCABULARY = 8000


class Classifier(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(width),
                nn.Linear(width, 4 * width),
                nn.GELU(),
                nn.Linear(4 * width, width),
            )
            for _ in range(layers)
        )
        self.head = nn.Linear(width, 10)

    def forward(self, ids):
        x = self.embedding(ids)
        for number, layer in enumerate(self.layers):
            if number == 2:
                plant(1)
            x = x + layer(x)
        return self.head(x.mean(dim=1))


def request(random, shape):
    plant(0)
    return torch.randint(0, VOCABULARY, shape, generator=random)


def answer(logits):
    classes = logits.argmax(dim=-1).tolist()
    plant(3)
    return [f"class {number}" for number in classes]


@torch.inference_mode()
def work(rank, options, results):
    apply(options)
    device, big = options.device, options.device.type == "cuda"
    batch, tokens, width, layers = (8, 64, 512, 40) if big else (2, 16, 64, 4)
    model = Classifier(width, layers).to(device, torch.float16 if big else torch.float32).eval()
    random = torch.Generator().manual_seed(rank)
    clock, answers = Clock(options), {}
    for _ in clock.iterations():
        logits = model(request(random, (batch, tokens)).to(device))
        plant(2)
        for word in answer(logits):
            answers[word] = answers.get(word, 0) + 1
        plant(4)
    results.put((rank, summary(clock, logits.float() * 1000)))


def main():
    options = parse()
    results = mp.get_context("spawn").SimpleQueue()
    processes = mp.spawn(work, (options, results), nprocs=WORKERS, join=False)
    while not processes.join():
        pass
    workers = [found for _, found in sorted((results.get() for _ in range(WORKERS)), key=str)]
    # The first worker's clock speaks for both, and each one's own is there too.
    both = round(sum(worker["checksum"] for worker in workers), 4)
    print(json.dumps(workers[0] | {"checksum": both, "workers": workers}), flush=True)


if __name__ == "__main__":
    main()
