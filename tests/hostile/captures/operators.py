"""Operators of others, and what raises. See `table.py`."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
from hostile.captures.names import FACTOR
from hostile.captures.table import (
    Scene,
    refused,
    right,
)
from torch import Tensor, library, nn

from support.small_models import normal

_LIBRARY = library.Library("hostile_capture", "DEF")
_LIBRARY.define("scale(Tensor x) -> Tensor")
_LIBRARY.define("bump(Tensor(a!) x) -> ()")


@library.impl(_LIBRARY, "scale", "CPU")
def _scale(x: Tensor) -> Tensor:
    return x * FACTOR


@library.impl(_LIBRARY, "bump", "CPU")
def _bump(x: Tensor) -> None:
    x.add_(1)


@right()
def operator_of_a_library() -> Scene:
    global FACTOR
    FACTOR = 1.0

    def disturb(step: int) -> None:
        global FACTOR
        FACTOR = step + 2.0

    return Scene(lambda x: torch.ops.hostile_capture.scale(x), disturb=disturb)


@right()
def operator_that_writes() -> Scene:
    table = torch.zeros(4)

    def work(x: Tensor) -> Tensor:
        torch.ops.hostile_capture.bump(table)
        return x + table

    return Scene(work, watch=lambda: table)


@right()
def operator_that_python_writes() -> Scene:
    @library.custom_op("hostile_capture::twice", mutates_args=())
    def twice(x: Tensor) -> Tensor:
        return torch.from_numpy(x.numpy() * 2)

    return Scene(lambda x: twice(x))


@right(marks=(pytest.mark.filterwarnings("ignore::DeprecationWarning"),))
def scripted() -> Any:
    return torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))


@refused("cannot capture", marks=(pytest.mark.filterwarnings("ignore::DeprecationWarning"),))
def scripted_branch() -> Scene:
    source = "def branch(x):\n  if bool(x.sum() > 0):\n    return x.exp()\n  return x.neg()\n"
    unit = torch.jit.CompilationUnit(source)
    return Scene(lambda x: unit.branch(x))


@refused("later")
def raises_always() -> Scene:
    def fail(x: Tensor) -> Tensor:
        raise ValueError("later")

    return Scene(fail)


@right(recorded=1)
def raises_for_another_shape() -> Scene:
    module = nn.Linear(4, 4)
    return Scene(module, lambda seed: (normal(3, 5 if seed == 3 else 4, seed=seed),))


@right()
def recursion() -> Scene:
    def power(x: Tensor, n: int) -> Tensor:
        return x if n == 0 else power(x, n - 1) * x

    return Scene(lambda x: power(x, 5))


@refused("at operator aten::matmul")
def exception_inside() -> Scene:
    def work(x: Tensor) -> Tensor:
        with contextlib.suppress(RuntimeError):
            _ = x @ torch.ones(7)
        return x * 2

    return Scene(work)
