"""Several workers on one GPU: they get ready side by side, and whoever measures is alone."""

from __future__ import annotations

import threading
import time
from contextlib import closing
from types import SimpleNamespace

import pytest

from ftax.sweeps.room import choose_sharers
from ftax.sweeps.turns import Turn, Turns
from ftax.workers.process import Stop, Stopped
from support.sweeps import die, make_cell, run_lanes, script_workers


@pytest.fixture
def stop():
    with closing(Stop()) as made:
        yield made


def start(work):
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize(
    ("cores", "host_gib", "gpu_gib", "gpus", "workers"),
    [
        (16, 128, 139, 1, 4),
        (64, 512, 139, 1, 4),
        (64, 512, 139, 8, 2),
        (64, 64, 139, 4, 2),
        (16, 128, 139, 8, 1),
        (3, 128, 139, 1, 1),
        (16, 24, 139, 1, 3),
        (16, 128, 48, 1, 2),
        (16, 128, 8, 1, 1),
    ],
)
def test_as_many_share_a_gpu_as_have_room(cores, host_gib, gpu_gib, gpus, workers):
    gpu = None if gpu_gib is None else SimpleNamespace(memory_bytes=gpu_gib << 30)
    host = SimpleNamespace(usable_cpus=cores, memory_bytes=host_gib << 30)
    machine = SimpleNamespace(environment=SimpleNamespace(host=host, gpu=gpu))
    assert choose_sharers(machine, gpus) == workers


def test_two_get_ready_together_and_measure_one_after_the_other(stop):
    turns = Turns()
    a, b = Turn(turns, stop), Turn(turns, stop)
    a.get_ready()
    b.get_ready()
    waiting = start(a.measure)
    waiting.join(0.1)
    assert waiting.is_alive()  # b is not ready
    b.leave()
    waiting.join(5)
    assert (a.state, b.state) == ("measuring", "away")
    later = start(b.measure)
    later.join(0.1)
    assert later.is_alive()
    a.leave()
    later.join(5)
    assert (a.state, b.state) == ("away", "measuring")


def test_a_worker_knows_the_processes_that_idle_beside_it(stop):
    turns = Turns()
    a, b, c = (Turn(turns, stop) for _ in range(3))
    a.pid, b.pid = 7, 8
    assert (a.list_others(), c.list_others()) == ([8], [7, 8])
    assert Turn(Turns(), stop).list_others() == []  # of another device


def test_who_waits_to_measure_goes_before_who_wants_to_get_ready(stop):
    turns = Turns()
    a, b, c = (Turn(turns, stop) for _ in range(3))
    order = []
    a.get_ready()
    measuring = start(lambda: (b.measure(), order.append("b"), time.sleep(0.05), b.leave()))
    while not turns.is_any("waiting to measure"):
        time.sleep(0.001)
    readying = start(lambda: (c.get_ready(), order.append("c")))
    time.sleep(0.05)
    a.leave()
    measuring.join(5)
    readying.join(5)
    assert order == ["b", "c"]


def test_who_gets_ready_stops_between_two_cells_for_who_waits_to_measure(stop):
    turns = Turns()
    a, b = Turn(turns, stop), Turn(turns, stop)
    a.get_ready()
    b.get_ready()
    b.get_ready()  # nobody waits: on with the next cell
    measuring = start(a.measure)
    while not turns.is_any("waiting to measure"):
        time.sleep(0.001)
    going_on = start(b.get_ready)
    measuring.join(5)
    going_on.join(0.1)
    assert (a.state, going_on.is_alive()) == ("measuring", True)
    a.leave()
    going_on.join(5)
    assert (a.state, b.state) == ("away", "getting ready")


def test_a_sweep_that_ends_lets_nobody_wait(stop):
    turns = Turns()
    a, b = Turn(turns, stop), Turn(turns, stop)
    a.get_ready()
    stop.set()
    with pytest.raises(Stopped):
        b.measure()
    a.measure()  # b waits no more, and nobody gets ready
    with pytest.raises(Stopped):
        b.get_ready()


def test_nothing_is_beside_a_worker_that_measures(tmp_path, monkeypatch):
    both = threading.Barrier(2, timeout=10)
    lock, active, clashes, prepared = threading.Lock(), [], [], []

    def script(step, places, number):
        with lock:
            beside = list(active)
            if {"measure", "trace"} & {step, *beside} and beside:
                clashes.append((step, beside))
            active.append(step)
            first = step == "prepare" and len(prepared) < 2
            if first:
                prepared.append(number)
        if first:
            both.wait()  # the other worker prepares at the same time, or this breaks
        time.sleep(0.002)
        with lock:
            active.remove(step)

    monkeypatch.setattr("ftax.sweeps.crews._TOGETHER", 2)
    workers = script_workers(script)
    cells = [make_cell(model=f"m{i}", device="cuda", batch=b) for i in range(6) for b in (1, 2)]
    found = run_lanes(workers, tmp_path, cells, looks=("trace",), devices=("cuda:0",), workers=2)
    assert len(found) == 12 and {cell.facts["trace"] for cell in found.values()} == {"found"}
    assert clashes == []
    assert workers.ended == len(workers.jobs) == 6
    idle = [pid for names in workers.told_idle for pid in names]
    assert idle and set(idle) <= workers.pids


def test_a_worker_that_dies_measuring_does_not_keep_the_gpu(tmp_path, monkeypatch):
    def script(step, places, number):
        if step == "measure" and 1 in places:
            die()

    workers = script_workers(script)
    cells = [make_cell(model=f"m{i}", device="cuda") for i in range(4)]
    found = run_lanes(workers, tmp_path, cells, devices=("cuda:0",), workers=2)
    assert [found[place].status for place in range(4)] == [
        "measured", "failed", "measured", "measured",
    ]  # fmt: skip
