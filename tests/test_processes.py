"""Benchmarks in fresh processes."""

import math

import pytest

import ftax
from ftax.measure import Plan
from ftax.processes import BenchJob, repeat_disturbed, run_jobs

PLAN = Plan(rounds=3, warmup=1, round_ms=1.0)


def make_job(**changes):
    fields = {"model": "resnet-50", "plan": PLAN, "model_options": {"tiny": True}}
    return BenchJob(**{**fields, **changes})


def test_a_job_survives_json():
    job = make_job(plan=Plan(rounds=3, cpus=(0, 1)), threads=1)
    assert BenchJob.from_json(job.to_json()) == job


def test_each_repetition_is_a_process_of_one_session(monkeypatch):
    monkeypatch.setattr("ftax.processes._SHARED_RATIO", math.inf)  # whoever else is busy here
    a, b = run_jobs([make_job(), make_job(hosts=("python",))], processes=2)
    assert len(a) == len(b) == 2
    assert len({m.process.pid for m in (*a, *b)}) == 4
    assert len({m.process.session for m in (*a, *b)}) == 1
    assert [m.process.index for m in a] == [0, 1]
    comparison = ftax.compare(a, b)
    assert comparison.unit == "process"
    assert "welch" in comparison.method.lower()


def test_a_worker_that_fails_says_why():
    with pytest.raises(ftax.RunnerError, match="bert-base"):
        run_jobs([make_job(model="bert-bass")], processes=2)


def test_zero_processes_are_refused():
    with pytest.raises(ftax.InvalidArgumentError, match="processes is 0"):
        run_jobs([make_job()], processes=0)


def test_a_run_beside_a_busy_neighbour_is_repeated():
    runs = {"a": 100.0, "b": 170.0, "c": 119.0}
    again = iter([130.0, 101.0])
    repeated = repeat_disturbed(runs, float, lambda key: next(again), limit=6)
    assert repeated == 2
    assert runs == {"a": 100.0, "b": 101.0, "c": 119.0}


def test_repeating_ends_where_the_neighbour_stays():
    runs = {"a": 100.0, "b": 170.0}
    assert repeat_disturbed(runs, float, lambda key: 170.0, limit=3) == 3
    assert runs == {"a": 100.0, "b": 170.0}
