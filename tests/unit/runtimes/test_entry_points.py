"""Runtimes that installed packages bring: listed without being imported, and harmless if broken."""

from __future__ import annotations

import re
import sys
import types
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import torch

import ftax
from ftax.errors import (
    FtaxError,
    InvalidArgumentError,
    RunnerError,
    UnavailableError,
    UnsupportedError,
)
from ftax.runtimes.catalogue import find_runtime, list_runtimes
from ftax.runtimes.plugins import entry_points as module
from ftax.steps.loaded import LoadedModel
from ftax.timing.plan import Plan

QUICK = Plan(rounds=3, warmup=5, round_ms=1.0)


class Distribution:
    def __init__(self, name: str) -> None:
        self.name, self.version = name, "1.2"


def point(name: str, value: str, package: str = "somebodys") -> EntryPoint:
    made = EntryPoint(name=name, value=value, group=module.GROUP)
    return made._for(Distribution(package))  # type: ignore[attr-defined]


@pytest.fixture
def brought(monkeypatch: pytest.MonkeyPatch) -> list[EntryPoint]:
    """Entry points of packages that are not there; `somebodys_runtimes` is their module."""
    points: list[EntryPoint] = []
    code = types.ModuleType("somebodys_runtimes")

    def prepare(loaded: LoadedModel) -> Any:
        return loaded.bind()

    def prepare_doubled(loaded: LoadedModel) -> Any:
        return lambda: loaded.call() * 2

    def prepare_broken(loaded: LoadedModel) -> Any:
        raise KeyError("its own")

    def prepare_unable(loaded: LoadedModel) -> Any:
        raise RuntimeError("as torch raises it")

    def prepare_full(loaded: LoadedModel) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    def prepare_calling_broken(loaded: LoadedModel) -> Any:
        return lambda: {}["missing"]

    def prepare_failing_later(loaded: LoadedModel) -> Any:
        calls = iter(range(9))

        def call() -> Any:
            next(calls)
            return loaded.call()

        return call

    for function in (
        prepare, prepare_doubled, prepare_broken, prepare_unable, prepare_full,
        prepare_calling_broken, prepare_failing_later,
    ):  # fmt: skip
        setattr(code, function.__name__, function)
    code.number = 3  # type: ignore[attr-defined]
    code.prepare_nothing = lambda loaded: None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "somebodys_runtimes", code)
    monkeypatch.setattr(
        module, "entry_points", lambda group: points if group == module.GROUP else []
    )
    return points


def test_runtime_of_a_package_is_timed(mlp: LoadedModel, brought: list[EntryPoint]) -> None:
    brought.append(point("theirs", "somebodys_runtimes:prepare"))
    measurement = ftax.py_bench(mlp, runtime="theirs", plan=QUICK)
    assert (measurement.cell.runtime, measurement.cell.host) == ("theirs", "python")
    assert measurement.preparation["distribution"] == "somebodys 1.2"
    assert measurement.checks["outputs"]["bitwise"]
    spec = find_runtime("theirs")
    assert "somebodys 1.2" in spec.description
    assert "called from Python" in str(spec.find_obstacle(host="cpp"))


@pytest.mark.slow
def test_the_example_of_the_documentation_runs_a_model_by_name(
    brought: list[EntryPoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[3] / "docs" / "extending.md").read_text("utf-8")
    (source,) = re.findall(r'```python title="my_package/runtime.py"\n(.*?)```', page, re.DOTALL)
    code = types.ModuleType("my_package_runtime")
    exec(source, code.__dict__)
    monkeypatch.setitem(sys.modules, "my_package_runtime", code)
    brought.append(point("mine", "my_package_runtime:prepare"))
    measurement = ftax.py_bench("bert-base", tiny=True, runtime="mine", plan=QUICK)
    torch._dynamo.reset()
    assert measurement.checks["outputs"]["within_tolerance"]
    assert measurement.checks["second_input"]["within_tolerance"]


def test_it_is_among_the_alternatives(mlp: LoadedModel, brought: list[EntryPoint]) -> None:
    brought.append(point("theirs", "somebodys_runtimes:prepare"))
    receipt = ftax.tax(mlp, runtimes=["theirs"], plan=QUICK, operators=False)
    assert [m.cell.runtime for m in receipt.others] == ["theirs"]
    assert "theirs" in [spec.name for spec in list_runtimes()]


def test_other_outputs_are_marked(mlp: LoadedModel, brought: list[EntryPoint]) -> None:
    brought.append(point("doubled", "somebodys_runtimes:prepare_doubled"))
    measurement = ftax.py_bench(mlp, runtime="doubled", plan=QUICK)
    assert not measurement.checks["outputs"]["within_tolerance"]


def test_listing_imports_nothing(
    brought: list[EntryPoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    brought.append(point("theirs", "a_module_that_is_not_there:prepare"))
    monkeypatch.setattr(EntryPoint, "load", lambda self: pytest.fail("was imported"))
    assert list_runtimes()[-1].name == "theirs"
    assert find_runtime("eager").name == "eager"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("a_module_that_is_not_there:prepare", "cannot be imported (ModuleNotFoundError"),
        ("somebodys_runtimes:not_there", "cannot be imported (AttributeError"),
        ("somebodys_runtimes:number", "is an int; it has to be a function"),
    ],
)
def test_broken_entry_point_is_unavailable_with_its_reason(
    value: str, reason: str, mlp: LoadedModel, brought: list[EntryPoint]
) -> None:
    brought.append(point("broken", value))
    spec = find_runtime("broken")
    obstacle = str(spec.find_obstacle())
    assert reason in obstacle and "somebodys 1.2" in obstacle
    with pytest.raises(UnavailableError):
        ftax.py_bench(mlp, runtime="broken")
    receipt = ftax.tax(mlp, runtimes=["broken"], plan=QUICK, operators=False)
    assert [reason in item.reason for item in receipt.unavailable] == [True]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("prepare_broken", "prepare raised KeyError: 'its own'"),
        ("prepare_unable", "prepare raised RuntimeError: as torch raises it"),
        ("prepare_calling_broken", "the callable that it returned raised KeyError"),
        ("prepare_nothing", "returned NoneType; it has to return a callable"),
    ],
)
def test_package_that_fails_is_named(
    name: str, reason: str, mlp: LoadedModel, brought: list[EntryPoint]
) -> None:
    brought.append(point("theirs", f"somebodys_runtimes:{name}"))
    with pytest.raises(UnsupportedError, match=reason) as caught:
        ftax.py_bench(mlp, runtime="theirs")
    assert f"somebodys_runtimes:{name} of somebodys 1.2" in str(caught.value)


def test_memory_that_runs_out_is_not_the_packages_fault(
    mlp: LoadedModel, brought: list[EntryPoint]
) -> None:
    brought.append(point("theirs", "somebodys_runtimes:prepare_full"))
    with pytest.raises(RunnerError, match=r"out of memory.*choose a smaller batch"):
        ftax.py_bench(mlp, runtime="theirs")


def test_package_that_fails_while_it_is_measured_is_named(
    mlp: LoadedModel, brought: list[EntryPoint]
) -> None:
    brought.append(point("theirs", "somebodys_runtimes:prepare_failing_later"))
    with pytest.raises(FtaxError, match="StopIteration") as caught:
        ftax.py_bench(mlp, runtime="theirs", plan=QUICK)
    assert "somebodys_runtimes:prepare_failing_later of somebodys 1.2" in str(caught.value)


def test_name_of_ours_stays_ours(mlp: LoadedModel, brought: list[EntryPoint]) -> None:
    brought.append(point("eager", "somebodys_runtimes:prepare"))
    spec = list_runtimes()[-1]
    assert spec.name == "eager (somebodys 1.2)"
    assert "one of ftax's own" in str(spec.find_obstacle())
    assert find_runtime("eager").hosts == ("python", "cpp")


def test_two_packages_of_one_name_are_both_unavailable(brought: list[EntryPoint]) -> None:
    brought += [
        point("theirs", "somebodys_runtimes:prepare", package) for package in ("somebodys", "elses")
    ]
    found = list_runtimes()[-2:]
    assert [spec.name for spec in found] == ["theirs (elses 1.2)", "theirs (somebodys 1.2)"]
    assert all("uninstall one" in str(spec.find_obstacle()) for spec in found)
    with pytest.raises(InvalidArgumentError, match="there is no runtime 'theirs'"):
        find_runtime("theirs")
