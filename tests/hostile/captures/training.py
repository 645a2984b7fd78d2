"""Training. See `table.py`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hostile.captures.table import (
    CHANGES,
    Scene,
    nothing,
    one,
    refused,
    right,
    step_and_clear,
)
from torch import Tensor, nn

import ftax


def _train(
    make: Callable[[list[Tensor]], Any] | None = None,
    *,
    disturb: Callable[[Any, Any, int], object] = nothing,
    after: Callable[[nn.Module, Any], object] = nothing,
    clear: Callable[[Any], object] = lambda optimizer: optimizer.zero_grad(),
    module: Callable[[], nn.Module] = lambda: nn.Linear(4, 2),
) -> Scene:
    net = module()
    optimizer = (make or (lambda weights: torch.optim.SGD(weights, 0.1)))(list(net.parameters()))

    def step(x: Tensor) -> Tensor:
        clear(optimizer)
        loss = net(x).square().mean()
        loss.backward()
        after(net, optimizer)
        optimizer.step()
        return loss.detach()

    return Scene(
        step,
        disturb=lambda at: disturb(net, optimizer, at),
        watch=lambda: (
            net.state_dict(),
            [item.grad for item in net.parameters()],
            optimizer.state_dict(),
        ),
        around=contextlib.nullcontext,
    )


def _optimizer(name: str, *, of: str, words: str = "", **given: Any) -> None:
    def make() -> Scene:
        return _train(lambda weights: getattr(torch.optim, of)(weights, **given))

    make.__name__ = name
    (refused(words) if words else right())(make)


_optimizer("train_sgd", of="SGD", lr=0.1)
_optimizer("train_sgd_momentum", of="SGD", lr=0.1, momentum=0.9, nesterov=True)
_optimizer("train_adam_for_loop", of="AdamW", lr=0.1, foreach=False, words="cannot capture")
_optimizer("train_adam_foreach", of="AdamW", lr=0.1, foreach=True, words="cannot capture")
_optimizer("train_adam_fused", of="AdamW", lr=0.1, fused=True)
_optimizer("train_adam_amsgrad", of="Adam", lr=0.1, fused=True, amsgrad=True)
_optimizer("train_rmsprop", of="RMSprop", lr=0.1)
_optimizer("train_adagrad", of="Adagrad", lr=0.1, words="cannot capture")


@refused("capture the closure")
def train_lbfgs() -> Scene:
    net = nn.Linear(4, 2)
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=3)

    def step(x: Tensor) -> Tensor:
        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            return loss

        return optimizer.step(closure).detach()

    return Scene(step, watch=lambda: list(net.parameters()), around=contextlib.nullcontext)


def _scale_gradient(factor: float) -> Callable[[Tensor], None]:
    def scale(weight: Tensor) -> None:
        weight.grad.mul_(factor)

    return scale


def trained(**options: Any) -> Callable[[Callable[[Any, Any, int], object]], Any]:
    """A change to a network with SGD and momentum between two steps."""

    def enter(change: Callable[[Any, Any, int], object]) -> Any:
        def make() -> Scene:
            return _train(
                lambda weights: torch.optim.SGD(weights, 0.1, momentum=0.9), disturb=change
            )

        make.__name__ = change.__name__
        right(**options)(make)
        return change

    return enter


@trained()
def rate_changed(net: Any, optimizer: Any, step: int) -> None:
    optimizer.param_groups[0]["lr"] = 0.5 + step


@trained()
def momentum_changed(net: Any, optimizer: Any, step: int) -> None:
    optimizer.param_groups[0]["momentum"] = 0.5 - step / 4


@trained()
def group_added(net: Any, optimizer: Any, step: int) -> None:
    extra = nn.Parameter(torch.ones(2))
    extra.grad = torch.ones(2)
    optimizer.add_param_group({"params": [extra]})


@trained()
def optimizer_state_loaded(net: Any, optimizer: Any, step: int) -> None:
    state = optimizer.state_dict()
    for item in state["state"].values():
        item["momentum_buffer"] = item["momentum_buffer"] * (step + 2)
    optimizer.load_state_dict(state)


@trained()
def optimizer_state_cleared(net: Any, optimizer: Any, step: int) -> None:
    optimizer.state.clear()


@trained()
def gradients_dropped_outside(net: Any, optimizer: Any, step: int) -> None:
    optimizer.zero_grad()


@trained()
def gradients_zeroed_outside(net: Any, optimizer: Any, step: int) -> None:
    optimizer.zero_grad(set_to_none=False)


@trained()
def gradients_planted_outside(net: Any, optimizer: Any, step: int) -> None:
    net.weight.grad = torch.ones_like(net.weight)


@trained()
def layer_frozen(net: Any, optimizer: Any, step: int) -> None:
    net.weight.requires_grad_(step == 1)


@trained()
def weight_hooked(net: Any, optimizer: Any, step: int) -> None:
    net.weight.register_hook(lambda grad: grad * (step + 2))


@trained()
def backward_hooked(net: Any, optimizer: Any, step: int) -> None:
    net.register_full_backward_hook(lambda m, gi, go: None)


@trained()
def backward_hooked_with_an_effect(net: Any, optimizer: Any, step: int) -> None:
    net.register_full_backward_pre_hook(lambda m, go: (go[0] * (step + 2),))


@trained()
def accumulated_hooked(net: Any, optimizer: Any, step: int) -> None:
    net.weight.register_post_accumulate_grad_hook(_scale_gradient(step + 2))


@trained()
def optimizer_hooked(net: Any, optimizer: Any, step: int) -> None:
    optimizer.register_step_pre_hook(lambda *_: _scale_gradient(step + 2)(net.weight))


@trained()
def optimizer_step_replaced(net: Any, optimizer: Any, step: int) -> None:
    optimizer.step = lambda: None


@trained()
def weight_replaced_in_training(net: Any, optimizer: Any, step: int) -> None:
    net.weight = nn.Parameter(net.weight.detach() * 2)


@trained()
def weights_loaded_in_training(net: Any, optimizer: Any, step: int) -> None:
    net.load_state_dict({k: v * 2 for k, v in net.state_dict().items()})


@right()
def rate_as_a_tensor() -> Scene:
    return _train(
        lambda weights: torch.optim.AdamW(weights, lr=torch.tensor(0.1), fused=True),
        disturb=lambda net, optimizer, step: optimizer.param_groups[0]["lr"].fill_(0.5 + step),
    )


@right()
def scheduler_outside() -> Scene:
    schedulers: dict[int, Any] = {}

    def disturb(net: Any, optimizer: Any, step: int) -> None:
        found = schedulers.get(id(optimizer))
        if found is None:
            optimizer._opt_called = True  # torch looks for it, to say that the order is wrong
            found = schedulers[id(optimizer)] = torch.optim.lr_scheduler.ExponentialLR(
                optimizer, 0.5
            )
        found.step()

    return _train(disturb=disturb)


@refused(CHANGES, marks=(pytest.mark.filterwarnings("ignore"),))
def scheduler_inside() -> Scene:
    schedulers: list[Any] = []

    def make(weights: list[Tensor]) -> Any:
        optimizer = torch.optim.SGD(weights, 0.1)
        schedulers.append(torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5))
        return optimizer

    return _train(make, after=lambda net, optimizer: schedulers[0].step())


@right()
def gradients_clipped() -> Scene:
    return _train(after=lambda net, _: nn.utils.clip_grad_norm_(net.parameters(), 0.01))


@right()
def gradient_values_clipped() -> Scene:
    return _train(after=lambda net, _: nn.utils.clip_grad_value_(net.parameters(), 0.01))


@right()
def gradients_set_to_zero() -> Scene:
    return _train(clear=lambda optimizer: optimizer.zero_grad(set_to_none=False))


def _clear_after(*, first_part: bool) -> Scene:
    """With a first part of a batch that is not in the step, or without."""
    net = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)

    def step(x: Tensor) -> Tensor:
        return step_and_clear(net(x).square().mean(), optimizer)

    def begin(at: int) -> None:
        net(one(at + 7)[0]).square().mean().backward()

    return Scene(
        step,
        disturb=begin if first_part else nothing,
        watch=lambda: [(w, w.grad) for w in net.parameters()],
        around=contextlib.nullcontext,
    )


@right()
def gradients_cleared_after() -> Scene:
    return _clear_after(first_part=False)


@right()
def first_part_of_a_batch_outside() -> Scene:
    return _clear_after(first_part=True)


@right()
def frozen_layers_in_training() -> Scene:
    def module() -> nn.Module:
        net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
        net[0].requires_grad_(False)
        return net

    return _train(module=module)


@right()
def two_groups_of_rates() -> Scene:
    def make(weights: list[Tensor]) -> Any:
        groups = [{"params": weights[:1], "lr": 0.1}, {"params": weights[1:], "lr": 0.2}]
        return torch.optim.SGD(groups, lr=0.3)

    def disturb(net: Any, optimizer: Any, step: int) -> None:
        optimizer.param_groups[step]["lr"] = 0.7

    return _train(make, disturb=disturb)


@right()
def weight_decayed_later() -> Scene:
    def disturb(net: Any, optimizer: Any, step: int) -> None:
        optimizer.param_groups[0]["weight_decay"] = 0.1 * (step + 1)
        optimizer.param_groups[0]["maximize"] = step == 1

    return _train(disturb=disturb)


@right()
def two_optimizers() -> Scene:
    maker, judge = nn.Linear(4, 4), nn.Linear(4, 1)
    first = torch.optim.SGD(maker.parameters(), 0.1, momentum=0.9)
    second = torch.optim.AdamW(judge.parameters(), 0.1, fused=True)

    def step(x: Tensor) -> Any:
        second.zero_grad()
        lost = judge(maker(x).detach()).mean() - judge(x).mean()
        lost.backward()
        second.step()
        first.zero_grad()
        made = -judge(maker(x)).mean()
        made.backward()
        first.step()
        return lost.detach(), made.detach()

    def watch() -> Any:
        weights = [*maker.parameters(), *judge.parameters()]
        return [(w, w.grad) for w in weights], first.state_dict(), second.state_dict()

    return Scene(step, watch=watch, around=contextlib.nullcontext)


@refused("cannot capture")
def sparse_gradients() -> Scene:
    table = nn.Embedding(9, 4, sparse=True)
    optimizer = torch.optim.SparseAdam(table.parameters(), 0.1)

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = table(x).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Scene(
        step,
        lambda seed: (torch.arange(3) * (seed % 3 + 1),),
        watch=lambda: table.weight,
        around=contextlib.nullcontext,
    )


@refused("cannot capture")
def scaled_gradients() -> Scene:
    net = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu")

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = net(x).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    return Scene(step, watch=lambda: list(net.parameters()), around=contextlib.nullcontext)


@right()
def dropout_and_batch_norm_trained() -> Scene:
    return _train(module=lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.3)))


@right()
def step_of_ftax() -> Scene:
    torch.manual_seed(0)
    net = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    made = ftax.step(step, inputs=one(0))
    return Scene(
        made,
        watch=lambda: ([(w, w.grad) for w in net.parameters()], optimizer.state_dict()),
        around=contextlib.nullcontext,
    )
