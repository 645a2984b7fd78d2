"""The knee: what rounds say of a size, what is stored, and knees that are known beforehand.

Most play a machine: `measure` is replaced by one that makes rounds of a latency curve, so that
noise, drift, failures and Ctrl-C are exact. One measures a module whose knee is planted.
"""

from __future__ import annotations

import random
import time
from dataclasses import replace

import pytest
import torch
from torch import nn

import ftax
import ftax.sweeps.knee as knee_probe
from delays import spin
from ftax import InvalidArgumentError, ResultsError, RunnerError, UnsupportedError
from ftax.reports.tables.knee_table import make_knee_table, make_point_table
from ftax.sweeps.knee import KNEE_PLAN
from ftax.sweeps.knee_record import Knee, KneePoint
from ftax.timing.plan import Plan
from ftax.timing.session import Session
from support.records import make_measurement
from support.small_models import normal

PLATEAU_NS = 1e6


class Machine:
    """Stands for `measure`: latencies of a curve, times noise, times a drift that both feel."""

    def __init__(self, curve, *, noise=0.0, drift=0.0, seed=0):
        self.curve, self.noise, self.drift = curve, noise, drift
        self.random = random.Random(seed)
        self.rounds = 0
        self.asked = []
        self.size = 0

    def load(self, size):
        self.size = size
        return ftax.load_model(self.module, inputs=normal(size, 4))

    module = nn.Linear(4, 4)

    def draw(self, latency_ns):
        return max(1, round(latency_ns * (1 + self.random.gauss(0, self.noise))))

    def __call__(self, loaded, prepared, plan, progress=None):
        self.asked.append((self.size, plan.rounds))
        pairs = []
        for _ in range(plan.rounds):
            self.rounds += 1
            speed = 1 + self.drift * self.rounds
            pairs.append([self.draw(speed * PLATEAU_NS * self.curve(n)) for n in (1, self.size)])
        sides = [make_measurement(side, checks={"disturbed_rounds": []}) for side in zip(*pairs)]
        return Session(
            measurements=tuple(sides), errors=(None, None), stop_reason="fixed-rounds",
            elapsed_s=0.0, gc_ms=0.0,
        )  # fmt: skip


def find(machine, monkeypatch, **settings):
    monkeypatch.setattr(knee_probe, "measure", machine)

    def inputs(size):
        machine.size = size
        return normal(size, 4)

    return ftax.knee(Machine.module, inputs, **settings)


def bend(at, slope):
    """1 up to `at`, then a straight line."""
    return lambda size: max(1.0, 1.0 + slope * (size - at))


def test_a_bend_is_found_where_it_passes_the_margin(monkeypatch):
    # 1 + 0.01 * (n - 20) passes 1.1 at 30.
    found = find(Machine(bend(20, 0.01)), monkeypatch, resolution=1e-9)
    assert (found.verdict, found.last_on, found.first_off) == ("found", 30, 31)
    assert found.stop_reason == "done"


@pytest.mark.parametrize("seed", range(5))
def test_noise_and_drift_leave_the_knee_inside_the_interval(monkeypatch, seed):
    machine = Machine(bend(20, 0.01), noise=0.03, drift=0.002, seed=seed)
    found = find(machine, monkeypatch, resolution=1e-9)
    assert found.last_on <= 30 < found.first_off
    assert found.first_off - found.last_on <= 12
    assert any(len(point.values_ns) > 10 for point in found.points)  # near the knee: more rounds


def test_a_clear_size_gets_few_rounds_and_an_unclear_one_all(monkeypatch):
    machine = Machine(lambda size: 1.0 if size < 8 else 1.1, noise=0.05)
    found = find(machine, monkeypatch, high=8)
    rounds = {point.size: len(point.values_ns) for point in found.points}
    assert rounds[8] == KNEE_PLAN.max_rounds
    assert found.answers[8] == "unsure"
    assert found.verdict == "cannot-tell"
    assert "cannot be told" in found.describe()


def test_a_step_and_a_curve_that_leaves_at_once(monkeypatch):
    step = find(Machine(lambda size: 1.0 if size <= 16 else 3.0), monkeypatch, resolution=1e-9)
    assert (step.last_on, step.first_off) == (16, 17)
    at_once = find(Machine(lambda size: float(size)), monkeypatch)
    assert (at_once.verdict, at_once.last_on, at_once.first_off) == ("at-once", 1, 2)
    assert "no plateau" in at_once.describe()


def test_a_curve_that_never_leaves(monkeypatch):
    found = find(Machine(lambda size: 1.0, noise=0.01), monkeypatch, high=64)
    assert (found.verdict, found.last_on, found.first_off) == ("beyond", 64, None)
    assert "beyond batch 64" in found.describe()


def test_memory_that_runs_out_is_an_upper_limit(monkeypatch):
    machine = Machine(lambda size: 1.0)

    def measure(loaded, prepared, plan, progress=None):
        session = machine(loaded, prepared, plan)
        if machine.size > 20:
            return replace(session, errors=(None, "CUDA out of memory. Tried to allocate 2 GiB"))
        return session

    monkeypatch.setattr(machine.__class__, "run", measure, raising=False)
    monkeypatch.setattr(knee_probe, "measure", measure)

    def inputs(size):
        machine.size = size
        return normal(size, 4)

    found = ftax.knee(Machine.module, inputs, resolution=1e-9)
    assert (found.verdict, found.last_on, found.first_off) == ("limited", 20, None)
    assert found.limit.size == 21
    assert found.limit.out_of_memory
    assert "memory ran out" in found.describe()
    assert "not run" in str(found)


def test_inputs_that_cannot_be_made_for_want_of_memory_are_a_limit_too(monkeypatch):
    def inputs(size):
        if size > 4:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate")
        machine.size = size
        return normal(size, 4)

    machine = Machine(lambda size: 1.0)
    monkeypatch.setattr(knee_probe, "measure", machine)
    found = ftax.knee(Machine.module, inputs)
    assert (found.verdict, found.last_on, found.limit.size) == ("limited", 4, 5)


def test_a_failing_plateau_is_an_error(monkeypatch):
    machine = Machine(lambda size: 1.0)

    def measure(*arguments):
        return replace(machine(*arguments), errors=("boom", None))

    with pytest.raises(RunnerError, match="batch 1 failed: boom"):
        find(measure_with(machine, measure), monkeypatch)


def measure_with(machine, function):
    """`function` as a machine that `find` tells the size."""

    class Told:
        size = property(
            lambda self: machine.size, lambda self, size: setattr(machine, "size", size)
        )

        def __call__(self, *arguments):
            return function(*arguments)

    return Told()


def test_ctrl_c_keeps_the_sizes_that_are_done(monkeypatch):
    machine = Machine(lambda size: 1.0)

    def measure(*arguments):
        if machine.size >= 8:
            raise KeyboardInterrupt
        return machine(*arguments)

    found = find(measure_with(machine, measure), monkeypatch)
    assert found.stop_reason == "interrupted"
    assert [point.size for point in found.points] == [2, 4]
    assert "(interrupted)" in found.describe()


def test_ctrl_c_before_the_first_size_is_passed_on(monkeypatch):
    machine = Machine(lambda size: 1.0)

    def measure(*arguments):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        find(measure_with(machine, measure), monkeypatch)


def test_an_interrupted_session_counts_with_its_rounds_and_ends_the_search(monkeypatch):
    machine = Machine(lambda size: 1.0)

    def measure(*arguments):
        return replace(machine(*arguments), stop_reason="interrupted")

    found = find(measure_with(machine, measure), monkeypatch)
    assert (found.stop_reason, len(found.points)) == ("interrupted", 1)


def test_the_time_limit_ends_the_search_with_what_there_is(monkeypatch):
    machine = Machine(lambda size: 1.0)

    def measure(*arguments):
        time.sleep(0.3)
        return machine(*arguments)

    plan = replace(KNEE_PLAN, duration_s=1.2)
    found = find(measure_with(machine, measure), monkeypatch, plan=plan)
    assert found.stop_reason == "time-limit"
    assert 1 <= len(found.points) <= 4
    assert "time limit" in found.describe()


def test_a_knee_is_stored_and_a_changed_one_refused(monkeypatch, tmp_path):
    found = find(Machine(bend(20, 0.01), noise=0.01), monkeypatch)
    path = tmp_path / "knee.jsonl"
    found.save(path)
    assert Knee.load(path) == (found,)
    data = found.to_dict()
    data["answer"] = {**data["answer"], "last_on": 5}
    with pytest.raises(ResultsError, match="answer"):
        Knee.from_dict(data)


def test_tables_have_a_row_a_runtime_and_a_row_a_size(monkeypatch):
    found = find(Machine(bend(20, 0.01)), monkeypatch)
    (row,) = make_knee_table([found]).rows
    assert row[:5] == ("eager", "Python", "1,000 us", str(found.last_on), str(found.first_off))
    sizes = [int(row[0]) for row in make_point_table(found).rows]
    assert sizes == sorted(point.size for point in found.points)


def test_a_point_is_judged_by_its_median_ratio():
    rounds = [100.0] * 10
    slow = [105.0] * 9 + [900.0]  # one disturbed round
    point = KneePoint(size=2, plateau_values_ns=rounds, values_ns=slow)
    assert point.ratio == pytest.approx(1.05)
    assert point.judge(0.1, 0.99) == "unsure"  # ten rounds need all of them for 99 %
    twice = KneePoint(size=2, plateau_values_ns=rounds * 2, values_ns=slow * 2)
    assert twice.judge(0.1, 0.99) == "on"
    few = KneePoint(size=2, plateau_values_ns=rounds[:4], values_ns=[300.0] * 4)
    assert few.judge(0.1, 0.99) == "unsure"
    assert (
        KneePoint(size=2, plateau_values_ns=rounds, values_ns=[111.0] * 10).judge(0.1, 0.99)
        == "off"
    )


def test_a_point_has_rounds_or_a_problem():
    with pytest.raises(InvalidArgumentError, match="a problem"):
        KneePoint(size=2)
    with pytest.raises(InvalidArgumentError, match="a problem"):
        KneePoint(size=2, plateau_values_ns=(1.0,), values_ns=(1.0, 2.0))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"over": "heads"}, "'batch' or 'sequence'"),
        ({"low": 4, "high": 4}, "low is 4 and high is 4"),
        ({"low": 0}, "low is 0"),
        ({"batch": 3}, "give low"),
        ({"host": "fortran"}, "'python' or 'cpp'"),
        ({"runtime": "egaer"}, "did you mean 'eager'"),
        ({"margin": -1.0, "high": 2}, "margin"),
    ],
)
def test_wrong_arguments_name_the_value(settings, message):
    with pytest.raises(InvalidArgumentError, match=message):
        ftax.knee(Machine.module, lambda size: normal(size, 4), **settings)


def test_a_module_needs_a_function_and_a_name_needs_none():
    with pytest.raises(InvalidArgumentError, match="function from a size"):
        ftax.knee(Machine.module, torch.ones(1, 4))
    with pytest.raises(InvalidArgumentError, match="makes its own"):
        ftax.knee("bert-base", lambda size: torch.ones(size, 4))
    loaded = ftax.load_model(Machine.module, inputs=normal(1, 4))
    with pytest.raises(UnsupportedError, match="inputs that were given"):
        ftax.knee(loaded)
    with pytest.raises(InvalidArgumentError, match="at most 512"):
        ftax.knee("bert-base", over="sequence", high=513, tiny=True)


def test_inputs_of_another_size_than_asked_for_are_an_error():
    with pytest.raises(InvalidArgumentError, match="batch is"):
        ftax.knee(Machine.module, lambda size: normal(3, 4), high=2)


class Planted(nn.Module):
    """540 us of host work, and 10 us more for each request of the batch."""

    def forward(self, x):
        spin(540_000 + 10_000 * x.shape[0])
        return x + 1


@pytest.mark.timing
def test_a_planted_knee_is_inside_the_interval():
    # (540 + 10 n) / 550 passes 1.1 at n = 6.5; the call's own few microseconds move it to 6.6.
    found = ftax.knee(
        Planted(),
        lambda size: normal(size, 4),
        high=64,
        plan=Plan(max_rounds=80, round_ms=10.0, duration_s=60.0),
        threads=1,
    )
    assert found.stop_reason == "done"
    assert found.last_on <= 6
    assert found.first_off >= 7
    assert found.first_off <= 16
    assert found.verdict == "found"


def test_a_model_is_built_once_for_all_sizes():
    loaded = ftax.load_model("bert-base", tiny=True, sequence=4)
    larger = loaded.with_size(batch=3)
    assert larger.module is loaded.module
    assert (larger.batch, larger.sequence) == (3, 4)
    assert larger.flat_inputs()[0].shape == (3, 4)
    again = ftax.load_model(**larger.recipe())
    assert torch.equal(again.flat_inputs()[0], larger.flat_inputs()[0])
    assert larger.with_size(sequence=6).flat_inputs()[0].shape == (3, 6)
    assert loaded.max_sequence == 512
    with pytest.raises(InvalidArgumentError, match="at most 512"):
        loaded.with_size(sequence=513)
