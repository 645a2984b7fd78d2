"""Exports that are made before anything is timed: which, by whom, and what depends on them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ftax.errors import InvalidArgumentError
from ftax.records.store import read_records
from ftax.steps.setting import Setting
from ftax.sweeps.grid import Grid
from ftax.sweeps.job import Job, Wanted
from ftax.sweeps.plan import (
    JobQueue,
    choose_missing,
    make_export_jobs,
    make_jobs,
    read_exported,
)
from ftax.sweeps.progress import SweepProgress
from ftax.sweeps.results import EXPORTS_FILE, RUNS_FILE, read_times
from ftax.sweeps.scheduler import Scheduler
from ftax.sweeps.sites import choose_exporters
from ftax.sweeps.store import CellStore
from ftax.sweeps.sweep import run_sweep
from ftax.timing.plan import Plan
from ftax.workers.process import WorkerDied
from support.sweeps import FixedSites, list_places, make_cell, make_site


def make_all_jobs(cells, devices=("cpu",), exported=()):
    missing = choose_missing(cells, known={}, looks={}, sites=())
    wanted = [Wanted(device=device) for device in devices]
    return make_export_jobs(make_jobs(missing, 0), cells, wanted, set(exported))


def places(jobs):
    return [sorted(list_places(job)) for job in jobs]


def test_a_job_of_exports_is_a_few_sizes_of_a_model_in_one_dtype():
    cells = [
        make_cell("eager"),
        make_cell("torchscript"),
        *(make_cell("torchscript", dtype="fp16", batch=batch) for batch in (1, 2, 3)),
        *(make_cell("onnxruntime", dtype="fp16", batch=batch) for batch in (1, 2, 3)),
        make_cell("torchscript-frozen", model="other", device="cuda"),
        make_cell("aoti", model="other", device="cuda"),
        make_cell("aoti", model="other"),
    ]
    jobs = places(make_all_jobs(cells, ("cpu", "cuda")))
    assert [1] in jobs
    several = [set(job) for job in jobs if len(job) > 1]
    assert sorted(map(len, several)) == [2, 4] and set.union(*several) == {2, 3, 4, 5, 6, 7}
    # It is not known which of several GPUs will take a cell.
    assert [8] in jobs and [8] not in places(make_all_jobs(cells, ("cpu",)))
    on_gpu = [job for job in make_all_jobs(cells, ("cpu", "cuda")) if list_places(job) == [8]]
    assert on_gpu[0].cells[0].wanted == Wanted(device="cuda")
    # What times kernels to choose among them has to have the GPU to itself.
    assert [9] not in jobs and [10] in jobs
    done = [cells[place].key() for place in (1, 2, 3, 4, 6, 10)]
    assert places(make_all_jobs(cells, ("cpu",), done)) == [[5, 7]]


@pytest.mark.parametrize(
    ("cores", "host_gib", "gpu_gib", "workers"),
    [
        (2, 64, None, 0),
        (4, 64, None, 2),
        (16, 64, None, 12),
        (16, 15, None, 3),
        (64, 512, 141, 12),
        (64, 512, 24, 3),
        (64, 512, 8, 0),
    ],
)
def test_workers_are_as_many_as_cores_and_memory_have_room_for(cores, host_gib, gpu_gib, workers):
    gpu = None if gpu_gib is None else SimpleNamespace(memory_bytes=gpu_gib << 30)
    host = SimpleNamespace(usable_cpus=cores, memory_bytes=host_gib << 30)
    machine = SimpleNamespace(environment=SimpleNamespace(host=host, gpu=gpu))
    assert choose_exporters(machine) == workers


class DyingWorker:
    """Dies of one place; exports all others."""

    dies_of, pid = 1, 0
    started = 0

    def __init__(self, stop):
        type(self).started += 1

    def wait_until_ready(self):
        pass

    def send(self, job):
        job = Job.from_dict(job)
        assert job.exports
        self.answers = self.answer(list_places(job))

    def receive(self, limit_s):
        return next(self.answers)

    def end(self):
        pass

    def answer(self, places):
        for place in places:
            yield {"say": "begin", "step": "export", "places": [place]}
            if place == self.dies_of:
                raise WorkerDied("it was ended by SIGSEGV")
            yield {"say": "exported", "place": place, "seconds": 1.0, "reason": ""}
        yield {"say": "done", "result": True}


def test_a_worker_that_dies_costs_what_it_had_and_no_more(tmp_path, monkeypatch):
    cells = [make_cell("torchscript", model=f"m{number}") for number in range(4)]
    told = []
    site = make_site(DyingWorker)
    scheduler = Scheduler(
        store=CellStore(tmp_path, cells, ()), queue=JobQueue(), plan=Plan(),
        progress=SweepProgress(lambda *what: told.append(what[0])), sites=FixedSites([site]),
        trace_iterations=1, limit_s=1.0, end_at=None,
    )  # fmt: skip
    scheduler.export(make_all_jobs(cells), site, 2)
    assert read_exported(tmp_path) == {cells[place].key() for place in (0, 2, 3)}
    assert len(told) == 4 and all("of 4: m" in text for text in told)
    assert DyingWorker.started <= 3


@pytest.mark.slow
def test_a_sweep_exports_first_and_finds_the_files_when_it_times(tmp_path, monkeypatch):
    monkeypatch.setenv("FTAX_CACHE", str(tmp_path / "cache"))
    grid = Grid(
        models=("distilbert", "bert-base"),
        runtimes=("eager/python", "torchscript/python"),
        setting=Setting(tiny=True),
    )
    folder, told = tmp_path / "swept", []
    results = run_sweep(
        [grid], folder, quick=True, exporters=2, threads=1,
        progress=lambda *what: told.append(what[0]),
    )  # fmt: skip
    assert {cell.status for cell in results.cells} == {"measured"}
    traced = results.select(runtime="torchscript").cells
    assert [cell.facts["from_cache"] for cell in traced] == [True, True]
    made = read_records(folder / EXPORTS_FILE).records
    assert {item.cell for item in made} == {cell.cell for cell in traced}
    assert [(item.reason, item.seconds > 0) for item in made] == [("", True)] * 2
    assert read_times(folder)["export"] > 0
    first_round = next(place for place, text in enumerate(told) if text.startswith("measure"))
    exported = [place for place, text in enumerate(told) if text.startswith("export")]
    assert len(exported) == 2 and max(exported) < first_round
    run_sweep([grid], folder, resume=True, exporters=2, threads=1)
    assert len(read_records(folder / RUNS_FILE).records) == 4  # with nothing left to export


def test_so_many_exporters_are_refused(tmp_path):
    with pytest.raises(InvalidArgumentError, match="exporters is -1"):
        run_sweep([Grid(models=("bert-base",))], tmp_path, exporters=-1)
