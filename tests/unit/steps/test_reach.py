"""What a step's function can get at is found before it runs, so that it is left as it was found."""

import functools
import sysconfig
import weakref
from typing import Any

import pytest
import torch
from torch import nn

from ftax.steps.reach import copy_containers, find_reached, is_installed, is_library

GLOBAL = nn.Linear(2, 2)


class Trainer:
    def __init__(self) -> None:
        self.parts = {"model": nn.Linear(2, 2)}

    def run(self, x: torch.Tensor) -> torch.Tensor:
        return self.parts["model"](x)


def find_modules(start: Any) -> list[Any]:
    return [item for item in find_reached(start) if isinstance(item, nn.Module)]


def test_names_of_a_function_are_followed():
    model, other = nn.Linear(2, 2), nn.Linear(2, 2)

    def inner(x: torch.Tensor) -> torch.Tensor:
        return model(x)

    def run(x: torch.Tensor, module: nn.Module = other) -> torch.Tensor:
        return module(inner(x)) + GLOBAL(x)

    assert {id(item) for item in find_modules(run)} == {id(model), id(other), id(GLOBAL)}
    assert find_modules(functools.partial(lambda m, x: m(x), model)) == [model]


def test_an_object_leads_to_what_it_holds():
    trainer = Trainer()
    assert find_modules(trainer.run) == [trainer.parts["model"]]
    assert any(item is trainer.parts for item in find_reached(trainer.run))


def test_what_cannot_be_looked_at_is_passed_over():
    gone = weakref.proxy(nn.Linear(2, 2))
    assert find_reached(lambda x: gone(x)) == []


def test_a_schedule_is_found():
    optimizer = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    found = find_reached(lambda: schedule.step())
    assert any(item is schedule for item in found)
    assert any(item is optimizer for item in found)


def test_containers_are_copied_with_those_within_them():
    inner = [1]
    copies: dict[int, tuple[Any, Any]] = {}
    copy_containers({"a": inner}, copies)
    inner.append(2)
    assert copies[id(inner)] == (inner, [1])


@pytest.mark.parametrize("folder", ["site-packages", "dist-packages"])
def test_packages_of_the_python_that_an_environment_is_of_are_no_library(folder: str) -> None:
    """They lie within Python's own library, and not where this environment installs."""
    standard = sysconfig.get_path("stdlib")
    file = f"{standard}/{folder}/somebody/model.py"
    assert is_library(f"{standard}/functools.py") and not is_installed(f"{standard}/functools.py")
    assert not is_library(file) and is_installed(file)
