"""Which operator is not the same twice: whatever tensors a model makes, and none by mistake."""

from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from ftax.tape.unsteady import find_unsteady_operator

MODEL, GENERATOR = nn.Linear(4, 4), torch.Generator()
ODD = np.zeros(65, np.int8)[1:]  # numpy's own memory begins at a multiple of 16


def train() -> torch.Tensor:
    MODEL.zero_grad()
    loss = MODEL(torch.ones(2, 4)).sum()
    loss.backward()
    return loss


def seeded() -> torch.Tensor:
    torch.manual_seed(0)
    return torch.rand(4)


def nest(**options: Any) -> torch.Tensor:
    parts = [torch.ones(2, 3), torch.ones(3, 3)]
    return torch.nested.nested_tensor(parts, **options) * 2


STEADY: dict[str, Callable[[], torch.Tensor]] = {
    "a training step": train,
    "seeded numbers": seeded,
    "sparse": lambda: torch.sparse.mm(torch.eye(4).to_sparse(), torch.ones(4, 4)),
    "nested": nest,
    "jagged": lambda: nest(layout=torch.jagged),
    "quantized": lambda: torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.qint8).dequantize(),
    "of 8 bits": lambda: torch.ones(4).to(torch.float8_e4m3fn).to(torch.float32),
    "conjugated": lambda: torch.ones(3, dtype=torch.complex64).conj() * 2j,
    "negated": lambda: torch.ones(3, dtype=torch.complex64).conj().imag + 1,
    "flags": lambda: torch.ones(5) > 0,
    "empty": lambda: torch.ones(0) + 1,
    "without memory": lambda: torch.ones(3, device="meta") + 1,
    "expanded": lambda: torch.ones(1).expand(7) + 1,
    "not aligned": lambda: torch.arange(9, dtype=torch.int8)[1:9] + 1,
    "aligned in memory that is not": lambda: torch.from_numpy(ODD)[7:15] + 1,
    "a generator of its own": lambda: torch.rand(3, generator=GENERATOR),
    "found as it was left": lambda: torch.empty(4096).zero_() + torch.empty(8).numel(),
}


@pytest.mark.filterwarnings("ignore:.*(prototype|deprecated|quantiz)")
@pytest.mark.parametrize("name", STEADY)
def test_nothing_is_said_of_what_is_the_same_twice(name: str) -> None:
    assert find_unsteady_operator(STEADY[name], MODEL) == ""


def test_pythons_own_changes_are_no_operators() -> None:
    calls = count()
    assert find_unsteady_operator(lambda: torch.ones(3) * next(calls), MODEL) == ""
    assert find_unsteady_operator(lambda: torch.tensor([next(calls)]) + 1, MODEL) == ""


def test_random_numbers_that_nobody_seeds_are_named() -> None:
    assert find_unsteady_operator(lambda: torch.ones(2, 3).bernoulli(0.5) + 1, MODEL) == (
        "aten::bernoulli.p of 2x3"
    )


def test_noise_that_is_written_into_a_weight_is_told_of_its_writer() -> None:
    def write() -> torch.Tensor:
        with torch.no_grad():
            MODEL.weight.bernoulli_(0.5)
            return torch.ones(2, 4) @ MODEL.weight

    assert find_unsteady_operator(write, MODEL) == "aten::bernoulli_.float of 4x4"
