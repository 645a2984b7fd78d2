"""Sites that come and go, with scripted workers: what a lost machine had begun others do."""

from __future__ import annotations

import threading
from dataclasses import fields, replace
from types import SimpleNamespace

import pytest

from ftax.errors import RunnerError, UnavailableError
from ftax.machines.gpu import GpuFacts
from ftax.sweeps import scheduler as module
from ftax.sweeps.job import Wanted
from ftax.sweeps.plan import (
    JobQueue,
    Planner,
    choose_missing,
    count_expected,
    make_jobs,
    read_wanted,
)
from ftax.sweeps.progress import SweepProgress
from ftax.sweeps.scheduler import Scheduler
from ftax.sweeps.store import CellStore
from ftax.sweeps.sweep import check_devices
from ftax.sweeps.sweep_records import SweepMachine
from ftax.timing.plan import Plan
from ftax.workers.cluster import MachineLost
from support.sweeps import (
    MACHINE,
    FixedSites,
    list_places,
    make_cell,
    make_measured,
    make_site,
    script_workers,
)

CELLS = [make_cell(model=f"m{number}") for number in range(6)]
ON_GPU = [replace(cell, device="cuda") for cell in CELLS]


def make_machine(name, gpu=None):
    environment = replace(MACHINE.environment, machine=name)
    if gpu is not None:
        unknown = dict.fromkeys(item.name for item in fields(GpuFacts))
        facts = GpuFacts(**{**unknown, "name": gpu, "driver": "1", "memory_bytes": 80 << 30})
        environment = replace(environment, device="cuda:0", gpu=facts)
    return SweepMachine.of(environment)


class Fleet(FixedSites):
    """Sites that may be lost, and that come once so many cells are there."""

    may_change = True

    def __init__(self, sites, later=(), store=None, after=0):
        super().__init__(sites)
        self._later, self._store, self._after = list(later), store, after

    def find(self):
        if self._later and len(self._store.known) >= self._after:
            self.sites += self._later
            self._later = []
        return super().find()

    def lose(self, site, reason):
        self.notes.append(reason)
        if site in self.sites:
            self.sites.remove(site)


def make_scheduler(folder, cells, sites, **changes):
    store = CellStore(folder, tuple(cells), ())
    missing = choose_missing(cells, known={}, looks={}, sites=sites)
    values = {
        "store": store, "queue": JobQueue(make_jobs(missing, 0)),
        "progress": SweepProgress(None), "sites": Fleet(sites), "plan": Plan(),
        "trace_iterations": 1, "limit_s": 1.0, "end_at": None, "workers": 1,
    }  # fmt: skip
    return Scheduler(**{**values, **changes})


def statuses(store):
    return {key: [line.status for line in lines.values()] for key, lines in store.known.items()}


def lose_at(wanted):
    def script(step, places, number):
        if step == "measure" and wanted(places, number):
            raise MachineLost("it is gone")

    return script


def test_a_lost_machine_costs_what_it_was_at_and_others_do_it(tmp_path):
    gone = threading.Event()

    def lose(step, places, number):
        if step == "measure" and number >= 1:  # its second job
            gone.set()
            raise MachineLost("it is gone")

    def wait(step, places, number):
        if step == "measure" and number >= 1:  # or it might have done them all by then
            assert gone.wait(60)

    frail, sound = script_workers(lose), script_workers(wait)
    sites = [make_site(frail, host="a", name="a"), make_site(sound, host="b", name="b")]
    scheduler = make_scheduler(tmp_path, CELLS, sites)
    scheduler.run(lambda there: None)
    assert set(map(tuple, statuses(scheduler.store).values())) == {("measured",)}
    assert len(scheduler.store.known) == len(CELLS)
    assert scheduler.sites.notes == ["it is gone"]
    lost = list_places(frail.jobs[-1])
    assert set(lost) <= {place for job in sound.jobs for place in list_places(job)}
    lines = [line for line in (tmp_path / "cells.jsonl").read_text().splitlines() if "m0" in line]
    assert len(lines) == 1


def test_a_cell_at_which_machines_are_lost_again_is_to_blame(tmp_path):
    workers = script_workers(lose_at(lambda places, number: 2 in places))
    sites = [make_site(workers, host=name, name=name) for name in ("a", "b", "c")]
    scheduler = make_scheduler(tmp_path, CELLS, sites)
    scheduler.run(lambda there: None)
    found = statuses(scheduler.store)
    assert found.pop(CELLS[2].key()) == ["failed"]
    assert set(map(tuple, found.values())) == {("measured",)}
    (line,) = scheduler.store.known[CELLS[2].key()].values()
    assert line.reason == "2 machines were lost while they were at it"


def test_a_cell_without_memory_beside_others_is_tried_alone(tmp_path):
    tried = []

    def script(step, places, number):
        if step != "measure" or 2 not in places:
            return None
        tried.append(number)
        return "CUDA out of memory. Tried to allocate 192 MiB" if len(tried) == 1 else None

    workers = script_workers(script)
    gpu = make_site(workers, device="cuda:0", machine=make_machine("a", "NVIDIA H100"))
    scheduler = make_scheduler(tmp_path, ON_GPU, [gpu], workers=2)
    scheduler.run(lambda there: None)
    assert set(map(tuple, statuses(scheduler.store).values())) == {("measured",)}
    assert tried[-1] == len(workers.jobs) - 1  # the last job of all, which is of that cell alone
    assert list_places(workers.jobs[-1]) == [2]


def test_a_cell_without_memory_alone_has_failed(tmp_path):
    def script(step, places, number):
        return "CUDA out of memory" if step == "measure" and 2 in places else None

    gpu = make_site(
        script_workers(script), device="cuda:0", machine=make_machine("a", "NVIDIA H100")
    )
    scheduler = make_scheduler(tmp_path, ON_GPU, [gpu], workers=2)
    scheduler.run(lambda there: None)
    found = statuses(scheduler.store)
    assert found.pop(ON_GPU[2].key()) == ["failed"]
    assert set(map(tuple, found.values())) == {("measured",)}


def test_a_machine_that_comes_later_takes_part_and_is_welcomed_first(tmp_path):
    held, begun = threading.Event(), []

    def wait(step, places, number):
        if step == "measure" and number == 1:
            held.wait(10)

    def note(step, places, number):
        begun.append(step)
        held.set()

    first = make_site(script_workers(wait), host="a")
    second = make_site(script_workers(note), host="b", machine=make_machine("b"))
    scheduler = make_scheduler(tmp_path, CELLS, [first])
    scheduler.sites = Fleet([first], [second], scheduler.store, after=1)
    welcomed = []
    scheduler.run(lambda there: welcomed.append([site.host for site in there]))
    assert set(map(tuple, statuses(scheduler.store).values())) == {("measured",)}
    assert begun and ["a"] in welcomed and ["a", "b"] in welcomed


def test_the_last_machine_gone_ends_the_sweep_with_how_to_go_on(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_ALONE_S", 0.0)
    workers = script_workers(lose_at(lambda places, number: number == 2))
    scheduler = make_scheduler(tmp_path, CELLS, [make_site(workers, host="a")])
    with pytest.raises(RunnerError, match=r"4 cells are left.*\(cpu\); it is gone; .*--resume"):
        scheduler.run(lambda there: None)
    assert len(scheduler.store.known) == 2


def test_cores_are_never_measured_beside_a_gpu_of_their_host(tmp_path):
    active, beside, lock = [], [], threading.Lock()

    def note(name):
        def script(step, places, number):
            if step == "measure":
                with lock:
                    active.append(name)
                    beside.append(tuple(sorted(active)))
                threading.Event().wait(0.02)
                with lock:
                    active.remove(name)

        return script_workers(script)

    cells = [*CELLS, *(make_cell(model=f"g{number}", device="cuda") for number in range(6))]
    sites = [
        make_site(note(f"{device} of {host}"), device, host=host)
        for host in ("a", "b")
        for device in ("cuda:0", "cpu")
    ]
    scheduler = make_scheduler(tmp_path, cells, sites)
    scheduler.run(lambda there: None)
    assert len(scheduler.store.known) == 12
    together = {
        host for names in beside for host in "ab" if len([n for n in names if n[-1] == host]) > 1
    }
    assert together == set()


def test_nodes_with_the_same_cores_measure_in_turns(tmp_path):
    active, most, lock = [], [], threading.Lock()

    def script(step, places, number):
        if step == "measure":
            with lock:
                active.append(number)
                most.append(len(active))
            threading.Event().wait(0.02)
            with lock:
                active.pop()

    sites = [make_site(script_workers(script), host="same", name=name) for name in "abc"]
    scheduler = make_scheduler(tmp_path, CELLS, sites)
    scheduler.run(lambda there: None)
    assert len(scheduler.store.known) == 6 and max(most) == 1


def test_a_cell_goes_to_the_gpu_that_it_wants():
    h100 = make_site(None, "cuda:0", machine=make_machine("a", "NVIDIA H100 80GB HBM3"))
    cpu = make_site(None)
    cell = make_cell(device="cuda", options={"gpu": "NVIDIA h100"})
    assert h100.fits(read_wanted(cell)) and not cpu.fits(read_wanted(cell))
    assert not h100.fits(Wanted(device="cuda", gpu="A100"))
    assert h100.fits(Wanted(device="cuda")) and h100.fits(Wanted(device="cuda:0"))
    assert not h100.fits(Wanted(device="cuda:1"))
    assert not h100.fits(Wanted(device="cuda", machine="another"))
    with pytest.raises(
        UnavailableError,
        match="devices has 'A100', which no machine here has: there is NVIDIA H100 80GB HBM3, cpu",
    ):
        check_devices([make_cell(device="cuda", options={"gpu": "A100"})], [h100, cpu])
    with pytest.raises(UnavailableError, match=r"there is cpu; b was left out: no driver$"):
        check_devices([cell], [cpu], ["b was left out: no driver"])


def list_asked(missing):
    return {(cell.place, cell.wanted.machine) for cell in missing}


def test_what_every_machine_measures_is_asked_of_each_and_of_those_that_come():
    east, west = (make_site(None, machine=make_machine(name)) for name in ("east", "west"))
    cells = CELLS[:3]
    keys = [cell.key() for cell in cells[:2]]
    known = {cells[0].key(): {west.machine.id: make_measured(cells[0], machine=west.machine.id)}}
    asked = SimpleNamespace(known=known, looks={}, everywhere=keys)
    first = choose_missing(cells, **vars(asked), sites=[east, west])
    assert list_asked(first) == {
        (0, east.machine.id), (1, east.machine.id), (1, west.machine.id), (2, ""),
    }  # fmt: skip
    assert count_expected(cells, keys, [east, west], is_first=True) == 5
    later = choose_missing(cells, **vars(asked), sites=[west], is_first=False)
    assert list_asked(later) == {(1, west.machine.id)}
    jobs = make_jobs(first, 0)
    assert sorted(job.cells[0].wanted.machine for job in jobs) == sorted(
        ["", east.machine.id, east.machine.id, west.machine.id]
    )


def test_a_machine_that_is_gone_is_named_with_what_it_lacks(tmp_path):
    east, west = make_machine("east"), make_machine("west")
    cells = CELLS[:3]
    keys = [cell.key() for cell in cells]

    def plan(known):
        store = CellStore(tmp_path, tuple(cells), known, keys)
        planner = Planner(
            store=store, queue=JobQueue(), progress=SweepProgress(None), looks={},
            retry_failed=False, seed=0,
        )  # fmt: skip
        planner.add_sites([make_site(None, machine=east)])
        return planner.list_absent()

    (note,) = plan([make_measured(cells[0], machine=west.id)])
    assert note.startswith(f"machine {west.id[:6]} was not there: 2 of the 3 cells that every")
    assert plan([make_measured(cell, machine=west.id) for cell in cells]) == []
    assert plan([make_measured(cells[0], machine=east.id)]) == []


def test_machines_of_one_kind_have_ids_by_their_names():
    east, west, alone = make_machine("east"), make_machine("west"), make_machine("")
    assert len({east.id, west.id, alone.id}) == 3
    assert east.alike == west.alike == alone.alike == alone.id


def test_a_failure_stays_where_each_machine_was_to_measure(tmp_path):
    east, west = make_machine("east"), make_machine("west")
    for everywhere, kept in (([CELLS[0].key()], ["failed", "measured"]), ([], ["measured"])):
        store = CellStore(tmp_path / str(len(kept)), (CELLS[0],), (), everywhere)
        store.path.parent.mkdir()
        store.add_failed(0, store.add_machine(east.environment), "failed", "it broke")
        rounds = {"values_ns": [1.0, 2.0], "facts": {}}
        store.add_measured(0, store.add_machine(west.environment), "cpu", rounds)
        assert [cell.status for cell in store.collect().cells] == kept
