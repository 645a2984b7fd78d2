"""Real sweeps of tiny models: a plug-in that breaks at every step, and sweeps that are killed.

The plug-in is a package with an entry point, whose behaviour follows the batch. Sweeps are shared
among tests, since each worker takes seconds to start.
"""

from __future__ import annotations

import _thread
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ftax.cli.commands import app
from ftax.errors import InvalidArgumentError, ResultsError
from ftax.records.store import read_records
from ftax.steps.setting import Setting
from ftax.sweeps.grid import Grid, make_grid
from ftax.sweeps.plan import JobQueue, choose_missing, make_jobs
from ftax.sweeps.progress import SweepProgress
from ftax.sweeps.scheduler import Scheduler
from ftax.sweeps.store import CellStore
from ftax.sweeps.supervisor import Supervisor
from ftax.sweeps.sweep import run_sweep
from ftax.sweeps.sweep_records import SweepCell, SweepRun, SweepTimes
from ftax.timing.plan import Plan
from ftax.workers.process import Stop
from support.sweeps import FixedSites, make_cell, make_site

PLUGIN = """
import os, signal

def prepare(loaded):
    if loaded.batch == 1:
        os.kill(os.getpid(), signal.SIGSEGV)
    if loaded.batch == 3:
        raise RuntimeError("CUDA out of memory. Tried to allocate 9 GiB")
    if loaded.batch == 4:
        raise KeyError("its own")
    print("what a runtime prints is nobody's answer")
    calls = []

    def call():
        calls.append(1)
        if len(calls) > 2:  # the first two are the checks of outputs
            os._exit(7)
        return loaded.call()

    return call
"""


@pytest.fixture(scope="module")
def faulty(tmp_path_factory):
    """A folder with a package that brings the runtime "faulty", here and in workers."""
    folder = tmp_path_factory.mktemp("package")
    (folder / "faulty.py").write_text(PLUGIN)
    info = folder / "faulty-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: faulty\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[ftax.runtimes]\nfaulty = faulty:prepare\nabsent = not_there:prepare\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        before = os.environ.get("PYTHONPATH")
        patch.setenv("PYTHONPATH", os.pathsep.join([str(folder), *([before] if before else [])]))
        patch.setenv("OMP_NUM_THREADS", "1")
        yield folder


@pytest.fixture(scope="module")
def swept(faulty, tmp_path_factory):
    """A sweep in which the plug-in breaks at batches 1 to 4, each time otherwise."""
    grid = Grid(
        models=("bert-base",),
        runtimes=("eager/python", "faulty/python", "absent/python"),
        batches=(1, 2, 3, 4),
        setting=Setting(tiny=True),
    )
    folder, told = tmp_path_factory.mktemp("swept"), []
    results = run_sweep(
        [grid], folder, quick=True, seed=3, threads=1, progress=lambda *what: told.append(what)
    )
    return folder, grid, results, told


def test_every_cell_has_an_answer_and_only_the_plug_in_failed(swept):
    _, grid, results, _ = swept
    assert {cell.cell for cell in results.cells} == set(grid.cells())
    by_runtime = {
        name: {cell.status for cell in results.select(runtime=name).cells}
        for name in ("eager", "faulty", "absent")
    }
    assert by_runtime == {
        "eager": {"measured"},
        "faulty": {"failed", "unavailable"},
        "absent": {"unavailable"},
    }


@pytest.mark.parametrize(
    ("batch", "status", "reason"),
    [
        (1, "failed", "making the runtime ready: the worker process was ended by SIGSEGV"),
        (2, "failed", "timing it: the worker process ended with exit code 7"),
        (3, "failed", "choose a smaller batch"),
        (4, "unavailable", "prepare raised KeyError: 'its own'"),
    ],
)
def test_the_reason_says_what_it_died_of(batch, status, reason, swept):
    cell = swept[2].find(runtime="faulty", batch=batch)
    assert cell.status == status and reason in cell.reason


def test_a_measured_cell_has_rounds_facts_and_its_machine(swept):
    _, _, results, _ = swept
    cell = results.find(runtime="eager", batch=3)
    assert len(cell.values_ns) >= 3 and min(cell.values_ns) > 0
    low, high = cell.interval_ns
    assert low <= cell.latency_ns <= high
    assert cell.parameter_count > 0 and cell.seconds > 0
    assert cell.facts["outputs_equal"] is True and cell.facts["weights"] == "random"
    assert (cell.busy_ns, cell.overhead_share) == (None, None)  # no GPU, no trace
    machine = results.machines[cell.machine]
    assert machine.environment.settings.num_threads == 1
    assert list(results.split_by_machine()) == [machine.id]


def test_what_was_timed_without_its_killer_says_so(swept):
    apart = swept[2].find(runtime="eager", batch=2)
    assert any("timed apart" in text for text in apart.warnings)
    together = swept[2].find(runtime="eager", batch=3)
    assert not any("timed apart" in text for text in together.warnings)


def test_the_run_is_written_down_and_progress_ends_full(swept):
    folder, grid, _, told = swept
    run, times = read_records(folder / "runs.jsonl").records
    assert isinstance(run, SweepRun) and isinstance(times, SweepTimes)
    assert times.utc == run.utc
    assert {"build", "prepare", "measure"} <= set(times.seconds)
    assert all(seconds >= 0 for seconds in times.seconds.values())
    assert (run.seed, run.cells, run.missing) == (3, 12, 12)
    assert make_grid(run.grids[0]) == grid
    assert all(0 <= done <= total == 12 for _, done, total in told)
    assert any(what.startswith("measure bert-base") for what, _, _ in told)


def test_results_are_kept_and_a_resumed_sweep_has_nothing_to_do(swept, monkeypatch):
    folder, grid, results, _ = swept
    with pytest.raises(InvalidArgumentError, match="has 12 cells of a sweep already; resume it"):
        run_sweep([grid], folder)
    monkeypatch.setattr("ftax.sweeps.sites.Worker", pytest.fail)
    again = run_sweep([grid], folder, resume=True, threads=1)
    assert again.cells == results.cells


def test_the_command_shows_a_sweep_and_names_what_is_wrong(swept, tmp_path):
    folder, _, _, _ = swept
    run = CliRunner().invoke
    arguments = ["sweep", "--model", "bert-base", "--tiny", "--runtime", "eager,absent"]
    shown = run(app, [*arguments, "--batch", "1,2", "-o", str(folder), "--resume", "--csv"])
    assert shown.exit_code == 0, shown.output
    assert "bert-base,eager,python,cpu,fp32,3,8," in shown.stdout
    assert "absent,python" in shown.stdout and "ended by SIGSEGV" in shown.stdout
    assert re.search(r"4 measured( \(.+\))?, 3 failed, 5 unavailable", shown.stderr)
    grid = tmp_path / "grid.toml"
    grid.write_text("models = 'bert-base'\n")
    for words, message in (
        (["sweep"], "there is nothing to sweep; give a grid file, or --model"),
        (["sweep", str(grid), "--batch", "2"], "batches is given beside"),
        (["sweep", "--model", "bert-base", "--batch", "two"], "--batch has 'two'; write whole"),
        (["sweep", str(grid), "--gpus", "all"], "--gpus has 'all'; write whole numbers"),
    ):
        refused = run(app, words)
        assert isinstance(refused.exception, InvalidArgumentError)
        assert message in str(refused.exception)


def test_a_sweep_without_time_says_how_to_go_on(tmp_path):
    arguments = ["sweep", "--model", "bert-base", "--tiny", "-o", str(tmp_path)]
    shown = CliRunner().invoke(app, [*arguments, "--time-limit", "0.001"])
    assert (shown.exit_code, "the time is up; go on with --resume -o" in shown.stderr) == (0, True)
    assert run_sweep(
        [Grid(models=("bert-base",), setting=Setting(tiny=True))], tmp_path, time_limit_s=1e-3
    ).is_late


GRID = Grid(models=("bert-base",), batches=tuple(range(1, 11)), setting=Setting(tiny=True))
SCRIPT = """
import sys
from pathlib import Path
from ftax.steps.setting import Setting
from ftax.sweeps.grid import Grid
from ftax.sweeps.sweep import run_sweep
grid = Grid(models=("bert-base",), batches=tuple(range(1, 11)), setting=Setting(tiny=True))
run_sweep([grid], Path(sys.argv[1]), resume=True, seed=1, threads=1)
"""


def test_killed_in_every_way_a_sweep_ends_with_the_same_cells(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    interrupt_after(1, tmp_path)
    kept = count_lines(tmp_path)
    assert 1 <= len(kept) < 10

    other = subprocess.Popen([sys.executable, "-c", SCRIPT, str(tmp_path)])
    try:
        wait_until(lambda: len(count_lines(tmp_path)) > len(kept))
        with pytest.raises(ResultsError, match=rf"another sweep \(process {other.pid}\)"):
            run_sweep([GRID], tmp_path, resume=True)
        (worker,) = find_workers(other.pid)
        os.kill(worker, signal.SIGKILL)
        wait_until(lambda: find_workers(other.pid) not in ([], [worker]))
        workers = find_workers(other.pid)
    finally:
        other.kill()
        other.wait()
    wait_until(lambda: not any(is_running(pid) for pid in workers))

    results = run_sweep([GRID], tmp_path, resume=True, quick=True, threads=1)
    assert {cell.cell for cell in results.cells} == set(GRID.cells())
    assert {cell.status for cell in results.cells} == {"measured"}
    assert set(count_lines(tmp_path).values()) == {1}


def interrupt_after(cells: int, folder: Path) -> None:
    """A sweep that gets Ctrl-C once so many cells are there."""

    def progress(what, done, total):
        if done >= cells:
            _thread.interrupt_main()

    with pytest.raises(KeyboardInterrupt):
        run_sweep([GRID], folder, quick=True, threads=1, progress=progress)


def count_lines(folder):
    """How many lines each cell has, without those of rounds that were taken again on purpose."""
    path = folder / "cells.jsonl"
    if not path.exists():
        return Counter()
    records = read_records(path, skip_bad=True).records
    cells = [record for record in records if isinstance(record, SweepCell)]
    return Counter(record.cell for record in cells if "timed_again" not in record.facts)


def find_workers(pid):
    """Processes that any thread of ``pid`` has started as workers."""
    found = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(word) for word in path.read_text().split()]
        except OSError:
            continue  # the thread has ended
        for child in children:
            try:
                command = Path(f"/proc/{child}/cmdline").read_bytes()
            except OSError:
                continue
            if b"ftax.sweeps.worker:" in command:
                found.append(child)
    return found


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def wait_until(holds, limit_s=180.0):
    deadline = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def test_each_gpu_starts_one_worker_before_any_starts_its_second(tmp_path, monkeypatch):
    """A sweep of few jobs: the first GPU's four workers would leave none for the second GPU."""
    begun = []
    monkeypatch.setattr(Scheduler, "_work", lambda self, site, *_: begun.append(site.device))
    gpus = [make_site(None, device) for device in ("cuda:0", "cuda:1")]
    cells = (make_cell(device="cuda"),)
    missing = choose_missing(cells, known={}, looks={}, sites=gpus)
    scheduler = Scheduler(
        store=CellStore(tmp_path, cells, ()), queue=JobQueue(make_jobs(missing, 0)),
        progress=SweepProgress(None), sites=FixedSites(gpus), plan=Plan(), trace_iterations=1,
        limit_s=1.0, end_at=None, workers=2,
    )  # fmt: skip
    with ThreadPoolExecutor(1) as threads, closing(Stop()) as stop:
        scheduler._start(gpus, {}, threads, stop)
    assert begun == ["cuda:0", "cuda:1", "cuda:0", "cuda:1"]


def test_two_workers_of_a_device_get_ready_together_and_measure_in_turns(tmp_path, monkeypatch):
    """As on a GPU, with real processes; here the device is the CPU."""
    do, beside = Supervisor.do, []

    def note(mine, job):
        for result in do(mine, job):
            if result["say"] == "begin" and result["places"]:
                states = dict(mine.lock._states)
                own, other = states.pop(mine), next(iter(states.values()), "away")
                beside.append((own, result["step"], other))
            yield result

    monkeypatch.setattr(Scheduler, "_count_workers", lambda self, site, sites: self.workers)
    monkeypatch.setattr(Supervisor, "do", note)
    grid = Grid(models=("bert-base", "resnet-18", "gpt2"), runtimes=("eager/python", "flat/python"),
                setting=Setting(tiny=True))  # fmt: skip
    results = run_sweep([grid], tmp_path, quick=True, workers=2, threads=2, exporters=0)
    assert {cell.cell for cell in results.cells} == set(grid.cells())
    assert {cell.status for cell in results.cells} == {"measured"}
    measured = {(mine, other) for mine, step, other in beside if step == "measure"}
    assert measured and measured <= {("measuring", "away"), ("measuring", "waiting to measure")}
    together = {step for mine, step, other in beside if mine == other == "getting ready"}
    assert together <= {"build", "inputs", "prepare", "count"} and together
    (machine,) = results.machines.values()
    assert machine.environment.settings.num_threads == 2
