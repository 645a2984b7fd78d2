"""What becomes of cells when workers die at every step: none is lost, and only the guilty fail."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from ftax.errors import ResultsError, RunnerError
from ftax.sweeps.results import SweepResults
from ftax.sweeps.store import CellStore
from support.sweeps import (
    MACHINE,
    die,
    list_places,
    make_cell,
    make_failed,
    make_measured,
    run_cells,
    script_workers,
)

CELLS = [make_cell(name) for name in ("a", "b", "c")]
STATUSES = {0: "measured", 1: "measured", 2: "measured"}


def statuses(found):
    return {place: cell.status for place, cell in found.items()}


def test_cells_of_one_size_are_timed_together_and_one_worker_does_all(tmp_path, monkeypatch):
    workers = script_workers(lambda step, places, number: None)
    cells = [*CELLS, make_cell(batch=2), make_cell(model="other")]
    found = run_cells(workers, tmp_path, cells)
    assert set(statuses(found).values()) == {"measured"} and len(found) == 5
    by_model = {job.cells[0].model: job for job in workers.jobs}
    assert sorted(map(len, by_model["m"].sizes)) == [1, 3]
    assert workers.ended == 1  # no trace, so one process did both models


@pytest.mark.parametrize(
    ("devices", "expected"),
    [(("cuda:0",), [4, 4, 3]), (("cuda:0", "cuda:1"), [4, 3, 2, 1, 1])],
)
def test_a_worker_on_a_gpu_has_models_of_so_many_cells(devices, expected, tmp_path, monkeypatch):
    """With several GPUs, fewer towards the end."""
    workers = script_workers(lambda step, places, number: None)
    monkeypatch.setattr("ftax.sweeps.scheduler._TOGETHER", 9)
    cells = [
        make_cell(model=f"m{number}", device="cuda", batch=batch)
        for number in range(11)
        for batch in (1, 2)
    ]
    found = run_cells(workers, tmp_path, cells, looks=("trace",), devices=devices)
    assert [cell.facts["trace"] for cell in found.values()] == ["found"] * 22
    sizes = [len({cell.model for cell in job.cells}) for job in workers.jobs]
    assert sorted(sizes) == sorted(expected)


def test_a_worker_that_is_late_leaves_the_rest_without_an_answer(tmp_path, monkeypatch):
    workers = script_workers(lambda step, places, number: None)
    cells = [make_cell(model=name, device="cuda", batch=b) for name in ("m", "n") for b in (1, 2)]
    arguments = {"looks": ("trace",), "devices": ("cuda:0",)}
    (found,) = run_cells(workers, tmp_path, cells, **arguments, time_limit_s=60.0).values()
    assert (found.status, found.facts["trace"], len(workers.jobs)) == ("measured", "found", 1)
    known = SweepResults.load(tmp_path).cells
    whole = run_cells(workers, tmp_path, cells, known=known, **arguments)
    assert set(statuses(whole).values()) == {"measured"} and len(whole) == 4


def test_after_the_end_no_worker_is_given_anything(tmp_path, monkeypatch):
    workers = script_workers(lambda step, places, number: None)
    assert run_cells(workers, tmp_path, CELLS, time_limit_s=-1.0) == {}
    assert workers.jobs == []


def test_a_model_with_more_cells_than_that_is_one_workers(tmp_path, monkeypatch):
    workers = script_workers(lambda step, places, number: None)
    monkeypatch.setattr("ftax.sweeps.scheduler._TOGETHER", 2)
    cells = [make_cell(device="cuda", batch=batch) for batch in (1, 2, 3)]
    run_cells(workers, tmp_path, cells, looks=("trace",), devices=("cuda:0",))
    assert [len(job.cells) for job in workers.jobs] == [3]


def test_a_death_while_one_model_is_traced_costs_no_other_its_trace(tmp_path, monkeypatch):
    def script(step, places, number):
        if step == "trace" and places == [1]:
            die()

    workers = script_workers(script)
    cells = [make_cell(model=f"m{number}", device="cuda") for number in range(4)]
    found = run_cells(workers, tmp_path, cells, looks=("trace",), devices=("cuda:0",))
    assert {cell.status for cell in found.values()} == {"measured"}
    assert [found[place].facts["trace"] == "found" for place in range(4)] == [
        True,
        False,
        True,
        True,
    ]
    timed = [cell.place for job in workers.jobs for cell in job.cells if cell.time]
    assert sorted(timed) == [0, 1, 2, 3]  # nothing was timed twice


def test_what_kills_while_it_is_prepared_fails_alone(tmp_path, monkeypatch):
    def script(step, places, number):
        if step == "prepare" and places == [1]:
            die("it was ended by SIGSEGV")

    workers = script_workers(script)
    found = run_cells(workers, tmp_path, CELLS)
    assert statuses(found) == {**STATUSES, 1: "failed"}
    assert found[1].reason == "making the runtime ready: it was ended by SIGSEGV"
    assert len(workers.jobs) == 2


def test_what_kills_while_all_are_timed_is_found_by_timing_them_apart(tmp_path, monkeypatch):
    def script(step, places, number):
        if step == "measure" and 1 in places:
            die()

    workers = script_workers(script)
    found = run_cells(workers, tmp_path, CELLS)
    assert statuses(found) == {**STATUSES, 1: "failed"}
    assert found[0].warnings == found[2].warnings == ("apart",)


def test_a_death_while_counting_costs_the_count_alone(tmp_path, monkeypatch):
    def script(step, places, number):
        if step == "count":
            die()

    workers = script_workers(script)
    assert statuses(run_cells(workers, tmp_path, CELLS)) == STATUSES
    assert [job.cells[0].count for job in workers.jobs] == [True, False]


def test_a_model_that_cannot_be_built_fails_with_all_its_cells(tmp_path, monkeypatch):
    cells = [*CELLS, make_cell(model="other")]
    workers = script_workers(lambda step, places, number: None)

    def build(self, job):
        yield {"say": "begin", "step": "build", "places": list_places(job)}
        if job.cells[0].model == "m":
            die("no such thing")
        yield from self._time(job.sizes[0])
        yield {"say": "done", "result": True}

    monkeypatch.setattr(workers, "_work", build)
    found = run_cells(workers, tmp_path, cells)
    assert statuses(found) == {0: "failed", 1: "failed", 2: "failed", 3: "measured"}
    assert found[2].reason == "building the model: no such thing"


def test_a_kill_from_outside_is_forgiven_once(tmp_path, monkeypatch):
    def script(step, places, number):
        if step == "prepare" and (number == 0 or 1 in places):
            die("it was ended by SIGKILL", killed=True)

    workers = script_workers(script)
    found = run_cells(workers, tmp_path, CELLS)
    assert statuses(found) == {**STATUSES, 1: "failed"}


def test_workers_that_never_begin_end_the_sweep(tmp_path, monkeypatch):
    def script(step, places, number):
        if step == "start":
            die("no module named torch")

    workers = script_workers(script)
    with pytest.raises(RunnerError, match="before they begin anything: no module named torch"):
        run_cells(workers, tmp_path, CELLS)
    assert len(workers.jobs) == workers.ended == 2


def test_a_trace_comes_after_all_rounds_and_costs_its_worker(tmp_path, monkeypatch):
    steps = []
    workers = script_workers(lambda step, places, number: steps.append(step))
    monkeypatch.setattr("ftax.sweeps.scheduler._TOGETHER", 2)
    cells = [make_cell(device="cuda"), make_cell(device="cuda", batch=2)]
    cells.append(make_cell(device="cuda", model="other"))
    found = run_cells(workers, tmp_path, cells, looks=("trace",), devices=("cuda:0",))
    assert [cell.busy_ns for cell in found.values()] == [2.0] * 3
    assert {cell.facts["trace"] for cell in found.values()} == {"found"}
    assert [steps.count(step) for step in ("measure", "trace")] == [3, 3]
    one = steps[: steps.index("start", 1)]
    assert "measure" not in one[one.index("trace") :]
    assert workers.ended == 2  # a process each: a trace slows what comes after it
    assert SweepResults.load(tmp_path).cells[0].busy_ns == 2.0


def test_a_death_at_a_trace_costs_that_trace_and_no_rounds(tmp_path, monkeypatch):
    def script(step, places, number):
        if step == "trace" and places == [1]:
            die("CUPTI crashed")

    workers = script_workers(script)
    cells = [make_cell(name, device="cuda") for name in ("a", "b", "c")]
    found = run_cells(workers, tmp_path, cells, looks=("trace",), devices=("cuda:0",))
    assert statuses(found) == STATUSES
    assert [found[place].busy_ns for place in range(3)] == [2.0, None, 2.0]
    assert found[1].facts["trace"] == "CUPTI crashed"
    assert "no trace: CUPTI crashed" in found[1].warnings


def test_workers_share_what_is_for_any_gpu_and_nothing_is_done_twice(tmp_path, monkeypatch):
    workers = script_workers(lambda step, places, number: None)
    cells = [make_cell(model=f"m{i}", device="cuda") for i in range(6)]
    cells.append(make_cell(device="cuda:1"))
    found = run_cells(workers, tmp_path, cells, devices=("cuda:0", "cuda:1"))
    assert len(found) == 7 and set(statuses(found).values()) == {"measured"}
    done = [place for job in workers.jobs for place in list_places(job)]
    assert sorted(done) == list(range(7))
    assert found[6].facts["gpu"] == "cuda:1"


@pytest.mark.parametrize(("retry_failed", "asked"), [(False, [2]), (True, [1, 2])])
def test_only_what_is_missing_is_run(tmp_path, monkeypatch, retry_failed, asked):
    workers = script_workers(lambda step, places, number: None)
    known = [make_measured(CELLS[0]), make_failed(CELLS[1])]
    run_cells(workers, tmp_path, CELLS, known=known, retry_failed=retry_failed)
    assert sorted(list_places(workers.jobs[0])) == asked


def test_what_lacks_only_its_trace_is_not_timed_again(tmp_path, monkeypatch):
    workers = script_workers(lambda step, places, number: None)
    cells = [make_cell(name, device="cuda") for name in ("a", "b", "c")]
    known = [
        make_measured(cells[0]),
        make_measured(cells[1], facts={"trace": "unreliable: lost records"}),
        make_measured(cells[2], machine="another"),
    ]
    found = run_cells(workers, tmp_path, cells, known=known, looks=("trace",), devices=("cuda:0",))
    (cell,) = workers.jobs[0].cells
    assert (cell.place, cell.time, cell.looks) == (0, False, ("trace",))
    assert (found[0].values_ns, found[0].busy_ns) == ((1.0, 3.0), 2.0)


def test_a_full_disk_ends_the_sweep_and_leaves_whole_lines(tmp_path: Path, monkeypatch):
    def script(step, places, number):
        if step == "measure" and number == 1:  # the second model
            size = (tmp_path / "cells.jsonl").stat().st_size
            resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, limits[1]))

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    workers = script_workers(script)
    cells = [make_cell(model=name) for name in ("m1", "m2", "m3")]
    try:
        with pytest.raises(ResultsError, match="choose a path that can be written"):
            run_cells(workers, tmp_path, cells)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert workers.ended == 1
    kept = SweepResults.load(tmp_path)
    assert kept.problems == ()
    workers = script_workers(lambda step, places, number: None)
    left = run_cells(workers, tmp_path, cells, known=kept.cells)
    assert statuses(left) == STATUSES
    keys = [cell.cell.key() for cell in SweepResults.load(tmp_path).cells]
    assert len(set(keys)) == len(keys) == 3


def test_a_failed_cell_names_its_machine(tmp_path):
    store = CellStore(tmp_path, (CELLS[0],), ())
    machine = store.add_machine(MACHINE.environment)
    store.add_failed(0, machine, "failed", "")
    (cell,) = store.collect().cells
    assert (cell.machine, cell.reason) == (MACHINE.id, "no reason was given")


def test_warnings_of_a_look_stay_beside_those_of_the_rounds(tmp_path):
    store = CellStore(tmp_path, (CELLS[0],), ())
    machine = store.add_machine(MACHINE.environment)
    rounds = {"values_ns": [3.0, 3.0], "facts": {}, "warnings": ["of rounds"]}
    store.add_measured(0, machine, "", rounds)
    store.add_look(0, machine, "utilisation", fact="found", warnings=["slow meanwhile"])
    store.add_look(0, machine, "trace", fact="CUPTI is missing")
    (cell,) = store.collect().cells
    assert cell.warnings == ("of rounds", "slow meanwhile", "no trace: CUPTI is missing")


def test_a_cell_that_is_timed_twice_has_the_later_rounds_and_is_one_cell(tmp_path, monkeypatch):
    class Twice(script_workers(lambda step, places, number: None)):
        def _time(self, cells):
            yield from super()._time(cells)
            yield {"say": "measured", "place": 0, "seconds": 2.0, "values_ns": [3.0, 3.0],
                   "facts": {"timed_again": True}, "warnings": []}  # fmt: skip

    found = run_cells(
        Twice, tmp_path, [make_cell(device="cuda")], looks=("trace",), devices=("cuda:0",)
    )
    assert (found[0].values_ns, found[0].facts["trace"]) == ((3.0, 3.0), "found")
