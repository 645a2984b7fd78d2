"""Python that runs in the backward pass: functions of autograd, hooks. See `table.py`."""

from __future__ import annotations

from typing import Any

import torch
from hostile.followed.table import (
    Around,
    Take,
    drop_grads,
    make_net,
    program,
    read_grads,
    rows,
    train,
)
from torch import Tensor, library


class _Scaled(torch.autograd.Function):
    factor, calls = 2.0, 0

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 1.5

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0] * _Scaled.factor if ctx.needs_input_grad[0] else None


@program(replayed=2)
def a_function_whose_backward_reads_python(take: Take) -> Any:
    net = Around(_Scaled.apply)
    call = take(net, rows(0))
    try:
        for seed in range(8):
            _Scaled.factor = 2.0 + seed // 4
            call(rows(seed)).sum().backward()
    finally:
        _Scaled.factor = 2.0
    return read_grads(net)


@program(found=True, warns="other values")
def a_factor_changed_before_the_backward_pass(take: Take) -> Any:
    net = Around(_Scaled.apply)
    call = take(net, rows(0))
    found = []
    try:
        for seed in range(6):
            drop_grads(net)
            y = call(rows(seed))
            _Scaled.factor = 3.0
            y.sum().backward()
            _Scaled.factor = 2.0
            found.append(read_grads(net))
    finally:
        _Scaled.factor = 2.0
    return found


class _Counted(torch.autograd.Function):
    calls = 0

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        _Counted.calls += 1
        return grads[0]


@program(words="cannot capture")
def a_function_whose_backward_counts(take: Take) -> Any:
    _Counted.calls = 0
    found = train(take, Around(_Counted.apply))
    return found, _Counted.calls


@program(words="cannot capture")
def a_hook_inside_that_keeps_what_it_sees(take: Take) -> Any:
    seen: list[Any] = []

    def watch(h: Tensor) -> Tensor:
        h.register_hook(lambda grad: seen.append(grad.sum()))
        return h * 2

    return train(take, Around(watch)), seen


@program(replayed=4)
def a_hook_inside_that_changes_gradients(take: Take) -> Any:
    def watch(h: Tensor) -> Tensor:
        if h.requires_grad:
            h.register_hook(lambda grad: grad.clamp(-1, 1))
        return h * 2

    return train(take, Around(watch))


@program(replayed=2)
def hooks_of_modules(take: Take) -> Any:
    net = make_net()
    call = take(net, rows(0))
    found = []
    for seed in range(8):
        hooks = []
        if seed > 3:
            hooks.append(net[0].register_forward_hook(lambda _, given, result: result * 2))
            hooks.append(net[4].register_full_backward_hook(lambda _, mine, given: (mine[0] * 3,)))
        drop_grads(net)
        call(rows(seed)).sum().backward()
        found.append(read_grads(net))
        for hook in hooks:
            hook.remove()
    return found


@program(replayed=2)
def an_operator_with_a_backward_pass(take: Take) -> Any:
    with library._scoped_library("followed", "FRAGMENT"):

        @library.custom_op("followed::cube", mutates_args=())
        def cube(x: Tensor) -> Tensor:
            return x**3

        def setup(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs)

        cube.register_autograd(
            lambda ctx, grad: grad * 3 * ctx.saved_tensors[0] ** 2, setup_context=setup
        )
        return train(take, Around(cube))


class _Both(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Any:
        ctx.set_materialize_grads(False)
        results = x.exp(), x.sin()
        ctx.save_for_backward(results[0], x)
        return results

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        exponential, x = ctx.saved_tensors
        factors = exponential, x.cos()
        found = [grad * by for grad, by in zip(grads, factors, strict=True) if grad is not None]
        return sum(found) if found else None


class _Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0] * 2


@program(replayed=4)
def functions_that_write_and_look_at_which_gradients_come(take: Take) -> Any:
    net = Around(lambda h: _Both.apply(_Doubled.apply(h)))
    call = take(net, rows(0))
    found = []
    for seed in range(8):
        y, z = call(rows(seed))
        [y.sum(), z.square().sum(), (y * z).sum()][seed % 3].backward()
        found.append(read_grads(net))
    return found
