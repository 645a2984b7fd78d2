"""The order, the lock, and the time that is left."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from ftax.errors import InvalidArgumentError, ResultsError, UnavailableError, UnsupportedError
from ftax.records.fields import FrozenMap
from ftax.steps.setting import Setting
from ftax.sweeps.cells import choose_status, keep_scalars
from ftax.sweeps.grid import Grid
from ftax.sweeps.job import Job
from ftax.sweeps.looks import summarise
from ftax.sweeps.plan import JobQueue, make_job_cell, make_jobs
from ftax.sweeps.progress import SweepProgress, describe_time
from ftax.sweeps.results import SweepResults
from ftax.sweeps.store import lock_folder
from ftax.sweeps.sweep import list_unlike_before, run_sweep
from ftax.sweeps.sweep_records import SweepMachine
from support.sweeps import list_places, make_cell, make_site
from support.traces import make_repeated_trace


def test_a_machine_that_was_started_otherwise_is_told():
    here = make_site(None)
    environment = here.machine.environment
    settings = replace(environment.settings, num_threads=environment.settings.num_threads + 3)
    other = SweepMachine.of(replace(environment, settings=settings))
    assert other.id != here.machine.id

    def list_notes(*machines: SweepMachine) -> list[str]:
        known = SweepResults(cells=(), machines=FrozenMap({item.id: item for item in machines}))
        return list_unlike_before(known, [here, here])

    (note,) = list_notes(other)
    assert "counts as another machine's: threads are" in note
    assert list_notes() == list_notes(here.machine) == list_notes(here.machine, other) == []
    named = SweepMachine.of(replace(environment, machine="lab-2"))
    elsewhere = replace(environment, host=replace(environment.host, cpu_model="another"))
    assert list_notes(named) == list_notes(SweepMachine.of(elsewhere)) == []


def test_the_order_is_the_seeds_and_builds_each_model_once():
    cells = [
        make_cell(runtime, model=model, dtype=dtype, batch=batch)
        for model in ("m1", "m2", "m3")
        for dtype in ("fp32", "fp16")
        for batch in (1, 2, 4, 8)
        for runtime in ("a", "b")
    ]
    missing = make_missing(cells)
    jobs = make_jobs(missing, 1)
    assert jobs == make_jobs(missing, 1) != make_jobs(missing, 2)
    assert sorted(job.cells[0].model for job in jobs) == ["m1", "m2", "m3"]
    for job in jobs:
        dtypes = [cell.setting.dtype for cell in job.cells]
        assert dtypes == sorted(dtypes) or dtypes == sorted(dtypes, reverse=True)
        assert all(len(cells) == 2 for cells in job.sizes)
    assert any([cells[0].setting.batch for cells in job.sizes[:4]] != [1, 2, 4, 8] for job in jobs)
    places = [place for job in jobs for place in list_places(job)]
    assert sorted(places) == list(range(len(cells)))


def take_all(cells, workers):
    """How many cells are in what so many workers take, one after the other."""
    site, places = make_site(None), []
    queue, counts = JobQueue(make_jobs(make_missing(cells), 0)), []
    while jobs := queue.take(site, 1, workers):
        counts.append(sum(job.to_time for job in jobs))
        places += [place for job in jobs for place in list_places(job)]
    assert sorted(places) == list(range(len(cells)))  # none lost, none twice
    return counts


def make_model(sizes, model="m"):
    runtimes = ("a", "b")
    return [make_cell(name, model=model, batch=n + 1) for n in range(sizes) for name in runtimes]


def test_several_workers_share_one_model_and_end_together():
    assert take_all(make_model(100), 1) == [200]
    sizes = take_all(make_model(100), 4)
    assert sizes[:4] == [50, 38, 28, 22]  # each a quarter of what is left
    assert min(sizes) >= 8  # fewer are not worth building the model for


def test_a_model_of_few_cells_is_not_divided():
    cells = [cell for name in "abcdef" for cell in make_model(4, name)]
    assert take_all(cells, 4) == [8] * 6


def test_what_is_only_to_be_looked_at_is_not_divided():
    cells = make_model(30)
    looks = make_missing(cells, time=False, looks=("trace",))
    (job,) = JobQueue(make_jobs(looks, 0)).take(make_site(None), 1, 4)
    assert len(job.sizes) == 30


def test_what_is_measured_once_more_stands_evenly_between_the_models():
    """Each repetition with all of its cells in one place, so that they can be compared."""
    cells = [make_cell(model=f"m{number}", batch=batch) for number in range(12) for batch in (1, 2)]
    cells += [
        make_cell(model=model, options={"tiny": True, "repetition": mark})
        for mark in (1, 2, 3, 4)
        for model in ("m0", "m1")
    ]
    jobs = make_jobs(make_missing(cells), 5)
    places = [place for job in jobs for place in list_places(job)]
    assert sorted(places) == list(range(len(cells)))
    repeated = [number for number, job in enumerate(jobs) if job.cells[0].setting.tiny]
    assert repeated == [2, 6, 10, 14]  # 1.5, 4.5, ... of 12 models, with those before
    for number in repeated:
        found = jobs[number].cells
        assert {cell.model for cell in found} == {"m0", "m1"}
        settings = {replace(cell.setting, dtype=None, batch=None) for cell in found}
        assert settings == {Setting(sequence=8, tiny=True)}  # a mark makes no other model
        assert len({cells[cell.place].options["repetition"] for cell in found}) == 1


def test_what_is_measured_once_more_is_timed_in_rounds_of_its_own():
    """Also where one worker does all of it, one after the other."""
    cells = [make_cell(options={"repetition": mark} if mark else {}) for mark in (0, 1, 2)]
    jobs = make_jobs(make_missing(cells), 0)
    together = Job(cells=tuple(cell for job in jobs for cell in job.cells))
    assert len(together.sizes) == 3


def make_missing(cells, **changes):
    return [make_job_cell(place, cell, **changes) for place, cell in enumerate(cells)]


def test_a_folder_is_one_sweeps_at_a_time(tmp_path):
    grid = Grid(models=("bert-base",), setting=Setting(tiny=True))
    with (
        lock_folder(tmp_path),
        pytest.raises(
            ResultsError, match=rf"process {os.getpid()}\) is writing to .*another folder"
        ),
    ):
        run_sweep([grid], tmp_path)
    (tmp_path / "lock").write_text("1\n")  # what is written there holds nothing
    with lock_folder(tmp_path):
        assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    with (
        pytest.raises(ResultsError, match="choose a folder that can be written"),
        lock_folder(tmp_path / "file" / "folder"),
    ):
        pass


def test_the_time_left_is_that_of_the_cells_so_far():
    times = iter([0.0, 100.0, 200.0])
    told = []
    progress = SweepProgress(lambda *what: told.append(what), clock=lambda: next(times))
    progress.expect([(place, "") for place in range(110)], done_before=5)
    assert progress.left_s is None
    progress.finish(range(10))
    progress.finish([9])  # measured twice
    assert progress.left_s == 1000.0
    progress.tell("measure", "bert", 3)
    assert told == [("measure bert and 2 more, 33 min left", 15, 115)]
    assert [describe_time(s) for s in (40, 720, 12600)] == ["40 s", "12 min", "3.5 h"]


def test_a_cell_that_is_ready_counts_for_half_of_one():
    """Or four workers that got 40 cells ready and measured 3 would have days to go."""
    times = iter([0.0, 100.0, 120.0])
    progress = SweepProgress(None, clock=lambda: next(times))
    progress.expect((place, "") for place in range(100))
    progress.note_ready(range(40))
    assert (progress.done, progress.left_s) == (0, 100.0 / 20 * 80)
    progress.finish(range(10))
    assert progress.left_s == 120.0 / (10 + 15) * 75


def test_a_trace_is_summed_by_hand_or_refused():
    found = summarise(make_repeated_trace("a", "b"))
    assert found == {"busy_ns": 100.0, "kernel_ns": 100.0, "kernels": 2}
    lost = summarise(make_repeated_trace("a", dropped_records=3))
    assert set(lost) == {"fact"} and "dropped 3 records" in lost["fact"]


def test_facts_are_scalars_and_faults_have_a_status():
    kept = keep_scalars({"a": 1, "b": [1], "c": float("inf"), "d": None, "e": 0.5, "f": {"x": 1}})
    assert kept == {"a": 1, "d": None, "e": 0.5}
    assert choose_status(UnsupportedError("no")) == "unavailable"
    assert choose_status(UnavailableError("no")) == "unavailable"
    assert choose_status(ValueError("no")) == choose_status("no") == "failed"
    full = UnavailableError("no room in the cache")
    full.__cause__ = OSError("no space left")  # there may be some another time
    assert choose_status(full) == "failed"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"limit_s": 0}, "limit_s is 0; give a number above 0"),
        ({"time_limit_s": 0}, "time_limit_s is 0; give a number above 0"),
        ({"seed": -1}, "seed is -1"),
        ({"gpus": ()}, "gpus is empty"),
        ({"retry_failed": True}, "give resume too"),
        ({"threads": 0}, "threads is 0"),
    ],
)
def test_what_a_sweep_refuses(arguments, message, tmp_path):
    with pytest.raises(InvalidArgumentError, match=message):
        run_sweep(
            [Grid(models=("bert-base",), setting=Setting(tiny=True))], tmp_path / "new", **arguments
        )


def test_a_gpu_that_is_not_there_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    grid = Grid(models=("bert-base",), devices=("cuda",), runtimes=("cuda-graph/cpp",))
    with pytest.raises(UnavailableError, match="finds no CUDA device here"):
        run_sweep([grid], tmp_path / "new")
    assert not (tmp_path / "new").exists()
