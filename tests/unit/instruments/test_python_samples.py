"""What spins in a line is that line's; what an operator takes is no time of Python."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from ftax.errors import RunnerError, UnavailableError
from ftax.instruments.python_samples import PythonSamples, sample_python

SPIN_NS = 300_000


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x)) + x


class Spin(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.spent_ns: list[int] = []  # others may use the CPU meanwhile

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        begin = time.perf_counter_ns()
        while time.perf_counter_ns() < begin + SPIN_NS: pass  # noqa: E701  # fmt: skip
        self.spent_ns.append(time.perf_counter_ns() - begin)
        return x


SPINNING = f"test_python_samples.py:{Spin.forward.__code__.co_firstlineno + 2} forward"


class Net(nn.Module):
    def __init__(self, last: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(12))
        self.last = last

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        result: torch.Tensor = self.last(x)
        return result


class Call(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.function()
        return x


def sample(root: nn.Module, prepare: Callable[[], None] = lambda: None) -> PythonSamples:
    x = torch.ones(2, 16)
    with torch.inference_mode():
        for _ in range(10):
            root(x)
        return sample_python(partial(root, x), prepare, root, seconds=0.5, calls_root=True)


def sum_of(found: PythonSamples, line: str = "", name: str | None = None) -> float:
    """The share of all samples."""
    chosen = (
        item.samples
        for item in found.lines
        if line in item.line and name in (None, found.groups[item.group].name)
    )
    return sum(chosen) / found.samples


@pytest.mark.timing
def test_a_busy_loop_in_one_line_has_its_part() -> None:
    spin = Spin()
    net, x = Net(spin), torch.ones(2, 16)
    with torch.inference_mode():
        begin = time.perf_counter_ns()
        for _ in range(500):
            net(x)
        wanted = sum(spin.spent_ns) / (time.perf_counter_ns() - begin)
    found = sample(net)
    assert found.lines[0].line == SPINNING
    assert sum_of(found, SPINNING) == pytest.approx(wanted, rel=0.1)
    assert sum_of(found, SPINNING, "last") == sum_of(found, SPINNING)


@pytest.mark.timing
def test_equal_layers_are_one_row_with_their_calls() -> None:
    found = sample(Net(nn.Identity()))
    calls = {group.name: group.calls for group in found.groups}
    assert calls == {"": 1, "layers.*": 12, "layers.*.linear": 12, "last": 1}
    assert {found.groups[item.group].name for item in found.lines} <= set(calls)
    assert sum_of(found, name="layers.*") > 0.1 < sum_of(found, name="layers.*.linear")
    assert 0.5 < sum_of(found) < 0.95
    # What is not in the model's code is torch's call of the model itself.
    assert sum_of(found, "test_python_samples.py:") > 0.9 * sum_of(found)


@pytest.mark.timing
def test_lines_of_a_model_of_torch_alone_are_those_of_its_forwards() -> None:
    found = sample(nn.Sequential(*(nn.Linear(16, 16) for _ in range(12))))
    files = {item.line.partition(":")[0] for item in found.lines if item.samples > 2}
    assert {"modules/container.py", "modules/linear.py"} <= files
    assert sum_of(found, "modules/module.py") < 0.5 * sum_of(found, "modules/container.py")


@pytest.mark.timing
def test_a_long_operator_is_not_booked_to_python() -> None:
    large = torch.ones(512, 512)
    found = sample(Net(Call(lambda: large @ large)))
    assert sum_of(found, name="last") < 0.05
    assert found.samples > 300


@pytest.mark.timing
def test_numpy_and_a_sleep_are_times_of_python() -> None:
    numbers = np.random.default_rng(0).random(50_000)
    assert sum_of(sample(Net(Call(lambda: np.sort(numbers)))), name="last") > 0.3
    assert sum_of(sample(Net(Call(lambda: time.sleep(0.002)))), name="last") > 0.5


@pytest.mark.timing
def test_what_is_prepared_before_a_call_is_in_no_sample() -> None:
    spin = Spin()
    found = sample(Net(nn.Identity()), lambda: spin.forward(torch.ones(1)) and None)
    assert found.samples > 100
    assert sum_of(found, SPINNING) == 0


def test_stacks_that_cannot_be_read_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_pid: int) -> None:
        raise PermissionError(1, "Operation not permitted", "/proc/self/mem")

    monkeypatch.setattr("ftax_run.sampler.find_python", refuse)
    with pytest.raises(UnavailableError, match=r"cannot be read: .*not permitted"):
        sample(Net(nn.Identity()))


def test_what_the_model_raises_is_raised() -> None:
    calls: list[int] = []

    def fail() -> None:
        calls.append(0)
        if len(calls) > 20:
            raise OSError("no file")

    with pytest.raises(RunnerError, match="no file"):
        sample(Call(fail))
