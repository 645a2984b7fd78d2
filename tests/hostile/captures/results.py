"""Results. See `table.py`."""

from __future__ import annotations

import contextlib
import types
from collections import OrderedDict
from typing import Any

import torch
from hostile.captures.table import (
    Scene,
    one,
    refused,
    right,
)
from torch import Tensor, nn


@right()
def result_that_is_the_argument(x: Tensor) -> Tensor:
    return x


@right()
def result_that_is_the_written_argument(x: Tensor) -> Tensor:
    return x.add_(1)


@right()
def result_that_is_a_view(x: Tensor) -> Tensor:
    return x[1:].t()


@right()
def results_that_share(x: Tensor) -> Any:
    y = x * 2
    return y, y[0], y, x.view(-1)


@right()
def result_that_is_a_weight() -> Scene:
    module = nn.Linear(4, 4)
    return Scene(lambda x: (module(x), module.weight), watch=lambda: list(module.parameters()))


@right()
def result_that_is_a_view_of_a_weight() -> Scene:
    module = nn.Linear(4, 4)
    return Scene(lambda x: (module(x), module.weight[0]))


@right()
def result_that_is_written_by_the_caller() -> Scene:
    kept: list[Tensor] = []
    table = torch.ones(4)

    def work(x: Tensor) -> Tensor:
        y = x * table
        kept[:] = kept[:0]
        return y

    return Scene(work)


@right()
def result_that_is_a_constant() -> Scene:
    # Made anew by each call, so a caller may write into it.
    def work(x: Tensor) -> Tensor:
        return torch.zeros(3)

    return Scene(work)


@right()
def no_result() -> Scene:
    table = torch.zeros(3, 4)

    def work(x: Tensor) -> None:
        table.add_(x)

    return Scene(work, watch=lambda: table)


@right()
def plain_results(x: Tensor) -> Any:
    return {"loss": x.sum(), "n": 3, "name": "a", "none": None, "list": [x, (x * 2,)], "flag": True}


@right()
def size_as_a_result(x: Tensor) -> Any:
    return x * 2, x.shape, x.dtype, x.device


@right(recorded=1)
def number_as_a_result(x: Tensor) -> Any:
    return x * 2, x.sum().item()


@refused("returns")
def object_as_a_result(x: Tensor) -> Any:
    return types.SimpleNamespace(x=x)


@refused("returns")
def generator_as_a_result(x: Tensor) -> Any:
    return (row for row in x)


@right()
def sparse_result(x: Tensor) -> Any:
    return x.relu().to_sparse()


@right()
def list_that_the_caller_changes() -> Scene:
    return Scene(lambda x: [x, [1, 2]])


@right()
def result_that_needs_gradients() -> Scene:
    return Scene(nn.Linear(4, 4), around=contextlib.nullcontext)


@right()
def result_of_an_argument_that_needs_gradients() -> Scene:
    return Scene(
        lambda x: x * 2,
        lambda seed: (one(seed)[0].requires_grad_(),),
        around=contextlib.nullcontext,
    )


@right()
def containers_of_results_are_new() -> Scene:
    return Scene(lambda x: {"a": [x + 1], "b": OrderedDict(c=x)})
