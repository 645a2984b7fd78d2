"""Results, and what the caller does to them. See `table.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from hostile.followed.table import Take, drop_grads, make_net, name_error, program, read_grads, rows
from torch import Tensor, nn


class Returns(nn.Module):
    """What ``function`` makes of a hidden state."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function, self.layer = function, nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Any:
        return self.function(self.layer(x))


@program(replayed=4)
def written_after_the_call(take: Take) -> Any:
    call = take(Returns(lambda h: h * 2), rows(0))
    for seed in range(6):
        y = call(rows(seed))
        y.add_(1).mul_(3)
        y.square().sum().backward()
    return None


@program(replayed=4)
def written_though_the_backward_pass_needs_it(take: Take) -> Any:
    call = take(Returns(torch.tanh), rows(0))

    def step(seed: int) -> None:
        y = call(rows(seed))
        y.mul_(2)
        y.sum().backward()

    return [name_error(lambda seed=seed: step(seed)) for seed in range(5)]


@program(replayed=4)
def chunks(take: Take) -> Any:
    net = Returns(lambda h: h.chunk(2, -1))
    call = take(net, rows(0))
    found = []
    for seed in range(6):
        a, b = call(rows(seed))
        loss = [a.sum(), b.square().sum(), (a * b.exp()).sum()][seed % 3]
        loss.backward()
        found.append(read_grads(net))
    return found


@program(replayed=0)
def a_half_that_is_written(take: Take) -> Any:
    call = take(Returns(lambda h: (h[:, :4], h[:, 4:])), rows(0))
    found = []
    for seed in range(5):
        a, b = call(rows(seed))
        a.mul_(2)
        (a + b).square().sum().backward()
        found.append((a.detach(), b.detach()))
    return found


@program(words="its results share memory")
def a_result_and_its_view_of_which_one_is_written(take: Take) -> Any:
    net = Returns(lambda h: (h, h.view(-1)))
    call = take(net, rows(0))
    found = []
    for seed in range(5):
        drop_grads(net)
        y, view = call(rows(seed))
        y.mul_(3)
        view.square().sum().backward()
        found.append(read_grads(net))
    return found


@program(replayed=4)
def a_result_given_twice(take: Take) -> Any:
    net = Returns(lambda h: (h, h))
    call = take(net, rows(0))
    found: list[Any] = []
    for seed in range(5):
        a, b = call(rows(seed))
        found.append(a is b)
        (a.square() + b).sum().backward()
        found.append(read_grads(net))
    return found


@program(replayed=4)
def a_result_and_itself_detached(take: Take) -> Any:
    call = take(Returns(lambda h: (h.square(), h.detach(), h.argmax())), rows(0))
    found = []
    for seed in range(5):
        a, b, c = call(rows(seed))
        a.sum().backward()
        found.append((b, c, a.requires_grad, b.requires_grad))
    return found


@dataclass
class Answer:
    """A result."""

    value: Tensor
    rest: Any


@program(words="returns")
def a_dataclass(take: Take) -> Any:
    call = take(Returns(lambda h: Answer(h, None)), rows(0))
    for seed in range(4):
        call(rows(seed)).value.sum().backward()
    return None


@program(words="view of an argument or a weight")
def a_view_of_a_weight(take: Take) -> Any:
    net = make_net()
    module = Returns(lambda h: (h, net[0].weight[0]))
    call = take(module, rows(0))
    for seed in range(4):
        a, b = call(rows(seed))
        (a.sum() + b.sum()).backward()
    return None


@program(words="view of an argument or a weight")
def a_weight(take: Take) -> Any:
    net = make_net()
    call = take(Returns(lambda h: (h, net[0].weight)), rows(0))
    for seed in range(4):
        a, b = call(rows(seed))
        (a.sum() + b.sum()).backward()
    return read_grads(net)


@program(replayed=4)
def held_and_hooked(take: Take) -> Any:
    net = make_net()
    call = take(net, rows(0))
    found: list[Any] = []
    for seed in range(6):
        y = call(rows(seed))
        y.retain_grad()
        if seed % 2:
            y.register_hook(lambda grad: grad * 2)
        y.square().sum().backward()
        found.append(y.grad)
    return found


@program(replayed=4)
def detached_in_place(take: Take) -> Any:
    net = make_net()
    call = take(net, rows(0))
    found: list[Any] = []
    for seed in range(5):
        y = call(rows(seed))
        (y.sum() if seed % 2 else y.detach_().requires_grad_().sum()).backward()
        found.append((y.is_leaf, y.requires_grad, read_grads(net)))
    return found


@program(replayed=4)
def complex_numbers(take: Take) -> Any:
    net = nn.Linear(8, 4, dtype=torch.complex64)
    call = take(net, rows(0).to(torch.complex64))
    for seed in range(5):
        call(rows(seed).to(torch.complex64) * 1j).abs().square().sum().backward()
    return None


@program(replayed=4)
def no_weights(take: Take) -> Any:
    call = take(torch.tanh, rows(0).requires_grad_())
    found = []
    for seed in range(5):
        x = rows(seed).requires_grad_()
        call(x).sum().backward()
        found.append(x.grad)
    return found


@program(replayed=4)
def nothing_that_needs_gradients(take: Take) -> Any:
    net = make_net().requires_grad_(False)
    call = take(net, rows(0))
    return [(call(rows(seed)), call(rows(seed)).requires_grad) for seed in range(4)]


@program(replayed=4)
def results_that_are_used_in_the_wrong_mode(take: Take) -> Any:
    call = take(make_net(), rows(0))
    found: list[Any] = []
    for seed in range(8):
        mode = [torch.enable_grad, torch.no_grad, torch.inference_mode][seed % 3]
        with mode():
            y = call(rows(seed))
        found.append(
            (y, y.requires_grad, y.is_inference(), name_error(lambda y=y: y.sum().backward()))
        )
    return found
