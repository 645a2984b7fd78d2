"""Switches. See `table.py`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hostile.captures.table import (
    Scene,
    frozen,
    refused,
    right,
)
from hostile.captures.weights import linear
from torch import Tensor, nn


class Switch:
    """The caller's mode, which changes between calls."""

    def __init__(self, *modes: Callable[[], Any]) -> None:
        self.modes, self.at = modes, 0

    def __call__(self) -> Any:
        return self.modes[self.at]()

    def disturb(self, step: int) -> None:
        self.at = step + 1


def _switched(*modes: Callable[[], Any], what: Any = None) -> Scene:
    around = Switch(*modes)
    return Scene(what or linear(), disturb=around.disturb, around=around)


@contextlib.contextmanager
def autocast() -> Any:
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        yield


@contextlib.contextmanager
def default_double() -> Any:
    torch.set_default_dtype(torch.float64)
    try:
        with torch.no_grad():
            yield
    finally:
        torch.set_default_dtype(torch.float32)


@contextlib.contextmanager
def deterministic() -> Any:
    torch.use_deterministic_algorithms(True)
    try:
        with torch.no_grad():
            yield
    finally:
        torch.use_deterministic_algorithms(False)


@contextlib.contextmanager
def on_meta() -> Any:
    with torch.no_grad(), torch.device("meta"):
        yield


@right(recorded=2)
def autocast_around_calls() -> Any:
    return _switched(torch.no_grad, autocast, torch.no_grad)


@refused("changes autocast on the CPU, at operator aten::linear")
def autocast_inside() -> Scene:
    module = nn.Linear(4, 4)

    def work(x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = module(x)
        return module(y.float())

    return Scene(work)


@right()
def inference_mode_around_calls() -> Any:
    return _switched(torch.no_grad, torch.inference_mode, torch.no_grad)


@right()
def inference_mode_first() -> Any:
    return _switched(torch.inference_mode, torch.no_grad, torch.inference_mode)


@right()
def gradients_switched_on_later() -> Any:
    return _switched(torch.no_grad, contextlib.nullcontext, torch.no_grad)


@frozen("is_inference_mode_enabled")
def mode_that_code_reads() -> Any:
    return _switched(
        torch.no_grad,
        torch.inference_mode,
        torch.no_grad,
        what=lambda x: x * (2 if torch.is_inference_mode_enabled() else 3),
    )


@right()
def default_type_around_calls() -> Any:
    return _switched(torch.no_grad, default_double, torch.no_grad, what=lambda x: x + torch.ones(4))


@right()
def deterministic_around_calls() -> Any:
    return _switched(torch.no_grad, deterministic, torch.no_grad, what=lambda x: x.cumsum(0))


@refused("inside of a TorchDispatchMode or TorchFunctionMode")
def default_device_around_calls() -> Any:
    return _switched(torch.no_grad, on_meta, torch.no_grad, what=lambda x: torch.ones(x.shape[0]))


@frozen("get_num_threads")
def number_of_threads() -> Scene:
    before = torch.get_num_threads()
    return Scene(
        lambda x: x * torch.get_num_threads(),
        disturb=lambda step: torch.set_num_threads(step + 2),
        undo=lambda: torch.set_num_threads(before),
    )


class Doubles(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        return result * 2 if func is torch.exp else result


class DoublesBelow(torch.utils._python_dispatch.TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        return result * 2 if func is torch.ops.aten.exp.default else result


@right(on_refusal="eager", marks=(pytest.mark.filterwarnings("ignore"),))
def function_mode_around_calls() -> Any:
    return _switched(torch.no_grad, Doubles, torch.no_grad, what=lambda x: torch.exp(x))


@right(on_refusal="eager", marks=(pytest.mark.filterwarnings("ignore"),))
def dispatch_mode_around_calls() -> Any:
    return _switched(torch.no_grad, DoublesBelow, torch.no_grad, what=lambda x: torch.exp(x))


@refused("cannot capture")
def mode_changed_inside(x: Tensor) -> Tensor:
    torch.set_grad_enabled(True)
    return x * 2


def make_training() -> tuple[Any, Any]:
    weight = nn.Parameter(torch.ones(4))

    def step(x: Tensor) -> Tensor:
        weight.grad = None
        loss = (weight * x).square().sum()
        loss.backward()
        with torch.no_grad():
            weight.sub_(weight.grad, alpha=0.1)
        return loss.detach()

    return step, lambda: [weight, weight.grad]


def _around_training(*modes: Any) -> Scene:
    step, watch = make_training()
    around = Switch(*modes)
    return Scene(step, disturb=around.disturb, around=around, watch=watch)


def doubled() -> Any:
    return torch.autograd.graph.saved_tensors_hooks(lambda t: t * 2, lambda t: t)


@refused("inside of hooks of saved tensors")
def hooks_of_saved_tensors_around_calls() -> Scene:
    return _around_training(torch.enable_grad, doubled, torch.enable_grad)


@refused("inside of detect_anomaly", marks=(pytest.mark.filterwarnings("ignore"),))
def anomalies_looked_for_around_calls() -> Scene:
    return _around_training(torch.enable_grad, torch.autograd.detect_anomaly, torch.enable_grad)


def half() -> Any:
    return torch.autocast("cpu", torch.bfloat16)


@refused("changes weights of which autocast keeps")
def autocast_around_training() -> Scene:
    weight = nn.Linear(4, 4)

    def step(x: Tensor) -> Tensor:
        weight.zero_grad()
        loss = weight(x).float().square().sum()
        loss.backward()
        with torch.no_grad():
            weight.weight.sub_(weight.weight.grad, alpha=0.1)
        return loss.detach()

    return Scene(step, around=half, watch=lambda: list(weight.parameters()))


@right()
def hooks_that_wait_for_a_gradient() -> Scene:
    weight = nn.Parameter(torch.ones(4))
    node = weight.view_as(weight).grad_fn.next_functions[0][0]  # as wrappers of models do

    def step(x: Tensor) -> None:
        weight.grad = None
        (weight * x).sum().backward()

    handles: list[Any] = []

    def disturb(at: int) -> None:  # the second takes the place of the first
        def double(*_: Any) -> None:
            weight.grad.mul_(at + 2.0)

        for handle in handles:
            handle.remove()
        handles.append(node.register_hook(double))

    return Scene(step, disturb=disturb, watch=lambda: [weight.grad], around=contextlib.nullcontext)
