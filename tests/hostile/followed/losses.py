"""How the caller goes backward. See `table.py`."""

from __future__ import annotations

import gc
import weakref
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

import ftax


@program(replayed=4)
def losses_of_many_kinds(take: Take) -> Any:
    call = take(make_net(), rows(0))
    kinds = [
        lambda y: y.sum(),
        lambda y: y.mean(),
        lambda y: y[1:, ::2].square().sum(),
        lambda y: y[2, 3],
        lambda y: F.cross_entropy(y, torch.arange(4)),
        lambda y: y.t().contiguous().square().sum(),
    ]
    for seed, kind in enumerate(kinds * 2):
        kind(call(rows(seed))).backward()
    return None


@program(replayed=4)
def gradients_that_lie_in_many_ways(take: Take) -> Any:
    net = make_net()
    call = take(net, rows(0))
    plain = torch.linspace(-1, 1, 16)
    ways = [
        plain.reshape(4, 4),
        plain.reshape(4, 4).t(),
        torch.linspace(-1, 1, 32).reshape(4, 8)[:, ::2],
        torch.ones(()).expand(4, 4),
        torch.ones(4).expand(4, 4),
        torch.ones(4, 1).expand(4, 4),
    ]
    found = []
    for _ in range(2):
        for seed, way in enumerate(ways):
            drop_grads(net)
            call(rows(seed)).backward(way)
            found.append(read_grads(net))
    return found


@program(replayed=4)
def results_by_turns(take: Take) -> Any:
    net = Heads()
    call = take(net, rows(0))
    found = []
    for seed in range(9):
        drop_grads(net)
        result = call(rows(seed))
        losses = [result["left"].sum(), result["rest"][0].square().mean()]
        loss = [losses[0], losses[1], losses[0] + losses[1]][seed % 3]
        loss.backward()
        found.append((read_grads(net), result["rest"][1:]))
    return found


@program(replayed=10)
def more_subsets_of_results_than_are_recorded(take: Take) -> Any:
    class Many(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.ModuleList(nn.Linear(8, 1) for _ in range(4))

        def forward(self, x: Tensor) -> Any:
            return [part(x) for part in self.parts]

    net = Many()
    call = take(net, rows(0))
    found = []
    for subset in range(1, 16):
        drop_grads(net)
        results = call(rows(subset))
        sum(item.square().sum() for i, item in enumerate(results) if subset >> i & 1).backward()
        found.append(read_grads(net))
    return found


@program()
def one_result_under_autocast(take: Take) -> Any:
    net = Heads()
    found = []
    with torch.autocast("cpu", torch.bfloat16):
        call = take(net, rows(0))
    for seed in range(4):
        drop_grads(net)
        with torch.autocast("cpu", torch.bfloat16):
            result = call(rows(seed))["left"]
        result.float().square().sum().backward()
        found.append(read_grads(net))
    return found


@program(warns="has changed since its forward pass")
def one_result_of_a_module_that_is_put_to_eval(take: Take) -> Any:
    net = nn.Sequential(make_net(8), Heads())
    call = take(net, rows(0))
    found = []
    for seed in range(3):
        drop_grads(net)
        result = call(rows(seed))["left"]
        net.eval()
        result.sum().backward()
        net.train()
        found.append(read_grads(net))
    return found


@program()
def dropout_changed_before_another_backward_pass(take: Take) -> Any:
    drop = nn.Dropout(0.2)
    net = nn.Sequential(nn.Linear(8, 8), drop, nn.Linear(8, 4))
    call = take(net, rows(0))
    found = []
    for seed in range(4):
        drop_grads(net)
        result = call(rows(seed))
        drop.p = 0.5
        result.t().square().sum().backward()
        drop.p = 0.2
        found.append(read_grads(net))
    return found


@program(replayed=4)
def asked_for_by_grad(take: Take) -> Any:
    net = Heads()
    call = take(net, rows(0).requires_grad_())
    found = []
    for seed in range(6):
        x = rows(seed).requires_grad_()
        loss = call(x)["left"].square().sum()
        asked = [[x], [net.left.weight], [x, net.trunk.bias, net.right.weight]][seed % 3]
        found.append(torch.autograd.grad(loss, asked, allow_unused=True))
    loss = call(rows(7).requires_grad_())["left"].sum()
    found.append(name_error(lambda: torch.autograd.grad(loss, [net.right.weight])))
    return found


@program(replayed=4)
def backward_twice(take: Take) -> Any:
    call = take(make_net(), rows(0))
    found = []
    for seed in range(6):
        loss = call(rows(seed)).sum()
        loss.backward(retain_graph=seed % 2 == 1)
        found.append(name_error(loss.backward))
    return found


@program(replayed=4)
def a_function_that_gives_no_gradient(take: Take) -> Any:
    class Stop(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, y: Tensor) -> Tensor:
            return y * 2

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return None

    net = make_net()
    call = take(net, rows(0))
    found = []
    for seed in range(5):
        Stop.apply(call(rows(seed))).sum().backward()
        found.append(read_grads(net))
    return found


@program(replayed=4)
def infinite_losses(take: Take) -> Any:
    call = take(make_net(), rows(0))
    for seed, factor in enumerate([1.0, float("inf"), 0.0, float("nan"), -1.0]):
        (call(rows(seed)) * factor).sum().backward()
    return None


@program(replayed=4)
def results_that_no_loss_uses(take: Take) -> Any:
    call = take(make_net(), rows(0))
    held = [call(rows(seed)) for seed in range(6)]
    known = weakref.ref(held[-1])
    del held
    gc.collect()
    call(rows(7)).sum().backward()
    return known() is None


@program(replayed=4)
def several_calls_in_one_loss(take: Take) -> Any:
    call = take(nn.Sequential(nn.Linear(8, 8), nn.Tanh()), rows(0).requires_grad_())
    found = []
    for seed in range(4):
        h = rows(seed).requires_grad_()
        loss = torch.zeros(())
        for _ in range(3):
            h = call(h)
            loss = loss + h.square().mean()
        loss.backward()
        found.append(h.detach())
    return found


@program(replayed=4)
def gradient_of_a_call_given_to_the_next(take: Take) -> Any:
    net = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
    call = take(net, rows(0).requires_grad_())
    x = rows(0)
    for _ in range(6):
        x = x.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(call(x).square().sum(), x)
        x = x - gradient
    return x


@program(replayed=4)
def gradient_written_by_its_giver(take: Take) -> Any:
    class Add(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Parameter(rows(1)), nn.Parameter(rows(2))

        def forward(self, x: Tensor) -> Tensor:
            return x + self.a + self.b

    net = Add()
    call = take(net, rows(0).requires_grad_())
    found = []
    for seed in range(5):
        drop_grads(net)
        x, given = rows(seed).requires_grad_(), rows(seed + 1)
        call(x).backward(given)
        given.zero_()
        net.a.grad.mul_(3)
        found.append((x.grad, read_grads(net)))
        call(x).backward(rows(3))
        found.append((x.grad, read_grads(net)))
    return found


@program(replayed=4)
def a_gradient_penalty(take: Take) -> Any:
    """Eager has an answer; a replay has none, and says so."""
    net = make_net()
    call = take(net, rows(0).requires_grad_())

    def penalize(seed: int) -> str:
        x = rows(seed).requires_grad_()
        (grad,) = torch.autograd.grad(call(x).sum(), x, create_graph=True)
        try:
            (grad.square().sum() + call(x).sum()).backward()
        except ftax.UnsupportedError as error:
            drop_grads(net)
            return str(error)[:50]
        drop_grads(net)
        return ""

    told = {penalize(seed) for seed in range(5)}
    expected = "the capture of Sequential cannot be differentiated"
    return told == ({expected} if take.taken else {""})


@program(replayed=2)
def a_hessian(take: Take) -> Any:
    call = take(make_net().eval(), rows(0).requires_grad_())
    hessian = torch.autograd.functional.hessian
    told = []
    for seed in range(3):
        try:
            hessian(lambda x: call(x).square().sum(), rows(seed))
        except ftax.UnsupportedError as error:
            told.append("cannot be differentiated twice" in str(error))
    return told == ([True] * 3 if take.taken else [])


@program(replayed=3)
def a_jacobian(take: Take) -> Any:
    call = take(make_net().eval(), rows(0).requires_grad_())
    found: list[Any] = []
    for seed in range(4):
        found.append(torch.autograd.functional.jacobian(call, rows(seed)))
        try:
            torch.autograd.functional.jacobian(call, rows(seed), vectorize=True)
        except ftax.UnsupportedError as error:
            found.append("a batch of gradients" in str(error))
        else:
            found.append(not take.taken)
    return found


@program(replayed=3)
def backward_of_some_weights(take: Take) -> Any:
    net = make_net()
    call = take(net, rows(0))
    found = []
    for seed in range(5):
        loss = call(rows(seed)).sum()
        loss.backward(inputs=[net[0].weight, net[4].bias])
        torch.autograd.backward([call(rows(seed)), call(rows(9))], [rows(1)[:, :4], rows(2)[:, :4]])
        found.append(read_grads(net))
    return found
