"""Weights and modules that change between calls. See `table.py`."""

from __future__ import annotations

import contextlib
import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hostile.captures.table import (
    DEPENDS,
    Scene,
    one,
    refused,
    right,
    step_and_clear,
)
from torch import Tensor, nn
from torch.nn.utils import prune

import ftax
from support.small_models import normal


def linear() -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 4)
    ).eval()


def _on_linear(change: Callable[[nn.Sequential, int], object]) -> Callable[[], Scene]:
    def make() -> Scene:
        module = linear()
        return Scene(module, disturb=lambda step: change(module, step))

    make.__name__ = change.__name__
    return make


def changed(**options: Any) -> Callable[[Callable[[Any, int], object]], Any]:
    """A change to a small network between two calls."""

    def enter(change: Callable[[Any, int], object]) -> Any:
        right(**options)(_on_linear(change))
        return change

    return enter


@changed(recorded=1)
def weight_written_in_place(module: Any, step: int) -> None:
    with torch.no_grad():
        module[0].weight.add_(step + 1)


@changed()
def weight_given_other_data(module: Any, step: int) -> None:
    module[0].weight.data = normal(4, 4, seed=40 + step)


@changed()
def weight_replaced(module: Any, step: int) -> None:
    module[0].weight = nn.Parameter(normal(4, 4, seed=40 + step))


@changed(recorded=1)
def weights_loaded(module: Any, step: int) -> None:
    module.load_state_dict({k: v + 1 + step for k, v in module.state_dict().items()})


@changed()
def weights_assigned(module: Any, step: int) -> None:
    module.load_state_dict({k: v + 1 + step for k, v in module.state_dict().items()}, assign=True)


@changed()
def weights_tied(module: Any, step: int) -> None:
    module[3].weight = module[0].weight if step == 0 else nn.Parameter(torch.ones(4, 4))


@changed()
def bias_removed(module: Any, step: int) -> None:
    module[step * 3].bias = None


@changed()
def buffer_replaced(module: Any, step: int) -> None:
    module[1].running_mean = torch.full((4,), step + 1.0)


@changed()
def training_toggled(module: Any, step: int) -> None:
    module.train(step == 0)


@changed()
def training_of_a_part_toggled(module: Any, step: int) -> None:
    module[1 + step].train()


@changed()
def training_set_by_hand(module: Any, step: int) -> None:
    module[2].training = step == 0


@changed()
def gradients_toggled(module: Any, step: int) -> None:
    module[0].weight.requires_grad_(step == 1)


@changed()
def part_replaced(module: Any, step: int) -> None:
    module[2] = nn.ReLU() if step == 0 else nn.Tanh()


@changed()
def part_added(module: Any, step: int) -> None:
    module.append(nn.ReLU())


@changed()
def part_removed(module: Any, step: int) -> None:
    del module[-1]


@changed()
def parts_reversed(module: Any, step: int) -> None:
    module._modules = OrderedDict(
        zip("0123", reversed(list(module._modules.values())), strict=True)
    )


@changed()
def number_of_a_part_changed(module: Any, step: int) -> None:
    module[1].eps = 0.5 + step


@changed()
def forward_replaced(module: Any, step: int) -> None:
    module[2].forward = lambda x: x * (step + 2)


@changed()
def forward_of_the_whole_replaced(module: Any, step: int) -> None:
    module.forward = lambda x: x * (step + 2)


@changed()
def hook_added(module: Any, step: int) -> None:
    module[0].register_forward_hook(lambda m, a, y: y * (step + 2))


@changed()
def pre_hook_added(module: Any, step: int) -> None:
    module[0].register_forward_pre_hook(lambda m, a: (a[0] * (step + 2),))


@changed()
def hook_added_to_the_whole(module: Any, step: int) -> None:
    module.register_forward_hook(lambda m, a, y: y * (step + 2))


@changed()
def class_of_a_part_replaced(module: Any, step: int) -> None:
    class Other(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            return super().forward(input) * (step + 2)

    module[0].__class__ = Other


@changed()
def parametrized_later(module: Any, step: int) -> None:
    class Double(nn.Module):
        def forward(self, w: Tensor) -> Tensor:
            return w * 2

    nn.utils.parametrize.register_parametrization(module[0], "weight", Double())


@changed()
def normed_later(module: Any, step: int) -> None:
    nn.utils.parametrizations.weight_norm(module[step * 3])


@changed()
def layout_changed(module: Any, step: int) -> None:
    module[0].weight.data = module[0].weight.data.t().contiguous().t()


@changed()
def weight_cut_off(module: Any, step: int) -> None:
    module[0].weight.data = module[0].weight.data[:, torch.tensor([1, 0, 2, 3])]


@right(recorded=3)
def module_to_double() -> Scene:
    module = linear()
    kind = {"dtype": torch.float32}

    def disturb(step: int) -> None:
        kind["dtype"] = (torch.float64, torch.bfloat16)[step]
        module.to(kind["dtype"])

    return Scene(module, lambda seed: (one(seed)[0].to(kind["dtype"]),), disturb)


@right()
def hook_removed() -> Scene:
    module = linear()
    handles = [module[i].register_forward_hook(lambda m, a, y: y * 3) for i in (0, 3)]
    return Scene(module, disturb=lambda step: handles[step].remove())


@right()
def global_hook() -> Scene:
    module = linear()
    handles: list[Any] = []

    def disturb(step: int) -> None:
        if step:
            handles.pop().remove()
        else:
            hook = torch.nn.modules.module.register_module_forward_hook
            handles.append(hook(lambda m, a, y: y * 2))

    return Scene(module, disturb=disturb, undo=lambda: [handle.remove() for handle in handles])


@right()
def global_pre_hook() -> Scene:
    module = linear()
    handles: list[Any] = []

    def disturb(step: int) -> None:
        hook = torch.nn.modules.module.register_module_forward_pre_hook
        handles.append(hook(lambda m, a: (a[0] * 2,)))

    return Scene(module, disturb=disturb, undo=lambda: [handle.remove() for handle in handles])


@right(recorded=1)
def weight_norm() -> Any:
    return nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))


@right(recorded=1)
def spectral_norm_in_training() -> Scene:
    module = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4)).train()
    return Scene(module)


@right(recorded=1)
def old_spectral_norm_in_training() -> Any:
    return nn.utils.spectral_norm(nn.Linear(4, 4)).train()


@right(recorded=1)
def batch_norm_in_training() -> Any:
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).train()


@right(recorded=1)
def batch_norm_with_a_cumulative_mean() -> Any:
    # Its factor is a number that Python computes of a counter, so it may be refused, but not wrong.
    return nn.BatchNorm1d(4, momentum=0.1).train()


@refused(DEPENDS)
def batch_norm_without_momentum() -> Any:
    return nn.BatchNorm1d(4, momentum=None).train()


@right(recorded=1)
def lstm() -> Any:
    return nn.LSTM(4, 4, num_layers=2, batch_first=True)


@right()
def lstm_whose_weight_is_replaced() -> Scene:
    module = nn.LSTM(4, 4)

    def disturb(step: int) -> None:
        module.weight_hh_l0 = nn.Parameter(normal(16, 4, seed=60 + step))

    return Scene(module, disturb=disturb)


@right(recorded=1)
def gru_with_dropout() -> Any:
    return nn.GRU(4, 4, num_layers=2, dropout=0.5).train()


@right(recorded=1)
def embedding_with_a_largest_norm() -> Scene:
    return Scene(nn.Embedding(9, 4, max_norm=0.5), lambda seed: (torch.arange(3) * (seed % 3 + 1),))


@right(recorded=1)
def transformer_in_evaluation() -> Scene:
    module = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval()
    return Scene(module, lambda seed: (normal(2, 3, 4, seed=seed),))


@right(recorded=1, marks=(pytest.mark.filterwarnings("ignore"),))
def quantized_layer() -> Any:
    return torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(4, 4)), {nn.Linear})


@right(recorded=1)
def moving_average_of_weights() -> Scene:
    module, shadow = nn.Linear(4, 4), nn.Linear(4, 4)

    def work(x: Tensor) -> Tensor:
        for mine, theirs in zip(shadow.parameters(), module.parameters(), strict=True):
            mine.mul_(0.9).add_(theirs, alpha=0.1)
        return shadow(x)

    return Scene(work, watch=lambda: list(shadow.parameters()))


@right(recorded=1)
def buffer_that_counts() -> Scene:
    module = nn.Module()
    module.register_buffer("n", torch.zeros(()))
    module.forward = lambda x: x * module.n.add_(1)
    return Scene(module)


@right(recorded=1)
def functional_call() -> Scene:
    module = nn.Linear(4, 4)

    def work(x: Tensor, weight: Tensor) -> Tensor:
        return torch.func.functional_call(module, {"weight": weight}, (x,))

    return Scene(work, lambda seed: (normal(3, 4, seed=seed), normal(4, 4, seed=seed + 9)))


@refused("it calls torch.func.vmap")
def vectorized_map() -> Scene:
    return Scene(lambda x: torch.func.vmap(lambda row: row.exp().sum())(x))


@right(recorded=1)
def captured_as_a_part() -> Scene:
    module = nn.Linear(4, 4)
    with torch.no_grad():
        inner = ftax.capture(module, one(9))
    return Scene(lambda x: inner(x) * 2)


@right()
def statistics_that_an_operator_resizes() -> Scene:
    low, high, scale = torch.tensor([]), torch.tensor([]), torch.ones(1)
    zero, on = torch.zeros(1, dtype=torch.int32), torch.ones(1, dtype=torch.long)

    def step(x: Tensor) -> Tensor:
        observe = torch.fused_moving_avg_obs_fake_quant
        return observe(x, on, on, low, high, scale, zero, 0.5, -128, 127, 0, True, True)

    return Scene(step, watch=lambda: [low, high, scale, zero])


@right()
def result_that_an_operator_resizes() -> Scene:
    out = torch.empty(0)
    return Scene(lambda x: torch.mul(x, 2, out=out) + 1, watch=lambda: [out])


@right()
def values_of_a_sparse_tensor_written() -> Scene:
    weights = torch.eye(3, 3).to_sparse()

    def step(x: Tensor) -> Tensor:
        weights.values().mul_(2)
        return torch.sparse.mm(weights, x)

    return Scene(step, watch=lambda: [weights.values()])


@right()
def sparse_tensor_written() -> Scene:
    weights = torch.eye(3, 3).to_sparse()

    def step(x: Tensor) -> Tensor:
        weights.mul_(2)
        return torch.sparse.mm(weights, x)

    return Scene(step, watch=lambda: [weights])


@right(recorded=1)
def weight_that_is_pruned() -> Scene:
    module = nn.Linear(4, 4)
    prune.l1_unstructured(module, "weight", 0.5)
    return Scene(module, watch=lambda: module.weight)


@right(recorded=1)
def old_weight_norm() -> Scene:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = nn.utils.weight_norm(nn.Linear(4, 4))
    return Scene(module, watch=lambda: module.weight)


@right(recorded=2)
def training_of_a_pruned_weight() -> Scene:
    module = nn.Linear(4, 2)
    prune.l1_unstructured(module, "weight", 0.5)
    optimizer = torch.optim.SGD(module.parameters(), 0.1, momentum=0.9)

    def step(x: Tensor) -> Tensor:
        return step_and_clear(module(x).square().mean(), optimizer)

    return Scene(
        step,
        watch=lambda: [module.weight, *module.parameters()],
        around=contextlib.nullcontext,
    )
