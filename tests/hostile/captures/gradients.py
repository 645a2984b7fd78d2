"""Gradients that add up, are asked for, or that a function of autograd makes. See `table.py`."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from hostile.captures.table import (
    Scene,
    one,
    refused,
    right,
    step_and_clear,
)
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from support.small_models import normal


@right()
def gradients_accumulated() -> Scene:
    net = nn.Linear(4, 2)

    def step(x: Tensor) -> None:
        net(x).square().mean().backward()

    def disturb(at: int) -> None:
        net.zero_grad(set_to_none=bool(at))

    return Scene(
        step,
        disturb=disturb,
        watch=lambda: [(w, w.grad) for w in net.parameters()],
        around=contextlib.nullcontext,
    )


@refused("leaves a gradient in .grad of an argument")
def gradient_of_an_argument() -> Scene:
    def step(x: Tensor) -> Tensor:
        loss = x.square().sum()
        loss.backward()
        return loss.detach()

    return Scene(step, lambda seed: (one(seed)[0].requires_grad_(),), around=contextlib.nullcontext)


@right()
def gradients_as_results() -> Scene:
    net = nn.Linear(4, 2)

    def step(x: Tensor) -> Any:
        return torch.autograd.grad(net(x).square().sum(), list(net.parameters()))

    return Scene(step, around=contextlib.nullcontext)


@refused("leaves a gradient in .grad of an argument")
def gradient_of_a_gradient() -> Scene:
    net = nn.Sequential(nn.Linear(4, 2), nn.Tanh())

    def step(x: Tensor) -> Any:
        x = x.requires_grad_()
        (first,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)
        first.square().sum().backward()
        return first.detach()

    return Scene(
        step,
        lambda seed: (one(seed)[0].requires_grad_(),),
        watch=lambda: [w.grad for w in net.parameters()],
        around=contextlib.nullcontext,
    )


@right()
def gradient_of_an_argument_as_a_result() -> Scene:
    net = nn.Linear(4, 2)

    def step(x: Tensor) -> Any:
        return torch.autograd.grad(net(x).square().sum(), x)[0]

    return Scene(step, lambda s: (one(s)[0].requires_grad_(),), around=contextlib.nullcontext)


@right()
def argument_made_to_need_gradients() -> Scene:
    net = nn.Linear(4, 2)

    def step(x: Tensor) -> Any:
        x = x.detach().clone().requires_grad_()
        net(x).square().sum().backward()
        return x.grad

    return Scene(
        step,
        disturb=lambda _: net.zero_grad(),
        watch=lambda: [w.grad for w in net.parameters()],
        around=contextlib.nullcontext,
    )


@right()
def gradients_without_a_graph_in_between() -> Scene:
    net = nn.Linear(4, 4)

    def step(x: Tensor) -> Any:
        with torch.no_grad():
            target = net(x)
        loss = (net(x + 1) - target).square().sum()
        loss.backward()
        with torch.no_grad():
            for weight in net.parameters():
                weight.sub_(weight.grad, alpha=0.1)
                weight.grad = None
        return loss.detach()

    return Scene(step, watch=lambda: list(net.parameters()), around=contextlib.nullcontext)


@right()
def checkpointed() -> Scene:
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh())

    def step(x: Tensor) -> Tensor:
        net.zero_grad()
        loss = checkpoint(net, x, use_reentrant=False, preserve_rng_state=False).sum()
        loss.backward()
        return loss.detach()

    return Scene(
        step, watch=lambda: [w.grad for w in net.parameters()], around=contextlib.nullcontext
    )


@right()
def checkpointed_with_dropout() -> Scene:
    net = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))

    def step(x: Tensor) -> Tensor:
        net.zero_grad()
        loss = checkpoint(net, x, use_reentrant=False).sum()
        loss.backward()
        return loss.detach()

    return Scene(
        step, watch=lambda: [w.grad for w in net.parameters()], around=contextlib.nullcontext
    )


class Cube(torch.autograd.Function):
    factor = 3.0

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return grad * x.square() * Cube.factor


@right()
def function_of_autograd() -> Scene:
    Cube.factor = 3.0
    weight = nn.Parameter(normal(4, seed=5))

    def step(x: Tensor) -> Tensor:
        weight.grad = None
        loss = Cube.apply(x * weight).sum()
        loss.backward()
        return loss.detach()

    return Scene(
        step,
        disturb=lambda at: setattr(Cube, "factor", at + 4.0),
        watch=lambda: weight.grad,
        around=contextlib.nullcontext,
    )


@right()
def update_by_gradients_made_outside() -> Scene:
    net = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def make_gradients(at: int) -> None:
        optimizer.zero_grad()
        net(normal(3, 4, seed=at + 7)).square().mean().backward()

    def step(x: Tensor) -> Tensor:
        optimizer.step()
        return net.weight.detach().sum() * x

    make_gradients(-1)
    return Scene(
        step,
        disturb=make_gradients,
        watch=lambda: list(net.parameters()),
        around=contextlib.nullcontext,
    )


@right()
def gradient_that_is_read() -> Scene:
    weight = nn.Parameter(normal(4, seed=5))
    weight.grad = torch.ones(4)

    def disturb(at: int) -> None:
        weight.grad = torch.full((4,), 7.0 + at)

    return Scene(lambda x: x * weight.grad, disturb=disturb)


def _keep_a_frozen_layer(*, clips: bool) -> Scene:
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Linear(4, 4))
    net[0].requires_grad_(False)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad(set_to_none=clips)
        loss = net[:3](x).square().mean()
        loss.backward()
        if clips:
            nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        optimizer.step()
        return loss.detach()

    return Scene(
        step,
        watch=lambda: [*net.parameters(), *(item.grad for item in net.parameters())],
        around=contextlib.nullcontext,
    )


@right()
def frozen_and_unused_layers_are_clipped() -> Scene:
    return _keep_a_frozen_layer(clips=True)


@right()
def frozen_and_unused_layers_keep_their_gradients() -> Scene:
    return _keep_a_frozen_layer(clips=False)


@refused("autograd would have to follow its result")
def result_that_no_pass_went_by() -> Scene:
    first, second = nn.Linear(4, 4), nn.Linear(4, 1)
    optimizer = torch.optim.SGD(second.parameters(), lr=0.1)

    def step(x: Tensor) -> Tensor:
        made = first(x)
        optimizer.zero_grad()
        second(made.detach()).mean().backward()
        optimizer.step()
        return made

    return Scene(step, watch=lambda: second.weight, around=contextlib.nullcontext)


@right()
def results_that_a_pass_went_by() -> Scene:
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))

    def step(x: Tensor) -> tuple[Tensor, Tensor]:
        net.zero_grad()
        made = net[0](x)
        loss = net[1](made).square().mean()
        loss.backward()
        return loss, made

    return Scene(step, watch=lambda: net[0].weight.grad, around=contextlib.nullcontext)


def make_step(work: Any) -> Scene:
    weight, other = nn.Parameter(torch.ones(4)), nn.Parameter(torch.full((4,), 2.0))
    kept: list[Tensor] = []

    def step(x: Tensor) -> None:
        work(weight, other, (weight * x).sum())

    def disturb(at: int) -> None:
        kept.append(weight.grad.detach())
        weight.grad = None

    return Scene(
        step,
        disturb=disturb,
        watch=lambda: [weight.grad, other.grad, *kept],
        around=contextlib.nullcontext,
    )


@right()
def gradient_that_somebody_holds() -> Scene:
    return make_step(lambda weight, other, loss: loss.backward())


@refused("looks at the gradient that was there before")
def gradient_of_the_call_before() -> Scene:
    def work(weight: Tensor, other: Tensor, loss: Tensor) -> None:
        before, weight.grad = weight.grad, None
        loss.backward()
        if before is not None:
            weight.grad.add_(before, alpha=0.5)

    return make_step(work)


@refused("looks at the gradient that was there before")
def gradients_that_are_swapped() -> Scene:
    def work(weight: Tensor, other: Tensor, loss: Tensor) -> None:
        loss.backward()
        weight.grad, other.grad = other.grad, weight.grad

    return make_step(lambda weight, other, loss: work(weight, other, loss + 0 * other.sum()))


@refused("looks at the gradient that was there before")
def whether_there_was_a_gradient() -> Scene:
    def work(weight: Tensor, other: Tensor, loss: Tensor) -> None:
        factor = 1.0 if weight.grad is None else 2.0
        weight.grad = None
        (loss * factor if factor > 1 else loss).backward()

    return make_step(work)


@right(recorded=1, replayed=5)
def weight_that_is_never_used() -> Scene:
    net, unused = nn.Linear(4, 2), nn.Linear(4, 2)
    optimizer = torch.optim.SGD([*net.parameters(), *unused.parameters()], lr=0.1)

    def step(x: Tensor) -> Tensor:
        return step_and_clear(net(x).square().mean(), optimizer)

    return Scene(
        step,
        watch=lambda: [*net.parameters(), *unused.parameters()],
        around=contextlib.nullcontext,
    )


@right(recorded=1, replayed=5)
def weight_of_another_step() -> Scene:
    trunk, own, other = nn.Linear(4, 4), nn.Linear(4, 2), nn.Linear(4, 2)
    weights = [weight for part in (trunk, own, other) for weight in part.parameters()]
    optimizer = torch.optim.SGD(weights, lr=0.1, momentum=0.9, weight_decay=0.1)
    for head in (other, own):  # so that each has momentum, on which a gradient of 0 goes on
        optimizer.zero_grad()
        head(trunk(torch.ones(3, 4))).square().mean().backward()
        optimizer.step()

    optimizer.zero_grad()

    def step(x: Tensor) -> Tensor:
        return step_and_clear(own(trunk(x)).square().mean(), optimizer)

    return Scene(step, watch=lambda: weights, around=contextlib.nullcontext)


@right()
def weight_that_is_frozen_between_calls() -> Scene:
    net = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)

    def step(x: Tensor, is_last: bool) -> None:
        net(x).square().mean().backward()
        if is_last:
            optimizer.step()
            optimizer.zero_grad()

    return Scene(
        step,
        lambda call: (*one(call), call % 2 == 1),
        disturb=lambda at: net.weight.requires_grad_(bool(at)),
        watch=lambda: [(w, w.grad) for w in net.parameters()],
        around=contextlib.nullcontext,
    )


@right()
def weight_that_is_frozen_in_the_middle_of_accumulation() -> Scene:
    net = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)

    def step(x: Tensor, is_last: bool) -> None:
        net(x).square().mean().backward()
        if is_last:
            optimizer.step()
            optimizer.zero_grad()

    return Scene(
        step,
        lambda call: (*one(call), call in (2, 5)),
        disturb=lambda at: net.weight.requires_grad_(bool(at)),
        watch=lambda: [(w, w.grad) for w in net.parameters()],
        around=contextlib.nullcontext,
    )


def _drop_gradient_of(leaf: Tensor) -> Scene:
    def step(x: Tensor) -> Tensor:
        leaf.grad = None
        return x + leaf

    def disturb(_: int) -> None:
        leaf.grad = torch.ones_like(leaf)

    return Scene(step, disturb=disturb, watch=lambda: [leaf.grad])


@right(replayed=2)
def gradient_of_a_frozen_weight_dropped() -> Scene:
    return _drop_gradient_of(nn.Parameter(normal(4), requires_grad=False))


@right(replayed=2)
def gradient_of_a_plain_tensor_dropped() -> Scene:
    return _drop_gradient_of(normal(4))


@right(replayed=2)
def gradient_of_a_plain_tensor_made() -> Scene:
    leaf = normal(4)

    def step(x: Tensor) -> Tensor:
        leaf.grad = x[0] * 2
        return x + leaf

    return Scene(step, watch=lambda: [leaf.grad])
