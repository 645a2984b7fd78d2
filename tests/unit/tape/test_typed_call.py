"""Typed calls of the tape: one function for each signature that the tape knows.

Each call has to be typed, or the test would pass on the boxed path; and it has to give eager's bits
on another input than the recorded one, or a value that was kept could be the recorded result.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from ftax.runtimes.workspace import Workspace
from ftax.tape.tape import make_tape
from support.small_models import load_function, normal, run_seeded, same_bits

WEIGHT, BIAS = normal(4, 4, seed=1), normal(4, seed=2)
KERNEL = normal(2, 1, 2, 2, seed=3)

CALLS: dict[str, Callable[..., Any]] = {
    "tensor": lambda x: x.tanh(),
    "two tensors": lambda x: x.mul(x),
    "three tensors": lambda x: torch.where(x > 0, x, x * x),
    "tensor, number": lambda x: x.pow(2),
    "two tensors, number": lambda x: x.add(x, alpha=3),
    "three tensors, two numbers": lambda x: torch.addmm(BIAS, x, WEIGHT, beta=2, alpha=0.5),
    "two tensors, optional tensor": lambda x: F.linear(x, WEIGHT, BIAS),
    "two tensors, absent tensor": lambda x: F.linear(x, WEIGHT),
    "sizes": lambda x: x.view(2, 6),
    "places": lambda x: x.permute(1, 0),
    "sizes, flag": lambda x: x.expand(2, 3, 4),
    "place": lambda x: x.unsqueeze(1),
    "two places": lambda x: x.transpose(0, 1),
    "place, index": lambda x: x.select(1, 2),
    "place, ends": lambda x: x[1:, 1:3],
    "place, absent dtype": lambda x: torch.softmax(x, -1),
    "place, dtype": lambda x: torch.softmax(x, -1, dtype=torch.float64),
    "places, flag, dtype": lambda x: x.mean((0, 1), keepdim=True, dtype=torch.float64),
    "absent places, flag": lambda x: x.sum(None, keepdim=True),
    "number, flag": lambda x: F.dropout(x, 0.5, training=True),
    "word": lambda x: F.gelu(x, approximate="tanh"),
    "memory format": lambda x: x.t().contiguous(),
    "optional memory format": lambda x: x.t().clone(memory_format=torch.contiguous_format),
    "dtype and flags": lambda x: x.to(torch.float64, copy=True),
    "two tensors, index, flags": lambda x: F.embedding(torch.tensor([2, 0]), x, padding_idx=1),
    "layer norm": lambda x: F.layer_norm(x, (4,), BIAS, None, 0.1),
    "batch norm": lambda x: F.batch_norm(x, BIAS, BIAS.abs(), BIAS, None, False, 0.1, 0.2),
    "convolution": lambda x: F.conv2d(x.view(1, 1, 3, 4), KERNEL, stride=(1, 2), padding=1),
    "attention": lambda x: F.scaled_dot_product_attention(
        x[None, None], x[None, None], x[None, None], is_causal=True, scale=0.3
    ),
    "in place": lambda x: (x * 1).relu_(),
    "in place, tensor": lambda x: (x * 1).mul_(x),
    "in place, number": lambda x: (x * 1).clamp_(min=0.0).mul_(3),
    "in place, tensor, number": lambda x: (x * 1).add_(x, alpha=2),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_typed_call_gives_the_bits_of_eager(name: str) -> None:
    loaded = load_function(CALLS[name])
    tape = make_tape(loaded).tape
    assert len(tape) - 1 in tape.typed_calls, tape.operators
    for inputs in (loaded.flat_check_inputs(), loaded.flat_inputs()):
        expected = run_seeded(lambda inputs=inputs: loaded.module(*inputs))
        tape.bind_inputs(inputs)
        assert all(map(same_bits, run_seeded(tape.run), expected))


def test_lists_of_tensors_are_boxed() -> None:
    tape = make_tape(load_function(lambda x: torch.cat(x.split(2)))).tape
    assert tape.operators == ["aten::split.Tensor", "aten::cat"]
    assert tape.typed_calls == []


def test_nearly_all_calls_of_the_zoo_are_typed(tiny_zoo: Workspace) -> None:
    tape = tiny_zoo.taped.tape
    assert len(tape.typed_calls) >= 0.9 * len(tape)
