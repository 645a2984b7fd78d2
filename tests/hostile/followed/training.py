"""Training loops around a captured module. See `table.py`."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
import torch.distributed as dist
from hostile.followed.table import Around, Take, make_net, program, read_grads, rows, train
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class Model(nn.Module):
    """A body, a head, and what nothing uses."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head, self.unused = make_net(8), nn.Linear(8, 2), nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


def _train_with_ddp(take: Take, **options: Any) -> Any:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        model = Model()
        whole = nn.parallel.DistributedDataParallel(model, **options)
        take.in_place(model.body, rows(0))
        optimizer = torch.optim.SGD(whole.parameters(), 0.1)
        found = []
        for seed in range(7):
            with whole.no_sync() if seed % 3 else contextlib.nullcontext():
                whole(rows(seed)).square().sum().backward()
            found.append(read_grads(model))
            if seed % 3 == 0:
                optimizer.step()
                optimizer.zero_grad(set_to_none=seed == 3)
        return found, list(model.parameters())
    finally:
        dist.barrier()  # gloo's thread is done with what DDP gave it: where that ends, it is joined
        dist.destroy_process_group()


@program(replayed=4)
def inside_of_ddp(take: Take) -> Any:
    return _train_with_ddp(take, find_unused_parameters=True)


@program(replayed=4)
def inside_of_ddp_with_a_static_graph(take: Take) -> Any:
    return _train_with_ddp(take, static_graph=True)


@program(replayed=8)
def an_optimizer_that_calls_back(take: Take) -> Any:
    net = make_net()
    call = take(net, rows(0))
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=5)

    def close(seed: int) -> Tensor:
        optimizer.zero_grad()
        loss = call(rows(seed)).square().sum()
        loss.backward()
        return loss

    return [optimizer.step(lambda seed=seed: close(seed)).detach() for seed in range(4)]


@program(replayed=2000)
def a_chain_of_two_thousand_calls(take: Take) -> Any:
    call = take(nn.Sequential(nn.Linear(8, 8), nn.Tanh()), rows(0).requires_grad_())
    h = rows(0).requires_grad_()
    for _ in range(2000):
        h = call(h)
    h.sum().backward()
    return h.detach()


@program(words="use_reentrant")
def reentrant_checkpoints_inside(take: Take) -> Any:
    inner = make_net(8)
    return train(take, Around(lambda h: checkpoint(inner, h, use_reentrant=True)))


@program(replayed=4)
def recorded_without_gradients_first(take: Take) -> Any:
    with torch.no_grad():
        call = take(make_net(), rows(0))
    found = []
    for seed in range(8):
        with torch.set_grad_enabled(seed % 3 != 0):
            y = call(rows(seed))
        if y.requires_grad:
            y.square().sum().backward()
        found.append(y)
    return found
