"""Weights: which there are, and what is done to them between calls. See `table.py`."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

import torch
import torch.nn.functional as F
from hostile.followed.table import (
    Heads,
    Take,
    drop_grads,
    make_net,
    name_error,
    program,
    read_grads,
    rows,
)
from torch import Tensor, nn


@program(replayed=4)
def tied_weights(take: Take) -> Any:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(10, 8), nn.Linear(8, 10, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, ids: Tensor) -> Tensor:
            return self.head(torch.tanh(self.embed(ids)))

    call = take(Tied(), torch.arange(5))
    for seed in range(5):
        F.cross_entropy(call((torch.arange(5) + seed) % 10), torch.arange(5)).backward()
    return None


@program(replayed=2)
def replaced_weights(take: Take) -> Any:
    net = make_net()
    call = take(net, rows(0))
    found = []
    for seed in range(8):
        if seed == 3:
            net[4].weight = nn.Parameter(rows(9)[:, :4].t().repeat(1, 4)[:, :16].contiguous())
        if seed == 5:
            net[0].weight.data = net[0].weight.data * 2
        if seed == 6:
            net.load_state_dict(make_net().state_dict())
        call(rows(seed)).square().sum().backward()
        found.append(read_grads(net))
    return found


@program(replayed=2)
def weights_of_another_type(take: Take) -> Any:
    net = make_net()
    call = take(net, rows(0))
    found = []
    for seed, dtype in enumerate([torch.float32, torch.float64, torch.bfloat16, torch.float32] * 2):
        net.to(dtype)
        drop_grads(net)
        call(rows(seed).to(dtype)).square().sum().backward()
        found.append(read_grads(net))
    return found


@program(replayed=2)
def frozen_in_turns(take: Take) -> Any:
    net = make_net()
    call = take(net, rows(0))
    for seed in range(9):
        net[3].requires_grad_(seed % 3 != 1)
        net[0].weight.requires_grad_(seed % 3 != 2)
        call(rows(seed)).square().sum().backward()
    return None


@program(replayed=4)
def hooks_that_come_and_go(take: Take) -> Any:
    net = make_net()
    call = take(net, rows(0))
    found: list[Any] = []
    for seed in range(8):
        hooks = []
        if seed % 2:
            hooks.append(net[0].weight.register_hook(lambda grad: grad * 2))
            hooks.append(
                net[4].bias.register_post_accumulate_grad_hook(
                    lambda weight: found.append(weight.grad.clone())
                )
            )
        call(rows(seed)).sum().backward()
        for hook in hooks:
            hook.remove()
    return found


@program(words="has a hook")
def hooks_of_weights_that_get_no_gradient(take: Take) -> Any:
    net = Heads()
    found: list[Any] = []
    for name, weight in net.named_parameters():
        weight.register_hook(lambda grad, name=name: found.append(name) or grad * 2)
    call = take(net, rows(0))
    for seed in range(6):
        call(rows(seed))["left"].sum().backward()
    return sorted(found)


@program(replayed=4)
def changed_before_the_backward_pass(take: Take) -> Any:
    net = make_net()
    call = take(net, rows(0))

    def step(seed: int) -> None:
        y = call(rows(seed)).square().sum()
        with torch.no_grad():
            if seed % 3 == 1:
                net[4].weight.mul_(0.5)  # which its input's gradient needs
            if seed % 3 == 2:
                net[0].weight.mul_(0.5)  # which nothing needs
        y.backward()

    return [(name_error(lambda seed=seed: step(seed)), drop_grads(net)) for seed in range(8)]


@program(words="a graph from before the call")
def a_weight_that_has_a_graph(take: Take) -> Any:
    made = nn.Parameter(rows(1))
    product = made * 2
    call = take(lambda x: torch.tanh(x @ product.t()), rows(0))
    found = []
    for seed in range(5):
        (grad,) = torch.autograd.grad(call(rows(seed)).square().sum(), made, retain_graph=True)
        found.append(grad)
    return found


@program(replayed=4, warns="not the same when it is recorded")
def a_leaf_made_by_the_call(take: Take) -> Any:
    class Makes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Any:
            shift = torch.zeros(8, requires_grad=True)
            h = self.layer(x) + shift
            return h, h.square()

    net = Makes()
    call = take(net, rows(0))
    found = []
    for seed in range(7):
        drop_grads(net)
        call(rows(seed))[seed % 2].sum().backward()
        found.append(read_grads(net))
    return found


@program(replayed=1, warns="has a hook")
def hooks_added_to_weights_that_get_no_gradient(take: Take) -> Any:
    net = Heads()
    call = take(net, rows(0))
    found: list[Any] = []
    for seed in range(6):
        hook = None
        if seed % 2:
            hook = net.right.weight.register_hook(lambda grad: found.append(1) or grad * 2)
        result = call(rows(seed))
        (result["left"].sum() + (result["rest"][0].sum() if seed > 3 else 0)).backward()
        if hook is not None:
            hook.remove()
    return found


@program(replayed=4)
def averaged_and_clipped(take: Take) -> Any:
    net = make_net()
    call = take(net, rows(0))
    average = copy.deepcopy(net)
    optimizer = torch.optim.AdamW(net.parameters(), 1e-2, foreach=True)
    found = []
    for seed in range(8):
        call(rows(seed)).square().mean().backward()
        if seed % 2:  # or the gradients add up
            found.append(nn.utils.clip_grad_norm_(net.parameters(), 0.1))
            optimizer.step()
            optimizer.zero_grad(set_to_none=seed % 4 == 1)
            with torch.no_grad():
                for mean, weight in zip(average.parameters(), net.parameters(), strict=True):
                    mean.lerp_(weight, 0.1)
    return found, list(average.parameters())


@program(replayed=4)
def two_optimizers_and_no_clearing(take: Take) -> Any:
    net = Heads()
    call = take(net, rows(0))
    first = torch.optim.Adam(net.left.parameters(), fused=True)
    second = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9, weight_decay=0.1)
    for seed in range(8):
        result = call(rows(seed))
        (result["left"].sum() + (result["rest"][0].sum() if seed % 2 else 0)).backward()
        first.step()
        second.step()
    return None


@program(replayed=4)
def a_scaler(take: Take) -> Any:
    net = make_net()
    call = take(net, rows(0))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=2)
    found = []
    for seed in range(6):
        loss = call(rows(seed)).square().mean() * (float("inf") if seed == 3 else 1)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        found.append(scaler.get_scale())
    return found


@program(replayed=2)
def a_shared_part(take: Take) -> Any:
    shared = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
    heads = nn.ModuleList(nn.Linear(8, size) for size in (2, 3))
    take.in_place(shared, rows(0))
    for seed in range(6):
        h = shared(rows(seed))
        sum(head(h).square().sum() for head in heads).backward()
    return read_grads(heads)


@program(replayed=4)
def copies_of_a_captured_module(take: Take) -> Any:
    net = make_net()
    take.in_place(net, rows(0))
    for seed in range(3):
        net(rows(seed)).sum().backward()
    twin = copy.deepcopy(net)
    found = []
    for seed in range(4):
        twin(rows(seed)).square().sum().backward()
        net(rows(seed)).sum().backward()
        found.append((read_grads(twin), read_grads(net)))
    return found


@program(replayed=1, warns="a graph from before the call")
def weights_given_by_functional_call(take: Take) -> Any:
    net = make_net()
    take.in_place(net, rows(0))
    source = {name: weight.detach().clone() for name, weight in net.named_parameters()}
    found = []
    for seed in range(5):
        leaves = {name: item.clone().requires_grad_() for name, item in source.items()}
        made = {name: item * 2 for name, item in leaves.items()}
        loss = torch.func.functional_call(net, made, (rows(seed),)).square().sum()
        found.append(torch.autograd.grad(loss, list(leaves.values())))
        net(rows(seed)).sum().backward()
    return found


@program(replayed=3)
def spectral_norm(take: Take) -> Any:
    norm = torch.nn.utils.parametrizations.spectral_norm
    net = nn.Sequential(norm(nn.Linear(8, 8)), nn.ReLU(), nn.Linear(8, 2))
    call = take(net, rows(0))
    for seed in range(6):
        call(rows(seed)).square().sum().backward()
    return None


@program(replayed=3)
def sparse_gradients(take: Take) -> Any:
    net = nn.Embedding(10, 8, sparse=True)
    call = take(net, torch.arange(5))
    for seed in range(5):
        call((torch.arange(5) * seed) % 10).square().sum().backward()
    return [net.weight.grad.is_sparse]


@program(replayed=1, warns="a graph from before the call")
def a_parametrized_weight_that_is_kept(take: Take) -> Any:
    parametrize = torch.nn.utils.parametrize

    class Symmetric(nn.Module):
        def forward(self, weight: Tensor) -> Tensor:
            return weight.triu() + weight.triu(1).T

    net = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
    parametrize.register_parametrization(net[0], "weight", Symmetric())
    call = take(net, rows(0))
    for seed in range(6):
        with parametrize.cached() if seed % 2 else contextlib.nullcontext():
            (call(rows(seed)).sum() + call(rows(9)).square().sum()).backward()
    return None


@program(replayed=4)
def weights_in_another_memory_format(take: Take) -> Any:
    net = nn.Sequential(nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3))
    net = net.to(memory_format=torch.channels_last)
    image = torch.linspace(-1, 1, 512).reshape(1, 8, 8, 8)
    call = take(net, image)
    formats = torch.contiguous_format, torch.channels_last
    for seed in range(6):
        x = (image * (seed + 1)).contiguous(memory_format=formats[seed % 2])
        call(x).square().sum().backward()
    return None
