"""An asyncio server that batches up to four requests. An iteration is a batch."""

import asyncio

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from support import Clock, finish, parse, plant

VOCABULARY = 8000
CLIENTS = 8
MOST = 4


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 8, batch_first=True)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.lower = nn.Sequential(*(Block(width) for _ in range(layers // 2)))
        self.upper = nn.Sequential(*(Block(width) for _ in range(layers // 2)))

    def forward(self, ids):
        x = self.lower(self.embedding(ids))
        plant(1)
        return self.upper(x).mean(dim=1)


async def client(number, requests, tokens):
    random = np.random.default_rng(number)
    while True:
        answer = asyncio.get_running_loop().create_future()
        await requests.put((random.integers(0, VOCABULARY, tokens), answer))
        await answer


async def report(sizes):
    total = 0
    while True:
        total += await sizes.get()
        plant(4)  # in another coroutine of the same thread


async def collect(requests):
    batch = [await requests.get()]
    while len(batch) < MOST and not requests.empty():
        batch.append(requests.get_nowait())
    plant(0)
    return batch


def answer_all(batch, vectors):
    for (_, answer), vector in zip(batch, vectors.tolist()):
        answer.set_result(vector)
    plant(3)


async def serve(model, requests, sizes, clock):
    for _ in clock.iterations():
        batch = await collect(requests)
        ids = torch.from_numpy(np.stack([tokens for tokens, _ in batch])).to(clock.device)
        with torch.inference_mode():
            vectors = model(ids)
        plant(2)
        answer_all(batch, vectors.float())
        sizes.put_nowait(len(batch))
        await asyncio.sleep(0)  # the others' turn
    return vectors


async def main():
    options = parse()
    big = options.device.type == "cuda"
    tokens, width, layers = (64, 512, 10) if big else (16, 64, 2)
    model = Model(width, layers)
    model = model.to(options.device, torch.float16 if big else torch.float32).eval()
    requests, sizes, clock = asyncio.Queue(), asyncio.Queue(), Clock(options)
    others = [asyncio.create_task(client(n, requests, tokens)) for n in range(CLIENTS)]
    others.append(asyncio.create_task(report(sizes)))
    vectors = await serve(model, requests, sizes, clock)
    for task in others:
        task.cancel()
    finish(clock, vectors.float())


if __name__ == "__main__":
    asyncio.run(main())
