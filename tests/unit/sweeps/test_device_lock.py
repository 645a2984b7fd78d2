"""Several workers on one GPU: they get ready side by side, and whoever measures is alone."""

from __future__ import annotations

import threading
import time
from contextlib import closing
from types import SimpleNamespace

import pytest

from ftax.sweeps.sites import choose_sharers
from ftax.sweeps.supervisor import DeviceLock, Supervisor
from ftax.workers.process import Stop, Stopped
from support.sweeps import die, make_cell, run_cells, script_workers


@pytest.fixture
def stop():
    with closing(Stop()) as made:
        yield made


def make_users(lock, stop, count):
    return [Supervisor(start=None, limit_s=1.0, lock=lock, stop=stop) for _ in range(count)]


def wait_for_waiting(lock):
    while "waiting to measure" not in lock._states.values():
        time.sleep(0.001)


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
    lock = DeviceLock()
    a, b = make_users(lock, stop, 2)
    lock.share(a)
    lock.share(b)
    waiting = start(lambda: lock.hold(a))
    waiting.join(0.1)
    assert waiting.is_alive()  # b is not ready
    lock.release(b)
    waiting.join(5)
    assert not waiting.is_alive()
    later = start(lambda: lock.hold(b))
    later.join(0.1)
    assert later.is_alive()
    lock.release(a)
    later.join(5)
    assert not later.is_alive()


def test_a_worker_knows_the_processes_that_idle_beside_it(stop):
    lock = DeviceLock()
    a, b, c = make_users(lock, stop, 3)
    for user, pid in ((a, 7), (b, 8), (c, 0)):  # c has none yet
        user.pid = pid
        lock.share(user)
    assert (lock.list_idle(a), lock.list_idle(c)) == ([8], [7, 8])
    assert DeviceLock().list_idle(a) == []  # of another device


def test_who_waits_to_measure_goes_before_who_wants_to_get_ready(stop):
    lock, order = DeviceLock(), []
    a, b, c = make_users(lock, stop, 3)
    lock.share(a)
    measuring = start(lambda: (lock.hold(b), order.append("b"), time.sleep(0.05), lock.release(b)))
    wait_for_waiting(lock)
    readying = start(lambda: (lock.share(c), order.append("c")))
    time.sleep(0.05)
    lock.release(a)
    measuring.join(5)
    readying.join(5)
    assert order == ["b", "c"]


def test_who_gets_ready_stops_between_two_cells_for_who_waits_to_measure(stop):
    lock = DeviceLock()
    a, b = make_users(lock, stop, 2)
    lock.share(a)
    lock.share(b)
    lock.share(b)  # none waits: on with the next cell
    measuring = start(lambda: lock.hold(a))
    wait_for_waiting(lock)
    going_on = start(lambda: lock.share(b))
    measuring.join(5)
    going_on.join(0.1)
    assert (measuring.is_alive(), going_on.is_alive()) == (False, True)
    lock.release(a)
    going_on.join(5)
    assert not going_on.is_alive()


def test_a_sweep_that_ends_lets_nobody_wait(stop):
    lock = DeviceLock()
    a, b = make_users(lock, stop, 2)
    lock.share(a)
    stop.set()
    with pytest.raises(Stopped):
        lock.hold(b)
    lock.hold(a)  # b waits no more, and no other gets ready
    with pytest.raises(Stopped):
        lock.share(b)


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

    monkeypatch.setattr("ftax.sweeps.scheduler._TOGETHER", 2)
    workers = script_workers(script)
    cells = [make_cell(model=f"m{i}", device="cuda", batch=b) for i in range(6) for b in (1, 2)]
    found = run_cells(workers, tmp_path, cells, looks=("trace",), devices=("cuda:0",), workers=2)
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
    found = run_cells(workers, tmp_path, cells, devices=("cuda:0",), workers=2)
    assert [found[place].status for place in range(4)] == [
        "measured", "failed", "measured", "measured",
    ]  # fmt: skip
