"""Tags texts: a thread prepares the inputs, and the main thread runs the model."""

import queue
import threading

import numpy as np
import torch
from torch import nn

from support import Clock, finish, parse, plant

VOCABULARY = 8000
TAGS = 16


class Tagger(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, 8, 4 * width, dropout=0.0, activation="gelu", batch_first=True
            )
            for _ in range(layers)
        )
        self.head = nn.Linear(width, TAGS)

    def forward(self, ids):
        x = self.embedding(ids)
        for number, layer in enumerate(self.layers):
            if number == 1:
                plant(1)
            x = layer(x)
        return self.head(x)


class Producer(threading.Thread):
    def __init__(self, shape, pin):
        super().__init__(name="producer", daemon=True)
        self.shape, self.pin = shape, pin
        self.random = np.random.default_rng(1)
        self.ready = queue.Queue(maxsize=4)
        self.stopped = threading.Event()

    def run(self):
        while not self.stopped.is_set():
            self.ready.put(self.prepare())

    def prepare(self):
        ids = torch.from_numpy(self.random.integers(0, VOCABULARY, self.shape))
        plant(0)  # in another thread, but with Python's lock
        return ids.pin_memory() if self.pin else ids

    def stop(self):
        self.stopped.set()
        while self.is_alive():
            self.drain()
            self.join(0.01)

    def drain(self):
        while not self.ready.empty():
            self.ready.get()


def tags_of(logits):
    plant(2)
    return logits.argmax(dim=-1).tolist()


def count(totals, tags):
    for row in tags:
        for tag in row:
            totals[tag] += 1
    plant(3)


def main():
    options = parse()
    device, big = options.device, options.device.type == "cuda"
    batch, tokens, width, layers = (4, 64, 512, 12) if big else (2, 16, 64, 2)
    model = Tagger(width, layers).to(device, torch.float16 if big else torch.float32)
    producer = Producer((batch, tokens), big)
    producer.start()
    clock, totals = Clock(options), [0] * TAGS
    for _ in clock.iterations():
        ids = producer.ready.get().to(device, non_blocking=True)
        with torch.no_grad():
            logits = model(ids)
        count(totals, tags_of(logits))
        plant(4)
    producer.stop()
    finish(clock, logits.float())


if __name__ == "__main__":
    main()
