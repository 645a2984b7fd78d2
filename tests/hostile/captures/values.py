"""Values of tensors that Python looks at. See `table.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hostile.captures.table import (
    DEPENDS,
    MEMORY,
    Scene,
    refused,
    right,
)
from torch import Tensor, nn

from support.small_models import normal


@refused(DEPENDS)
def branch_on_sum(x: Tensor) -> Tensor:
    return x.exp() if x.sum() > 0 else x.neg()


@refused(DEPENDS)
def branch_that_is_seldom_taken(x: Tensor) -> Tensor:
    return x.exp() if x.sum() < 1e6 else x.neg()


@refused(DEPENDS)
def item_as_a_factor(x: Tensor) -> Tensor:
    return x * x[0, 0].item()


@refused(MEMORY)
def tolist_as_a_factor(x: Tensor) -> Tensor:
    return x * x.tolist()[0][0]


@refused(MEMORY)
def numpy_as_a_factor(x: Tensor) -> Tensor:
    return x * float(x.numpy().sum())


@refused(MEMORY)
def array_as_a_factor(x: Tensor) -> Tensor:
    return x * float(np.asarray(x).sum())


@refused(MEMORY)
def dlpack_as_a_factor(x: Tensor) -> Tensor:
    return x * float(np.from_dlpack(x).sum())


@refused(DEPENDS)
def float_as_a_factor(x: Tensor) -> Tensor:
    return x * float(x.sum())


@refused(DEPENDS)
def bool_as_a_branch(x: Tensor) -> Tensor:
    return x.exp() if bool((x > 0).any()) else x


@refused(DEPENDS)
def int_as_a_size() -> Scene:
    return Scene(
        lambda x, n: x[: int(n)] * 2,
        lambda seed: (normal(6, seed=seed), torch.tensor(1 + seed % 5)),
    )


@refused(DEPENDS)
def tensor_as_an_index_of_a_list() -> Scene:
    return Scene(
        lambda x, n: x + [1, 2, 3, 4][n],
        lambda seed: (normal(6, seed=seed), torch.tensor(seed % 4)),
    )


@refused(DEPENDS)
def equality_as_a_branch(x: Tensor) -> Tensor:
    return x.exp() if torch.equal(x, x.abs()) else x


@refused(DEPENDS)
def closeness_as_a_branch(x: Tensor) -> Tensor:
    return x.exp() if torch.allclose(x, x.abs()) else x


@refused("cannot capture")
def text_of_a_tensor(x: Tensor) -> Tensor:
    return x + len(str(x[0] * 1000))


@refused("cannot capture")
def value_in_its_storage(x: Tensor) -> Tensor:
    return x * x.untyped_storage()[3]


@refused("cannot capture")
def value_at_its_address(x: Tensor) -> Tensor:
    import ctypes

    return x * ctypes.c_float.from_address(x.data_ptr()).value


@refused(DEPENDS)
def index_with_a_tensor_in_a_slice() -> Scene:
    return Scene(
        lambda x, n: x[n:] * 2, lambda seed: (normal(9, seed=seed), torch.tensor(seed % 5))
    )


@refused(DEPENDS)
def repeats_of_a_tensor() -> Scene:
    return Scene(
        lambda x, n: x.repeat(n.item()), lambda seed: (normal(2, seed=seed), torch.tensor(1 + seed))
    )


@refused(DEPENDS)
def contains(x: Tensor) -> Tensor:
    return x.exp() if 0.0 in x.relu() else x


def masked(seed: int) -> tuple[Tensor, ...]:
    return (normal(3, 4, seed=seed).abs() * (torch.arange(12).view(3, 4) > seed),)


@right(recorded=1)
def nonzero_and_a_sum() -> Scene:
    return Scene(lambda x: x.nonzero().sum(0), masked)


@right(recorded=1)
def masked_select() -> Scene:
    return Scene(lambda x: x[x > 0.1] * 2, masked)


@refused("cannot capture")
def count_of_a_mask() -> Scene:
    return Scene(lambda x: x * x[x > 0.1].shape[0], masked)


@refused("cannot capture")
def count_of_what_is_unique() -> Scene:
    return Scene(
        lambda x: x * len(torch.unique(x)), lambda seed: (torch.arange(8) // (1 + seed % 5),)
    )


@refused("cannot capture")
def view_as_long_as_a_mask() -> Scene:
    def reshape(x: Tensor) -> Tensor:
        chosen = x.nonzero()
        return torch.zeros(len(chosen) * 2)

    return Scene(reshape, masked)


@refused("cannot capture")
def numel_of_nonzero_as_a_branch() -> Scene:
    return Scene(lambda x: x.exp() if x[x > 0.1].numel() > 5 else x, masked)


@refused("cannot capture")
def iterated_mask() -> Scene:
    return Scene(lambda x: sum((row for row in x[x > 0.1]), torch.zeros(())), masked)


@refused("cannot capture")
def nonzero_as_a_tuple() -> Scene:
    def gather(x: Tensor) -> Tensor:
        rows, _ = x.nonzero(as_tuple=True)
        return x.new_ones(rows.shape[0]).cumsum(0)

    return Scene(gather, masked)


@refused("cannot capture")
def bincount_that_is_measured() -> Scene:
    return Scene(
        lambda x: torch.bincount(x).shape[0] * x, lambda seed: (torch.arange(4) * (1 + seed),)
    )


@right(marks=(pytest.mark.filterwarnings("ignore:a replay of"),))
def branch_by_an_error(x: Tensor) -> Tensor:
    try:
        return torch.linalg.cholesky(x[:, :3] @ x[:, :3].T * x[0, 0].sign())
    except RuntimeError:
        return x.neg()


class ReadsItsWeight(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale.item()


@refused(DEPENDS)
def number_in_a_weight() -> Any:
    return ReadsItsWeight()


@right(recorded=1)
def number_that_depends_on_nothing(x: Tensor) -> Tensor:
    return x * torch.linspace(0, 1, 5).sum().item()


@right(on_host_read="check", recorded=1)
def branch_that_is_checked() -> Scene:
    # Calls 0, 1 and 5 go one way, the others the other.
    return Scene(
        lambda x: x.exp() if x.sum() > 0 else x.neg(),
        lambda seed: (normal(3, 4, seed=seed).abs() * (-1 if seed in (3, 4) else 1),),
    )


@right(on_host_read="check", recorded=2)
def checked_branch_after_a_write() -> Scene:
    state = torch.zeros(4)

    def work(x: Tensor) -> Tensor:
        state.add_(x[0])
        x.mul_(2)
        y = F.dropout(x, 0.5)
        return y.exp() if state.sum() > 0 else y.neg()

    return Scene(work, watch=lambda: state)


@right(on_host_read="check")
def checked_number_that_is_nan() -> Scene:
    return Scene(
        lambda x: x + (1 if x.sum().item() > 0 else 2),
        lambda seed: (normal(3, 4, seed=seed) * (float("nan") if seed % 2 else 1),),
    )
