"""Random weights: their spread by kind of layer, and what the fast path must not touch.

Expected deviations are worked out by hand beside each case, not by the formula under test.
"""

import math
from typing import Any

import pytest
import torch
from torch import nn

from ftax.steps.build import build_random_module
from ftax.steps.inputs import make_images
from ftax.steps.spec import Shape
from ftax.steps.weights import (
    build_unfilled,
    calibrate_batch_norms,
    calibrate_unit_layers,
    fill_weights,
)


def fill(module: nn.Module, seed: int = 0) -> nn.Module:
    fill_weights(module, torch.Generator().manual_seed(seed))
    return module


@pytest.mark.parametrize(
    ("module", "std"),
    [
        # sqrt(2 / (in + out)) = sqrt(2 / 800)
        (nn.Linear(600, 200), 0.05),
        # sqrt(2 / (channels x 5 x 5)) = sqrt(2 / 200)
        (nn.Conv2d(8, 64, 5), 0.1),
        # Depthwise: sqrt(2 / (5 x 10))
        (nn.Conv2d(256, 256, (5, 10), groups=256), 0.2),
        # sqrt(1 / width) = sqrt(1 / 100)
        (nn.Embedding(300, 100), 0.1),
    ],
)
def test_matrices_have_the_deviation_of_their_kind(module: Any, std: float) -> None:
    weight = fill(module).weight.detach()
    assert float(weight.std()) == pytest.approx(std, rel=0.03)
    assert abs(float(weight.mean())) < 0.03 * std
    # Uniform values end at sqrt(3) deviations.
    assert float(weight.abs().max()) == pytest.approx(math.sqrt(3) * std, rel=0.01)


def test_shared_matrix_is_filled_once_for_its_first_owner() -> None:
    tied = nn.Sequential(nn.Embedding(300, 100), nn.Linear(100, 300))
    tied[1].weight = tied[0].weight
    # As an embedding: sqrt(1 / 100); as a matrix it would be sqrt(2 / 400) = 0.07.
    assert float(fill(tied)[0].weight.detach().std()) == pytest.approx(0.1, rel=0.03)


def test_gates_of_a_recurrent_layer_have_the_deviation_of_one_gate() -> None:
    layer: Any = fill(nn.LSTM(300, 200))
    # sqrt(2 / (in + units)) = sqrt(2 / 500), and sqrt(2 / 400) from the state.
    assert float(layer.weight_ih_l0.detach().std()) == pytest.approx(0.0632, rel=0.02)
    assert float(layer.weight_hh_l0.detach().std()) == pytest.approx(0.0707, rel=0.02)


def test_vectors_lie_around_zero_or_one() -> None:
    layer, batch = fill(nn.LayerNorm(5000)), fill(nn.BatchNorm2d(5000))
    vectors = [*layer.parameters(), *batch.parameters()]
    for vector, mean in zip([v.detach() for v in vectors], (1.0, 0.0, 1.0, 1.0), strict=True):
        assert float(vector.mean()) == pytest.approx(mean, abs=0.01)
        assert float(vector.std()) == pytest.approx(0.1, rel=0.05)


def test_fill_goes_on_beyond_one_chunk_without_repeating() -> None:
    weight = fill(nn.Linear(1024, 513)).weight.detach().view(-1)
    assert weight.view(513, 1024).unique(dim=0).shape == (513, 1024)
    assert float(weight[-1024:].std()) == pytest.approx(math.sqrt(2 / 1537), rel=0.1)


def test_unfilled_build_draws_nothing_and_keeps_constants() -> None:
    def build() -> nn.Module:
        module = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))
        module.register_buffer("noise", torch.empty(1000).normal_())
        return module

    before = torch.get_rng_state()
    linear = build_unfilled(lambda: nn.Linear(4, 4))
    assert torch.equal(torch.get_rng_state(), before)
    assert linear.weight.shape == (4, 4)
    module: Any = build_unfilled(build)
    assert module[1].weight.tolist() == [1.0] * 4
    assert float(module.noise.std()) == pytest.approx(1.0, rel=0.1)


def test_constants_drawn_while_building_come_from_the_seed() -> None:
    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("noise", torch.randn(4))

    first, again, other = (
        build_random_module(Noisy, make_images, Shape(batch=1, size=2), seed).noise
        for seed in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_batch_norms_get_the_statistics_of_the_example() -> None:
    norm = nn.BatchNorm1d(1).eval()
    example = torch.tensor([[1.0], [2.0], [3.0], [4.0]])
    calibrate_batch_norms(norm, lambda: (example,))
    # Mean 10 / 4; squared deviations 2.25 + 0.25 + 0.25 + 2.25 over n - 1 = 3.
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert norm.running_mean.tolist() == [2.5]
    assert norm.running_var.tolist() == [pytest.approx(5 / 3)]
    assert norm.running_mean.dtype is torch.float32
    assert (norm.training, norm.momentum, int(norm.num_batches_tracked)) == (False, 0.1, 0)


def test_unit_layers_are_scaled_to_deviation_one_one_after_the_other() -> None:
    model = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Tanh(), nn.Linear(1, 1)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(3.0)
    example = torch.tensor([[-1.0], [1.0]])
    calibrate_unit_layers(model, ("Linear",), lambda: (example,))
    # 3 x (-1, 1) has deviation 3 sqrt(2). What is left, sqrt(1/2) x (-1, 1), goes on.
    first, _, last = model.requires_grad_(False)
    assert float(first.weight) == pytest.approx(math.sqrt(0.5))
    # 3 tanh(sqrt(1/2)) x (-1, 1) + 3 has deviation 3 sqrt(2) tanh(sqrt(1/2)).
    expected = math.sqrt(0.5) / math.tanh(math.sqrt(0.5))
    assert float(last.weight) == pytest.approx(expected)
    assert float(last.bias) == pytest.approx(expected)
    assert first.weight.dtype is torch.float32
    with torch.no_grad():
        assert float(model(example).std()) == pytest.approx(1.0)


def test_other_layers_and_models_without_unit_layers_stay() -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    before = model[0].weight.detach().clone()
    calibrate_unit_layers(model, ("NoNorm",), lambda: (torch.ones(1, 2),))
    assert torch.equal(model[0].weight, before)
