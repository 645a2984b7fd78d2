"""Benchmarks in fresh processes."""

import json
import math
import os
import random
import subprocess

import pytest

import ftax
from ftax.machines.gpu import expect_idle
from ftax.steps.setting import Setting
from ftax.sweeps.processes import BenchJob, repeat_disturbed, run_repeatedly
from ftax.timing.plan import Plan
from ftax.workers.forks import TurnTaker, take_turns
from support.records import make_measurement

PLAN = Plan(rounds=3, warmup=1, round_ms=1.0)


def make_job(**changes):
    fields = {"model": "bert-1x64", "plan": PLAN, "setting": Setting(tiny=True)}
    return BenchJob(**{**fields, **changes})


def test_a_job_survives_json():
    options = {"optimization": "basic"}
    setting = Setting(tiny=True, threads=1, grad_mode="no_grad", runtime_options=options)
    job = make_job(plan=Plan(rounds=3, cpus=(0, 1)), setting=setting)
    assert BenchJob.from_dict(json.loads(json.dumps(job.to_dict()))) == job


def test_each_repetition_is_a_process_of_one_session(monkeypatch):
    monkeypatch.setattr("ftax.sweeps.processes._SHARED_RATIO", math.inf)
    told = []
    runs = run_repeatedly(make_job(), processes=2, progress=lambda *what: told.append(what))
    found = runs.measurements
    assert runs.ended is None
    assert len({m.process.pid for m in found}) == 2
    assert len({m.process.session for m in found}) == 1
    assert [m.process.index for m in found] == [0, 1]
    assert [m.rounds_a_turn for m in found] == [None, None]
    assert told == [("process 1 of 2", 0, 2), ("process 2 of 2", 1, 2)]


def test_what_is_wrong_with_a_job_is_said_as_if_it_had_run_here():
    with pytest.raises(ftax.InvalidArgumentError, match=r"'bert-bass': did you mean 'bert-base'"):
        run_repeatedly(make_job(model="bert-bass"), processes=2)


def test_a_worker_that_dies_says_why(tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text(
        "import ftax.runtimes.prepare as p\np.prepare = lambda *args, **options: 1 / 0\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr("ftax.workers.process.subprocess", subprocess)  # no fork: Python starts
    with pytest.raises(ftax.RunnerError, match=r"for bert-1x64 failed: .*ZeroDivisionError"):
        run_repeatedly(make_job(), processes=2)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ftax.RunnerError("it died")])
def test_what_ends_a_repetition_does_not_cost_those_before_it(monkeypatch, error):
    answers = iter([*([make_measurement([100] * 9, index=index)] for index in (0, 1)), error])

    def run(job):
        if isinstance(answer := next(answers), BaseException):
            raise answer
        return answer

    monkeypatch.setattr("ftax.sweeps.processes._run_apart", run)
    monkeypatch.setattr("ftax.sweeps.processes.read_probe", lambda measurement: 1.0)
    runs = run_repeatedly(make_job(), processes=3)
    assert runs.ended is error
    assert [m.process.index for m in runs.measurements] == [0, 1]
    answers = iter([error])
    with pytest.raises(type(error)):
        run_repeatedly(make_job(), processes=3)


class FakeWorker:
    """Wants ``turns``, and writes down when it has one."""

    def __init__(self, pid, turns, journal):
        self.pid, self._journal = pid, journal
        self._answers = [{"say": "turn"}] * turns + [
            {"say": "measured", "of": pid},
            {"say": "done"},
        ]

    def receive(self, limit_s):
        assert limit_s > 0
        return self._answers.pop(0)

    def send(self, others):
        self._journal.append((self.pid, others))


class FakeLine:
    """Lets a process that asks go on, with ``answers``."""

    def __init__(self, *answers):
        self.said, self._answers = [], iter(answers)

    def say(self, what, **fields):
        self.said.append((what, fields))

    def hear(self):
        return next(self._answers)


def test_each_process_has_one_turn_before_any_has_another():
    journal = []
    workers = [FakeWorker(pid, turns, journal) for pid, turns in ((7, 4), (8, 4), (9, 2))]
    said = take_turns(workers, ["7", "8", "9"], random.Random(0))
    assert said == [[{"say": "measured", "of": pid}] for pid in (7, 8, 9)]
    order = [pid for pid, _ in journal]
    assert [set(order[at : at + 3]) for at in (0, 3)] == [{7, 8, 9}] * 2
    assert [set(order[at : at + 2]) for at in (6, 8)] == [{7, 8}] * 2
    assert len(order) == 10
    assert all(idle == sorted({7, 8, 9} - {pid}) for pid, idle in journal)


def test_a_turn_is_asked_for_before_the_rounds_and_after_every_fifth():
    line = FakeLine([], [], [], [], [])
    turns, said = TurnTaker(line, expect_idle), line.said
    turns("building the model", 0, 1)
    assert said == []
    turns.begin()
    for done in range(12):
        turns("round", done, 12)
        turns("round", done, 12)  # as while it waits for a quiet core
    assert said == [("turn", {})] * 3  # before rounds 0, 5 and 10
    for done in range(6):  # of what the same process measures next
        turns("round", done, 6)
    assert len(said) == 4


def test_zero_processes_are_refused():
    with pytest.raises(ftax.InvalidArgumentError, match="processes is 0"):
        run_repeatedly(make_job(), processes=0)


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
