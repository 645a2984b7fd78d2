"""Training that gathers the gradients of four micro-batches. An iteration is a micro-batch."""

import torch
import torch.nn.functional as F
from torch import nn

from support import Block, Clock, finish, parse, plant

VOCABULARY = 2000
MICRO_BATCHES = 4


class Hook:
    """Something of a training framework that wants to know what happens when."""

    def __init__(self):
        self.micro_batches = self.steps = 0

    def after_layer(self, module, inputs, output):
        plant(1)

    def in_backward(self, parameter):
        plant(2)  # on a GPU in the thread of autograd

    def after_micro_batch(self):
        self.micro_batches += 1
        plant(3)


class Trainer:
    def __init__(self, model, hook):
        self.model, self.hook = model, hook
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
        model[1].register_forward_hook(hook.after_layer)
        model[2].qkv.weight.register_post_accumulate_grad_hook(hook.in_backward)
        self.loss = 0.0

    def micro_batch(self, ids, targets):
        logits = self.model(ids).float()
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten()) / MICRO_BATCHES
        loss.backward()
        self.hook.after_micro_batch()
        if self.hook.micro_batches % MICRO_BATCHES == 0:
            self.step(loss)

    def step(self, loss):
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.hook.steps += 1
        self.loss = loss.item() * MICRO_BATCHES


def cut(corpus, i, batch, tokens):
    start = i * batch * tokens % (len(corpus) - batch * tokens - 1)
    plant(0)
    piece = corpus[start : start + batch * tokens + 1]
    return piece[:-1].view(batch, tokens), piece[1:].view(batch, tokens)


def main():
    options = parse()
    big = options.device.type == "cuda"
    batch, tokens, width, layers = (4, 64, 512, 4) if big else (2, 16, 64, 2)
    blocks = [Block(width) for _ in range(layers)]
    model = nn.Sequential(nn.Embedding(VOCABULARY, width), *blocks, nn.Linear(width, VOCABULARY))
    model.to(options.device, torch.bfloat16 if big else torch.float32)
    corpus = torch.randint(0, VOCABULARY, (100_000,)).to(options.device)
    trainer, clock, progress = Trainer(model, Hook()), Clock(options), []
    for i in clock.iterations():
        trainer.micro_batch(*cut(corpus, i, batch, tokens))
        progress = [*progress[-99:], trainer.loss]
        plant(4)
    finish(clock, progress[-1])


if __name__ == "__main__":
    main()
