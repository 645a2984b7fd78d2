"""Ranks documents with a model that torch.compile compiled, in two parts."""

import numpy as np
import torch
from torch import nn

from support import Block, Clock, finish, parse, plant

VOCABULARY = 8000


class Ranker(nn.Module):
    def __init__(self, width, layers, backend):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        lower = nn.Sequential(*(Block(width, 12) for _ in range(layers // 2)))
        upper = nn.Sequential(*(Block(width, 12) for _ in range(layers // 2)))
        self.lower = torch.compile(lower, backend=backend)
        self.upper = torch.compile(upper, backend=backend)
        self.score = nn.Linear(width, 1)

    def forward(self, ids):
        x = self.lower(self.embedding(ids))
        plant(1)
        return self.score(self.upper(x).mean(dim=1))


def encode(documents, vocabulary):
    plant(0)
    return np.array([[vocabulary[word] for word in document] for document in documents])


def rank(scores, documents):
    plant(3)
    order = sorted(range(len(scores)), key=lambda number: -scores[number])
    return [" ".join(documents[number][:3]) for number in order]


@torch.inference_mode()
def main():
    options = parse()
    big = options.device.type == "cuda"
    tokens, width, layers = (64, 768, 12) if big else (16, 96, 2)
    model = Ranker(width, layers, "inductor" if big else "eager")
    model = model.to(options.device, torch.float16 if big else torch.float32).eval()
    random = np.random.default_rng(1)
    words = [f"w{number}" for number in range(VOCABULARY)]
    vocabulary = {word: number for number, word in enumerate(words)}
    library = [[words[n] for n in random.integers(0, VOCABULARY, tokens)] for _ in range(64)]
    clock, first = Clock(options), {}
    for i in clock.iterations():
        documents = [library[(4 * i + n) % len(library)] for n in range(4)]
        ids = torch.from_numpy(encode(documents, vocabulary)).to(options.device)
        scores = model(ids)[:, 0].tolist()
        plant(2)
        ranked = rank(scores, documents)
        first[ranked[0]] = first.get(ranked[0], 0) + 1
        plant(4)
    finish(clock, scores)


if __name__ == "__main__":
    main()
