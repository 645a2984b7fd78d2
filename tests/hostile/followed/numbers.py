"""Numbers that a module reads of tensors, beside results that autograd goes on from. See
`table.py`."""

from __future__ import annotations

from typing import Any

import torch
from hostile.followed.table import Around, Take, drop_grads, program, read_grads, rows
from torch import Tensor


def tell(h: Tensor) -> Any:
    """Of a hidden state, before it becomes a result and after."""
    y = torch.tanh(h)
    number, row = h.sum().item(), h.detach()[0].tolist()
    return {"size": number, "y": y, "rest": [float(y.detach().norm()), row, 3, y * 2]}


def follow(take: Take, function: Any, calls: int = 6) -> Any:
    """All that calls give, and gradients of losses that are not alike."""
    net = Around(function)
    call = take(net, rows(0))
    found: list[Any] = []
    for seed in range(calls):
        drop_grads(net)
        result = call(rows(seed))
        y = result["y"] if isinstance(result, dict) else result[0]
        (y.square().sum() if seed % 3 else y.exp().mean()).backward()
        found += [result, read_grads(net)]
    return found


@program(replayed=4)
def numbers_beside_results(take: Take) -> Any:
    return follow(take, tell)


@program(replayed=4)
def numbers_of_what_is_written_later(take: Take) -> Any:
    def run(h: Tensor) -> Any:
        y = h * 2
        kept = y.detach().clone()
        before = kept.sum().item()
        kept.mul_(3)
        return y, before, kept.sum().item()

    return follow(take, run)


@program(replayed=4)
def numbers_with_and_without_a_backward_pass(take: Take) -> Any:
    net = Around(tell)
    call = take(net, rows(0))
    found: list[Any] = []
    for seed in range(8):
        with torch.set_grad_enabled(seed % 2 == 0):
            found.append(call(rows(seed)))
        if seed % 4 == 0:
            found[-1]["rest"][-1].sum().backward()
    return found


@program(words="reads a number")
def a_number_that_scales_a_result(take: Take) -> Any:
    return follow(take, lambda h: (h * 2, (h * h.detach().norm().item()), h.sum().item()))


@program(words="reads a number")
def a_number_that_chooses_a_result(take: Take) -> Any:
    def run(h: Tensor) -> Any:
        size = h.sum().item()
        return (h if size > 3 else h * 2), size

    return follow(take, run)


@program(words="reads a number")
def a_number_that_a_backward_pass_uses(take: Take) -> Any:
    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, h: Tensor, size: float) -> Any:
            ctx.size = size
            return h * 1

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> Any:
            return grads[0] * ctx.size, None

    def run(h: Tensor) -> Any:
        size = h.detach().sum().item()
        return Scale.apply(h, size), size  # type: ignore[no-untyped-call]

    return follow(take, run)


@program(words="reads a number")
def a_number_that_a_hook_uses(take: Take) -> Any:
    def run(h: Tensor) -> Any:
        size, y = h.detach().sum().item(), h * 2
        y.register_hook(lambda grad: grad * size)
        return y * 3, size

    return follow(take, run)
