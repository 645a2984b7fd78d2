"""Models that installed packages bring: by name as the zoo's own, and harmless if broken."""

from __future__ import annotations

import sys
import types
from importlib.metadata import EntryPoint
from typing import Any

import pytest
import torch
from torch import nn

import ftax
from ftax import InvalidArgumentError, UnavailableError
from ftax.steps.load import load_model
from ftax.steps.zoo import registry


class Distribution:
    def __init__(self, name: str) -> None:
        self.name, self.version = name, "1.2"


def make_spec(name: str) -> ftax.ModelSpec:
    return ftax.ModelSpec(
        name=name,
        family="text",
        description="a line of four weights",
        source="a test",
        parameter_count=20,
        build=lambda variant: nn.Linear(4, 4),
        make_inputs=lambda module, shape, generator: (
            torch.randn(shape.batch, 4, generator=generator),
        ),
        size=4,
        tiny_size=4,
    )


@pytest.fixture
def brought(monkeypatch: pytest.MonkeyPatch) -> list[EntryPoint]:
    """Entry points of packages that are not there; `somebodys_models` is their module."""
    code: Any = types.ModuleType("somebodys_models")
    code.line, code.make_line = make_spec("line"), lambda: make_spec("made-line")
    code.number = 3
    monkeypatch.setitem(sys.modules, "somebodys_models", code)
    points: list[EntryPoint] = []
    monkeypatch.setattr(
        registry, "entry_points", lambda group: points if group == "ftax.models" else []
    )
    return points


def point(name: str, value: str, package: str = "somebodys") -> EntryPoint:
    made = EntryPoint(name=name, value=f"somebodys_models:{value}", group=registry.GROUP)
    return made._for(Distribution(package))  # type: ignore[attr-defined]


def test_a_model_of_a_package_is_listed_and_loaded_by_name(brought: list[EntryPoint]):
    brought += [point("made-line", "make_line"), point("line", "line")]
    assert [spec.name for spec in ftax.list_models()][-2:] == ["line", "made-line"]
    loaded = load_model("line", batch=3)
    assert loaded.name == "line" and loaded.call().shape == (3, 4)
    assert loaded.recipe() is not None  # so that a sweep can build it again


def test_a_broken_package_costs_its_own_models_alone(brought: list[EntryPoint]):
    brought += [point("absent", "absent"), point("number", "number"), point("line", "line")]
    assert [spec.name for spec in ftax.list_models()][-1] == "line"
    with pytest.raises(UnavailableError, match=r"absent of somebodys 1\.2 cannot be imported"):
        load_model("absent")
    with pytest.raises(InvalidArgumentError, match=r"is an int: give an ftax\.ModelSpec"):
        load_model("number")


def test_names_are_one(brought: list[EntryPoint]):
    brought += [point("other", "line"), point("line", "line"), point("line", "line", "elses")]
    with pytest.raises(InvalidArgumentError, match="named 'other' and its model 'line'"):
        load_model("other")
    with pytest.raises(InvalidArgumentError, match=r"elses 1\.2 and somebodys 1\.2 both bring"):
        load_model("line")
    brought[:] = [point("bert-base", "line")]
    assert load_model("bert-base", tiny=True).name == "bert-base"  # the zoo's own
