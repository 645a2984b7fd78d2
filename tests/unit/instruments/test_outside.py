"""A wait that is planted before torch or after it is outside of torch, and one between is not."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import torch
from torch import nn

from ftax.instruments import outside
from ftax.instruments.outside import time_outside

WAIT_NS = 2_000_000


def wait(when: bool) -> None:
    end = time.monotonic_ns() + WAIT_NS * when
    while time.monotonic_ns() < end:
        pass


def make_run(place: str, *, module: bool) -> Callable[[], object]:
    layer = nn.Linear(4, 4).eval()
    if module:  # of whose forward Python is torch's own affair
        layer.register_forward_pre_hook(lambda *_: wait(place == "glue"))

    def run() -> list[float]:
        wait(place == "before")
        x = torch.ones(2, 4)
        wait(place == "between")
        y = layer(x) if module else x + 1
        numbers: list[float] = y.flatten().tolist()
        wait(place == "after")
        return numbers

    return run


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outside, "_SECONDS", 0.0)
    monkeypatch.setattr(outside, "_CALLS", 1)


@pytest.mark.parametrize("module", [False, True])
@pytest.mark.parametrize(
    ("place", "is_outside"),
    [("before", True), ("between", False), ("after", True), ("glue", False), ("", False)],
)
def test_a_wait_counts_where_it_is_outside_of_torch(place: str, is_outside: bool, module: bool):
    with torch.inference_mode():
        found = time_outside(make_run(place, module=module), lambda: None)
    wanted = WAIT_NS if is_outside else 0
    # The shortest: a neighbour makes others longer.
    assert min(found) == pytest.approx(wanted, abs=0.2 * WAIT_NS)


def test_a_call_without_torch_is_outside_as_a_whole():
    assert min(time_outside(lambda: wait(True), lambda: None)) >= 0.99 * WAIT_NS
