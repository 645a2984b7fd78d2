"""The worker's part in this process: what it answers, in which order, and when memory is short."""

from __future__ import annotations

import json
import time
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from ftax.errors import UnavailableError
from ftax.instruments.utilisation import Utilisation
from ftax.runtimes.catalogue import find_runtime
from ftax.runtimes.eager.eager import prepare_eager
from ftax.runtimes.spec import RuntimeSpec
from ftax.steps.macs import Work
from ftax.steps.setting import Setting
from ftax.sweeps import cells as module
from ftax.sweeps import looks, worker
from ftax.sweeps.job import LOOKS, Job, JobCell, Wanted
from ftax.sweeps.worker import run_job
from ftax.timing.plan import Plan

NOISY = module._NOISY
PLAN = Plan(max_rounds=3, round_ms=0.5, duration_s=5.0)


@pytest.fixture(autouse=True)
def without_neighbours(monkeypatch):
    """Those of this machine; a test that wants one says so."""
    monkeypatch.setattr(module, "_NOISY", 1.0)


def make_job(*batches, model="bert-1x64", runtimes=("eager",), looks=()):
    places = iter(range(100))
    cells = tuple(
        make_job_cell(
            next(places), model, name, Setting(dtype="fp32", batch=batch, tiny=True), looks=looks
        )
        for batch in batches
        for name in runtimes
    )
    return Job(device="cpu", cells=cells, threads=1, plan=PLAN)


def make_job_cell(place, model="bert-1x64", runtime="eager", setting=None, **changes):
    return JobCell(
        place=place, model=model, runtime=runtime, setting=setting or Setting(), host="python",
        wanted=Wanted(device="cpu"), **changes,
    )  # fmt: skip


def run(job):
    said = []
    sent = Job.from_dict(json.loads(json.dumps(job.to_dict())))
    before = torch.get_num_threads()
    try:
        clean = run_job(sent, lambda what, **rest: said.append((what, rest)))
    finally:  # a worker of its own would end with them
        torch.set_num_threads(before)
    return clean, said


def replace_runtimes(monkeypatch, functions):
    """Let runtimes of these names be prepared by these functions."""

    def find(name):
        spec = find_runtime("eager")
        if name not in functions:
            return spec
        return RuntimeSpec(name=name, description="", hosts=spec.hosts, function=functions[name])

    monkeypatch.setattr(module, "find_runtime", find)


def list_steps(said):
    return [(rest["step"], rest["places"]) for what, rest in said if what == "begin"]


def test_what_a_runtime_takes_of_the_device_is_found_the_same_way_for_all():
    """With nothing else there: its own copy of the weights counts, the model's only if used."""
    held = {"other models": 1000}  # bytes of the device by owner

    class Device:
        memory_allocated = staticmethod(lambda device: 7)
        max_memory_allocated = staticmethod(lambda device: 7 + 30)
        max_memory_reserved = staticmethod(lambda device: 0)
        synchronize = reset_peak_memory_stats = staticmethod(lambda device: None)
        empty_cache = staticmethod(lambda: None)

        @staticmethod
        def mem_get_info(device):
            return 10_000 - sum(held.values()), 10_000

    class CellTimer:
        job = SimpleNamespace(device="cuda:0")

        def __init__(self, own, needs_model):
            self.own, self.needs_model = own, needs_model

        def drop_all(self):
            held.pop("other models", None)
            if not self.needs_model:
                held.pop("model", None)

        def get_ready(self, cells):
            held["model"] = 200

        def prepare(self, ready, cell):
            held["runtime"] = self.own
            return SimpleNamespace(run=lambda: None)

        def begin(self, step, places):
            assert (step, places) == ("memory", [4])

    def weigh(own, needs_model):
        held.clear()
        held["other models"] = 1000
        return looks.weigh(CellTimer(own, needs_model), None, make_job_cell(4), Device)

    assert weigh(0, needs_model=True) == 200 + 30
    assert weigh(500, needs_model=False) == 500 + 30


def test_a_model_is_built_once_and_each_size_is_a_session():
    clean, said = run(make_job(1, 2, runtimes=("eager", "flat")))
    assert clean
    assert [place for step, place in list_steps(said) if step == "build"] == [[0, 1, 2, 3]]
    assert [place for step, place in list_steps(said) if step == "measure"] == [[0, 1], [2, 3]]
    measured = [rest for what, rest in said if what == "measured"]
    assert [rest["place"] for rest in measured] == [0, 1, 2, 3]
    assert all(len(rest["values_ns"]) == 3 for rest in measured)


def test_an_error_is_the_answer_of_its_cell_alone(monkeypatch):
    def fail(workspace, host):
        raise ValueError("an odd shape")

    replace_runtimes(monkeypatch, {"odd": fail})
    _, said = run(make_job(1, runtimes=("odd", "eager"), looks=("trace",)))
    (failed,) = [rest for what, rest in said if what == "failed"]
    assert (failed["place"], failed["reason"]) == (0, "ValueError: an odd shape")
    assert [rest["place"] for what, rest in said if what == "measured"] == [1]
    assert [rest["place"] for what, rest in said if what == "looked"] == [1]


def test_all_looks_come_after_all_rounds_and_counters_before_traces(monkeypatch):
    def find_no_gpu(device):
        raise UnavailableError(f"{device} has no counters: it is no CUDA device")

    monkeypatch.setattr(looks, "read_trace", lambda *_: {"busy_ns": 5.0, "kernels": 2})
    monkeypatch.setattr(looks, "open_gpu", find_no_gpu)
    clean, said = run(make_job(1, 2, looks=("utilisation", "trace")))
    assert not clean
    order = [step for step, _ in list_steps(said) if step in ("measure", *LOOKS)]
    assert order == ["measure"] * 2 + ["utilisation"] * 2 + ["trace"] * 2
    found = {(rest["place"], rest["look"]): rest for what, rest in said if what == "looked"}
    assert found[1, "trace"]["fields"] == {"busy_ns": 5.0, "kernels": 2}
    assert found[1, "trace"]["fact"] == "found"
    assert "no CUDA device" in found[0, "utilisation"]["fact"]
    assert list_steps(said).count(("prepare", [0])) == 1  # what was timed is kept for its looks


def read_runs(monkeypatch, latencies_ns, timed_ns):
    """What the counters say where each run in turn takes so long a request, and is so busy."""
    runs = iter(latencies_ns)

    def measure(runner, *, gpu, seconds):
        latency_ns = next(runs)
        found = Utilisation(
            sms_active_pct=1e8 / latency_ns,
            warp_occupancy_pct=None,
            dram_bandwidth_pct=None,
            tensor_active_pct=None,
            seconds=seconds,
        )
        return found, latency_ns

    monkeypatch.setattr(looks, "open_gpu", nullcontext)
    monkeypatch.setattr(looks, "watch_utilisation", measure)
    prepared = SimpleNamespace(runner=None)
    return looks.read_counters(prepared, "cuda", 0.5, timed_ns), list(runs)


def test_counters_of_a_run_beside_a_neighbour_are_read_again(monkeypatch):
    found, left = read_runs(monkeypatch, [8e6, 4.2e6, 1e6], timed_ns=4e6)
    assert found["sm_active_ratio"] == pytest.approx(1e8 / 4.2e6 / 100)
    assert found["warnings"] == []
    assert left == [1e6]


def test_counters_that_stay_slow_are_of_the_fastest_run_and_say_so(monkeypatch):
    found, left = read_runs(monkeypatch, [8e6, 6e6, 7e6, 9e6, 1e6], timed_ns=4e6)
    assert found["sm_active_ratio"] == pytest.approx(1e8 / 6e6 / 100)
    (warning,) = found["warnings"]
    assert "1.5 times as long" in warning
    assert left == [1e6]


def test_counters_of_what_was_timed_elsewhere_are_read_once(monkeypatch):
    found, left = read_runs(monkeypatch, [8e6, 4e6], timed_ns=None)
    assert found["warnings"] == []
    assert left == [4e6]


def test_who_is_late_looks_at_what_was_timed_and_leaves_the_rest(monkeypatch):
    monkeypatch.setattr(looks, "read_trace", lambda *_: {"busy_ns": 5.0})
    monkeypatch.setattr(worker, "is_late", lambda job, sizes: len(sizes) > 1)
    clean, said = run(make_job(1, 2, looks=("trace",)))
    assert not clean
    answers = [(what, rest.get("place")) for what, rest in said if what not in ("begin", "machine")]
    assert answers == [("measured", 0), ("late", None), ("looked", 0)]


def test_all_is_made_ready_before_anything_is_timed_beside_other_workers(monkeypatch):
    def fail(workspace, host):
        raise ValueError("an odd shape")

    replace_runtimes(monkeypatch, {"odd": fail})
    job = replace(make_job(1, 2, runtimes=("eager", "odd", "flat")), threads_ahead=1)
    said, asked = [], []

    def say(what, **rest):
        said.append((what, rest))

    assert run_job(job, say, lambda what: asked.append((what, len(said))))
    # Before each model and each cell others may go first.
    assert [what for what, _ in asked] == ["going on"] * (2 + 6) + ["measuring"]
    alone = asked[-1][1]
    steps = list_steps(said[:alone])
    assert sorted(p for step, (p, *_) in steps if step == "prepare") == [0, 1, 2, 3, 4, 5]
    assert "measure" not in dict(steps)
    assert "prepare" not in dict(list_steps(said[alone:]))  # neither again nor later
    answers = {rest["place"]: what for what, rest in said if what in ("measured", "failed")}
    assert [place for place, what in answers.items() if what == "failed"] == [1, 4]
    assert len(answers) == 6


def test_what_tunes_is_not_made_ready_beside_others(monkeypatch):
    def find(name):
        return replace(find_runtime("eager"), tunes=name == "tuned")

    monkeypatch.setattr(module, "find_runtime", find)
    asked, said = {}, []
    job = replace(make_job(1, 2, runtimes=("eager", "tuned")), threads_ahead=1)

    def ask(what):
        asked[what] = len(said)

    run_job(job, lambda what, **rest: said.append((what, rest)), ask)
    beside, alone = (
        list_steps(part) for part in (said[: asked["measuring"]], said[asked["measuring"] :])
    )
    assert [places for step, places in beside if step == "prepare"] == [[0], [2]]
    assert [places for step, places in alone if step == "prepare"] == [[1], [3]]


def disturb(monkeypatch, *shares):
    """Let the first of timings, the second and so on have met a neighbour in this share of their
    rounds."""
    measure, left = module.measure, [*shares]

    def measure_beside(*arguments):
        session, share = measure(*arguments), left.pop(0)
        changed = []
        for found in session.measurements:
            rounds = len(found.samples_ns)
            places = list(range(round(share * rounds)))
            changed.append(
                replace(found, counted="all", checks={**found.checks, "disturbed_rounds": places})
            )
        return replace(session, measurements=tuple(changed))

    monkeypatch.setattr(module, "measure", measure_beside)
    monkeypatch.setattr(module, "_NOISY", NOISY)


def list_measured(said):
    return [
        (rest["place"], rest["facts"]["disturbed_rounds"], rest["facts"].get("timed_again"))
        for what, rest in said
        if what == "measured"
    ]


def test_what_was_timed_beside_a_neighbour_is_timed_again_when_the_rest_is_done(monkeypatch):
    monkeypatch.setattr(looks, "read_trace", lambda *_: {"busy_ns": 5.0})
    disturb(monkeypatch, 1.0, 0.0, 1 / 3)
    _, said = run(make_job(1, 2, looks=("trace",)))
    assert list_measured(said) == [(0, 3, None), (1, 0, None), (0, 1, True)]
    steps = [step for step, _ in list_steps(said) if step in ("measure", "trace")]
    assert steps == ["measure", "measure", "measure", "trace", "trace"]
    first, _, again = [rest["seconds"] for what, rest in said if what == "measured"]
    assert again > first


def test_the_second_time_counts_only_if_it_was_better(monkeypatch):
    disturb(monkeypatch, 1.0, 1.0)
    _, said = run(make_job(1))
    assert list_measured(said) == [(0, 3, None)]
    assert [step for step, _ in list_steps(said)].count("measure") == 2


def test_nothing_is_timed_again_without_time_for_it(monkeypatch):
    disturb(monkeypatch, 1.0)
    late = iter([False, True])
    monkeypatch.setattr(worker, "is_late", lambda *_: next(late))
    _, said = run(make_job(1))
    assert list_measured(said) == [(0, 3, None)]


def test_who_gets_ready_beside_others_has_its_share_of_the_threads(monkeypatch):
    threads = {}

    def prepare(workspace, host):
        prepared = prepare_eager(workspace, host)
        threads["prepare"] = torch.get_num_threads()
        return prepared

    def note(*arguments):
        threads["measure"] = torch.get_num_threads()
        return measure(*arguments)

    replace_runtimes(monkeypatch, {"eager": prepare})
    measure = module.measure
    monkeypatch.setattr(module, "measure", note)
    _, said = run(replace(make_job(1, runtimes=("eager",)), threads=2, threads_ahead=1))
    assert threads == {"prepare": 1, "measure": 2}
    (machine,) = (rest["environment"] for what, rest in said if what == "machine")
    assert machine["settings"]["num_threads"] == 2  # it is the same machine as with one worker


def test_no_more_is_made_ready_than_there_is_time_to_time_and_look_at():
    job = replace(make_job(*range(1, 11), looks=("trace",)), threads_ahead=1)
    assert [*worker._take_in_time(job)] == job.sizes
    left_s = worker._SIZE_S + 4 * (worker._LATER_SIZE_S + worker._LOOK_S["trace"])
    taken = [*worker._take_in_time(replace(job, end_at=time.monotonic() + left_s))]
    assert taken == job.sizes[:4]


def test_looks_need_more_time_the_more_of_them_there_are():
    now = time.monotonic()
    job = make_job(*range(1, 11), looks=("trace",))
    assert not worker.is_late(job, job.sizes)
    job = replace(job, end_at=now + worker._SIZE_S + 5 * worker._LOOK_S["trace"])
    assert not worker.is_late(job, job.sizes[:4])
    assert worker.is_late(job, job.sizes[:6])
    anew = [(replace(cell, time=False),) for cell in job.cells]
    assert worker.is_late(job, anew[:1])  # which has to be made ready again
    assert worker.is_late(replace(job, end_at=now), job.sizes[:1])


def test_what_is_kept_for_looks_gives_way_to_what_is_to_be_timed(monkeypatch):
    """The second size fits only once the first is let go; it is made ready again for its look."""
    alive = []

    def prepare(workspace, host):
        kept = [batch for batch in alive if batch != workspace.loaded.batch]
        if kept:
            raise RuntimeError("CUDA out of memory. Tried to allocate 1 GiB")
        alive.append(workspace.loaded.batch)
        return prepare_eager(workspace, host)

    def drop(self, cells):
        alive.clear()
        self.ready.clear()

    replace_runtimes(monkeypatch, {"large": prepare})
    monkeypatch.setattr(module.CellTimer, "drop", drop)
    monkeypatch.setattr(looks, "read_trace", lambda *_: {"busy_ns": 5.0})
    _, said = run(make_job(1, 2, runtimes=("large",), looks=("trace",)))
    assert [rest["place"] for what, rest in said if what == "measured"] == [0, 1]
    facts = [(rest["place"], rest["fact"]) for what, rest in said if what == "looked"]
    assert facts == [(0, "found"), (1, "found")]


def test_a_model_that_cannot_be_built_answers_for_all_its_cells():
    job = make_job(1, 2, model="resnet-50")
    cells = tuple(
        replace(cell, setting=Setting(batch=cell.setting.batch, attention="sdpa"))
        for cell in job.cells
    )
    _, said = run(replace(job, cells=cells))
    failed = [rest for what, rest in said if what == "failed"]
    assert [rest["place"] for rest in failed] == [0, 1]
    assert all("no attention to choose" in rest["reason"] for rest in failed)
    assert [step for step, _ in list_steps(said)] == ["build"]


def test_work_is_counted_or_the_reason_is_a_warning(monkeypatch):
    work = {"macs": 7, "operators": 5, "modules": 3}
    monkeypatch.setattr("ftax.steps.macs.count_work", lambda loaded: Work(**work))
    assert module.count_work_of(None) == (work, "")

    def fail(loaded):
        raise KeyError("einsum")

    monkeypatch.setattr("ftax.steps.macs.count_work", fail)
    assert module.count_work_of(None) == ({}, "work was not counted: KeyError: 'einsum'")


def test_models_of_a_job_are_timed_before_any_is_looked_at(monkeypatch):
    monkeypatch.setattr(looks, "read_trace", lambda *_: {"busy_ns": 5.0})
    first = make_job(1, looks=("trace",))
    (second,) = make_job(1, model="resnet-50", looks=("trace",)).cells
    _, said = run(replace(first, cells=(*first.cells, replace(second, place=1))))
    steps = [step for step, _ in list_steps(said) if step in ("build", "measure", "trace")]
    assert steps == ["build", "measure", "build", "measure", "trace", "trace"]
    assert {rest["place"] for what, rest in said if what == "looked"} == {0, 1}


def test_models_give_way_to_the_one_that_is_short_of_memory():
    job = make_job(1, runtimes=("eager",))
    (kept,) = job.cells
    timer = module.CellTimer(job, lambda *_, **__: None, lambda what: None)
    timer.models = {
        kept.build_key: "kept",
        replace(kept, model="resnet-50").build_key: "let go",
        ("broken",): OSError("no"),
    }
    timer.drop(job.cells)
    assert [*timer.models] == [kept.build_key, ("broken",)]
