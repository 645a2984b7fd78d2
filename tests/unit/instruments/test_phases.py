"""A wait that is planted in a phase of a training step lies in it; torch is left as it was.

The clock is the tests' own: a wait moves it on, and a neighbour does not.
"""

import pytest
import torch
from torch import nn
from torch.optim.optimizer import Optimizer

import ftax
from ftax.instruments.phases import time_phases

WAIT_NS = 1_000_000


class Clock:
    """In the place of `time`: each look takes a microsecond."""

    now_ns = 0

    def perf_counter_ns(self) -> int:
        self.now_ns += 1_000
        return self.now_ns

    def perf_counter(self) -> float:
        return self.perf_counter_ns() / 1e9


CLOCK = Clock()


@pytest.fixture(autouse=True)
def _own_clock(monkeypatch):
    monkeypatch.setattr("ftax.instruments.phases.time", CLOCK)


def wait(ns: int) -> None:
    CLOCK.now_ns += ns


def make_run(place: str, *, passes: int = 1):
    torch.manual_seed(0)
    model = nn.Linear(4, 1)

    def ns_at(name: str) -> int:
        return WAIT_NS if name == place else 0

    class Slow(torch.optim.SGD):
        def step(self, closure=None):
            wait(ns_at("optimizer"))
            return super().step(closure)

    optimizer = Slow(model.parameters(), lr=0.1)
    model.weight.register_hook(lambda gradient: wait(ns_at("backward")))
    x = torch.ones(2, 4)

    def run():
        optimizer.zero_grad()
        for _ in range(passes):
            loss = model(x).sum()
            wait(ns_at("forward"))
            loss.backward()
        wait(ns_at("after backward"))
        optimizer.step()
        wait(ns_at("after optimizer"))
        return loss

    return run


def find(run) -> dict[str, float]:
    return {phase.name: phase.host_ns for phase in time_phases(run, lambda: None, "cpu")}


@pytest.mark.parametrize(
    "place", ["forward", "backward", "after backward", "optimizer", "after optimizer"]
)
def test_a_wait_lies_in_its_phase(place: str):
    before, after = find(make_run("")), find(make_run(place))
    assert list(after) == [
        *("forward", "zero_grad", "backward", "after backward", "optimizer", "after optimizer")
    ]
    for name, time_ns in after.items():
        wanted = WAIT_NS if name == place else 0
        assert time_ns - before[name] == pytest.approx(wanted, abs=0.01 * WAIT_NS)


def test_gradients_that_add_up_have_their_forward_passes_together():
    once, twice = find(make_run("forward")), find(make_run("forward", passes=2))
    assert twice["forward"] - once["forward"] == pytest.approx(WAIT_NS, rel=0.01)
    assert twice["after backward"] < 0.01 * WAIT_NS


def test_what_an_optimizer_does_after_its_closure_is_its_own():
    model = nn.Linear(4, 1)

    class Twice(torch.optim.SGD):
        def step(self, closure):
            for _ in range(2):
                loss = closure()
                wait(WAIT_NS)
            return loss

    optimizer = Twice(model.parameters(), lr=0.1)

    def closure():
        optimizer.zero_grad()
        loss = model(torch.ones(2, 4)).sum()
        wait(3 * WAIT_NS)
        loss.backward()
        return loss

    phases = find(lambda: optimizer.step(closure))
    assert phases["optimizer"] == pytest.approx(2 * WAIT_NS, rel=0.01)
    assert phases["forward"] == pytest.approx(6 * WAIT_NS, rel=0.01)
    assert "after backward" not in phases


def test_torch_is_left_as_it_was():
    engine, zero_grad = vars(torch.autograd)["_engine_run_backward"], Optimizer.zero_grad
    find(make_run(""))
    assert vars(torch.autograd)["_engine_run_backward"] is engine
    assert Optimizer.zero_grad is zero_grad


def test_a_receipt_of_training_has_phases_and_survives_a_file(tmp_path):
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = ftax.train(model, lambda m, x: m(x).sum(), optimizer, (torch.ones(2, 4),))
    plan = ftax.Plan(rounds=2, warmup=2, round_ms=2.0)
    receipt = ftax.tax(step, plan=plan, runtimes="none", operators=False, progress=False)
    assert "backward" in [phase.name for phase in receipt.phases]
    assert all(phase.device_ns is None for phase in receipt.phases)
    receipt.save(tmp_path / "r.jsonl")
    (again,) = ftax.Receipt.load(tmp_path / "r.jsonl")
    assert again.phases == receipt.phases
    assert "Phases of Linear in Python eager" in str(again.details)
