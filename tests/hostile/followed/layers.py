"""What a module does inside. See `table.py`."""

from __future__ import annotations

import contextlib
import warnings
from typing import Any

import torch
import torch.nn.functional as F
from hostile.followed.table import (
    Around,
    Take,
    make_net,
    name_error,
    program,
    read_grads,
    rows,
    train,
)
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from support.small_models import normal


@program(replayed=4)
def operators_that_scatter(take: Take) -> Any:
    at = torch.tensor([0, 2, 2, 1])

    def mix(h: Tensor) -> Tensor:
        h = h.cumsum(1).sort(-1).values
        h = torch.zeros(4, 8).index_add(0, at, h) + torch.zeros(4, 8).scatter(
            0, at[:, None].expand(4, 8), h
        )
        return F.embedding_bag(at[None], h).repeat(4, 1) + h.gather(0, at[:, None].expand(4, 8))

    return train(take, Around(mix))


@program(words="cannot capture")
def sizes_that_values_make(take: Take) -> Any:
    return train(take, Around(lambda h: h * len(h.detach().round().unique())))


@program(words="cannot capture")
def a_loop_that_a_value_ends(take: Take) -> Any:
    def settle(h: Tensor) -> Tensor:
        while h.abs().max() > 0.1:
            h = h * 0.5
        return h

    return train(take, Around(settle))


@program(replayed=4)
def masked_indexing(take: Take) -> Any:
    return train(take, Around(lambda h: h[h > 0]))


@program(replayed=3)
def batch_norm(take: Take) -> Any:
    net = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True), nn.Linear(8, 2))
    return train(take, net)


@program(words="cannot capture")
def batch_norm_that_averages(take: Take) -> Any:
    return train(take, nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8, momentum=None)))


class Averages(nn.Module):
    """Keeps a mean, which its own result is multiplied by."""

    def __init__(self, *, is_copied: bool) -> None:
        super().__init__()
        self.layer, self.is_copied = nn.Linear(8, 8), is_copied
        self.register_buffer("mean", torch.ones(8))

    def forward(self, x: Tensor) -> Tensor:
        h = self.layer(x)
        with torch.no_grad():
            self.mean.mul_(0.9).add_(h.mean(0), alpha=0.1)
        return h * (self.mean.clone() if self.is_copied else self.mean)


@program(replayed=3)
def a_buffer_that_the_backward_pass_needs(take: Take) -> Any:
    return train(take, Averages(is_copied=False))


@program(replayed=3)
def a_copy_of_a_buffer_that_the_backward_pass_needs(take: Take) -> Any:
    return train(take, Averages(is_copied=True))


@program(replayed=3)
def a_buffer_written_again_before_the_backward_pass(take: Take) -> Any:
    call = take(Averages(is_copied=False), rows(0))

    def step(seed: int) -> None:
        y = call(rows(seed))
        call(rows(seed + 1))
        y.sum().backward()

    return [name_error(lambda seed=seed: step(seed)) for seed in range(4)]


@program(words="cannot capture")
def a_mean_that_has_a_graph(take: Take) -> Any:
    net = Averages(is_copied=True)

    def forward(x: Tensor) -> Tensor:
        h = net.layer(x)
        net.mean = (0.9 * net.mean + 0.1 * h.mean(0)).detach()
        return h * net.mean

    call = take(forward, rows(0))
    for seed in range(4):
        call(rows(seed)).sum().backward()
    return net.mean


@program(words="cannot capture")
def an_output_that_is_kept(take: Take) -> Any:
    net = Around(None)
    net.function = lambda h: vars(net).__setitem__("last", h) or h * 2
    call = take(net, rows(0))
    for seed in range(4):
        (call(rows(seed)).sum() + net.last.square().sum()).backward()
    return None


@program(replayed=0)
def a_scripted_part(take: Take) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return train(take, Around(torch.jit.script(nn.Linear(8, 8))))


@program(replayed=3)
def recurrent_layers(take: Take) -> Any:
    lstm = nn.LSTM(8, 8, 2, batch_first=True, dropout=0.2)
    call = take(lstm, rows(0)[:, None], None)
    found, state = [], None
    for seed in range(8):
        y, state = call(rows(seed)[:, None], state)
        y.square().sum().backward()
        state = tuple(item.detach() for item in state)
        found.append(state)
    return found


@program(replayed=3)
def attention_with_dropout(take: Take) -> Any:
    layer = nn.MultiheadAttention(8, 2, dropout=0.3, batch_first=True)
    call = take(layer, *[normal(2, 4, 8)] * 3)
    found = []
    for seed in range(5):
        x = normal(2, 4, 8, seed=seed)
        y, weights = call(x, x, x)
        (y.square().sum() + weights.max()).backward()
        found.append((y.detach(), weights.detach()))
    return found


@program(replayed=3)
def dropout_that_changes(take: Take) -> Any:
    drop = nn.Dropout(0.5)
    net = nn.Sequential(nn.Linear(8, 8), drop)
    call = take(net, rows(0))
    for seed in range(9):
        drop.p = 0.1 + 0.3 * (seed // 3)
        net.train(seed % 3 != 2)
        call(rows(seed)).sum().backward()
    return None


@program(replayed=2)
def checkpoints_inside(take: Take) -> Any:
    inner = make_net(8)
    net = Around(lambda h: checkpoint(inner, h, use_reentrant=False))
    return train(take, net), read_grads(inner)


@program(words="cannot capture")
def a_backward_pass_inside(take: Take) -> Any:
    def descend(h: Tensor) -> Tensor:
        h.square().sum().backward(retain_graph=True)
        return h * 2

    return train(take, Around(descend))


@program(replayed=1)
def an_error_at_the_third_call(take: Take) -> Any:
    net = Around(torch.tanh)
    call = take(net, rows(0))
    found = []
    for seed in range(6):
        with contextlib.suppress(IndexError):
            found.append(
                name_error(
                    lambda seed=seed: (
                        call(rows(seed)[:, :4] if seed == 2 else rows(seed)).sum().backward()
                    )
                )
            )
    return found


@program(replayed=3)
def a_cache_with_a_graph(take: Take) -> Any:
    class Grows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.key = nn.Linear(8, 8)

        def forward(self, x: Tensor, past: Tensor) -> Any:
            keys = torch.cat([past, self.key(x)], 0)
            return keys, keys.square().sum(0)

    call = take(Grows(), rows(0), rows(1).requires_grad_())
    past, loss = rows(2).requires_grad_(), torch.zeros(())
    for seed in range(6):
        past, y = call(rows(seed), past[-4:])
        loss = loss + y.sum()
    loss.backward()
    return None


@program(replayed=3)
def a_capture_inside_another(take: Take) -> Any:
    inner = make_net(8)
    outer = nn.Sequential(inner, nn.Linear(8, 2))
    take.in_place(inner, rows(0))
    call = take(outer, rows(0))
    for seed in range(5):
        call(rows(seed)).sum().backward()
        inner(rows(seed)).square().sum().backward()
    return None


@program(replayed=4)
def two_captures_with_one_weight(take: Take) -> Any:
    first, second = nn.Linear(8, 8), nn.Sequential(nn.Tanh(), nn.Linear(8, 8))
    second[1].weight = first.weight
    one, other = take(first, rows(0)), take(second, rows(0).requires_grad_())
    for seed in range(5):
        other(one(rows(seed))).square().sum().backward()
    return None


def _repeat(take: Take, times: int) -> None:
    class Repeats(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            for _ in range(times):
                x = torch.tanh(self.layer(x))
            return x

    call = take(Repeats(), rows(0))
    for seed in range(4):
        (call(rows(seed)).sum() + call(rows(seed + 1)).square().sum()).backward()


@program(replayed=4)
def weights_used_several_times_in_several_calls(take: Take) -> Any:
    return _repeat(take, 3)


@program(replayed=4, rounded=True)
def weights_used_many_times_in_several_calls(take: Take) -> Any:
    return _repeat(take, 6)
