"""Inputs. See `table.py`."""

from __future__ import annotations

from typing import Any

import torch
from hostile.followed.table import Take, drop_grads, make_net, name_error, program, read_grads, rows
from torch import Tensor, nn


class Joins(nn.Module):
    """Uses both inputs several times."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.tanh(self.a(x) * self.b(y)) + self.b(x).sigmoid() * self.a(y) + x * y


@program(replayed=4)
def an_input_given_twice(take: Take) -> Any:
    first = rows(0).requires_grad_()
    call = take(Joins(), first, first)
    found = []
    for seed in range(6):
        x = rows(seed).requires_grad_()
        call(x, x).square().sum().backward()
        found.append(x.grad)
    return found


@program(replayed=2)
def an_input_and_its_view(take: Take) -> Any:
    first = rows(0).requires_grad_()
    call = take(Joins(), first, first.view(4, 8).requires_grad_())
    found = []
    for seed in range(6):
        x = rows(seed).requires_grad_()
        call(x, x.view(4, 8)).square().sum().backward()
        found.append(x.grad)
    return found


@program(words="cannot capture")
def an_input_that_is_a_weight(take: Take) -> Any:
    net = Joins()
    net.a = nn.Linear(8, 8)
    with torch.no_grad():
        net.b.weight.copy_(net.a.weight)
    call = take(net, net.a.weight, net.b.weight)
    found = []
    for _ in range(5):
        call(net.a.weight, net.b.weight).square().sum().backward()
        found.append(read_grads(net))
    return found


@program(replayed=4)
def an_input_used_outside_too(take: Take) -> Any:
    call = take(Joins(), rows(0).requires_grad_(), rows(1))
    found = []
    for seed in range(6):
        x = rows(seed).requires_grad_()
        h = x * 1.5
        (h * 0.3 + call(h, rows(1))).square().sum().backward()
        found.append(x.grad)
    return found


@program(replayed=4)
def an_input_used_outside_later(take: Take) -> Any:
    call = take(Joins(), rows(0).requires_grad_(), rows(1))
    found = []
    for seed in range(6):
        x = rows(seed).requires_grad_()
        h = x * 1.5
        (call(h, rows(1)) + h * 0.3).square().sum().backward()
        found.append(x.grad)
    return found


@program(replayed=4)
def hooked_and_held(take: Take) -> Any:
    call = take(make_net(), rows(0).requires_grad_())
    found: list[Any] = []
    for seed in range(6):
        x = rows(seed).requires_grad_()
        h = x * 2
        h.retain_grad()
        h.register_hook(lambda grad, seed=seed: found.append(("hook", seed)) or grad * 3)
        call(h).square().sum().backward()
        found.append((h.grad, x.grad))
    return found


@program(replayed=4)
def a_leaf_with_hooks(take: Take) -> Any:
    call = take(make_net(), rows(0).requires_grad_())
    found: list[Any] = []
    for seed in range(6):
        x = rows(seed).requires_grad_()
        x.register_hook(lambda grad: grad * 3)
        x.register_post_accumulate_grad_hook(lambda x: found.append(x.grad.clone()))
        call(x).square().sum().backward()
        found.append(x.grad)
    return found


@program(replayed=4)
def written_before_and_after(take: Take) -> Any:
    net = make_net()
    call = take(net, rows(0))

    def step(seed: int) -> None:
        x = rows(seed)
        x.mul_(2)
        y = call(x)
        if seed % 3 == 2:
            x.add_(1)
        y.sum().backward()

    return [(name_error(lambda seed=seed: step(seed)), drop_grads(net)) for seed in range(7)]


@program(replayed=4, warns="batch is 0")
def batches_of_many_sizes(take: Take) -> Any:
    net = make_net()
    call = take(net, rows(0))
    found = []
    for seed, count in enumerate([4, 0, 1, 4, 0, 1, 4, 7, 7]):
        drop_grads(net)
        call(rows(seed, count)).square().sum().backward()
        found.append(read_grads(net))
    return found


@program(replayed=2)
def gradients_of_the_input_by_turns(take: Take) -> Any:
    net = make_net()
    call = take(net, rows(0))
    found = []
    for seed in range(8):
        x = rows(seed).requires_grad_(seed % 2 == 1)
        call(x).sum().backward()
        found.append(x.grad)
    return found


@program()
def tensors_of_inference_mode(take: Take) -> Any:
    net = make_net()
    call = take(net, rows(0))
    found = []
    for seed in range(5):
        drop_grads(net)
        with torch.inference_mode():
            x = rows(seed).clone()
        given = x if seed % 2 else x.clone()
        found.append(name_error(lambda given=given: call(given).sum().backward()))
        found.append(read_grads(net))
    return found


@program(replayed=2)
def layouts(take: Take) -> Any:
    net = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 2, 1))
    image = torch.linspace(-1, 1, 512).reshape(1, 8, 8, 8).requires_grad_()
    call = take(net, image)
    found = []
    for seed in range(8):
        x = (image.detach() * (seed + 1)).requires_grad_()
        given = [x, x.to(memory_format=torch.channels_last), x.transpose(2, 3)][seed % 3]
        call(given).square().sum().backward()
        found.append(x.grad)
    return found


@program(replayed=3)
def double_precision(take: Take) -> Any:
    net = make_net().double()
    call = take(net, rows(0).double())
    for seed in range(5):
        call(rows(seed).double()).sum().backward()
    return None


@program(replayed=3)
def keywords_and_nests(take: Take) -> Any:
    class Nested(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, batch: Any, *, scale: float = 1.0) -> Any:
            return {"out": self.layer(batch["x"]) * batch["more"][0] * scale}

    def make(seed: int) -> Any:
        return {"x": rows(seed), "more": [rows(seed + 1).requires_grad_()]}

    call = take(Nested(), make(0))
    found = []
    for seed in range(7):
        batch = make(seed)
        call(batch, **({"scale": 2.0} if seed > 3 else {}))["out"].sum().backward()
        found.append(batch["more"][0].grad)
    return found
