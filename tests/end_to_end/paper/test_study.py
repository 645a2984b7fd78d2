"""A study: what it runs, how it stops, and what it writes."""

import csv
import dataclasses
import re

import pytest
from typer.testing import CliRunner

from ftax.cli.commands import app
from ftax.errors import InvalidArgumentError
from ftax.paper import study as study_module
from ftax.paper.items import list_items
from ftax.paper.study import Study, choose_study, estimate, load_results, run_study
from ftax.paper.study_setting import StudySetting
from ftax.paper.write import CLAIMS_FILE, describe_today, write_page, write_study
from ftax.records.store import append_record, read_records
from ftax.sweeps.results import CELLS_FILE
from support.fleet import A100, H100, make_machine
from support.paper_results import make_cell, make_results, measure_all
from support.tables import read_column

GPU = StudySetting.choose(device="cuda")
QUICK = StudySetting.choose(device="cpu", quick=True)


def store(results, folder):
    folder.mkdir(exist_ok=True)
    for record in (*results.machines.values(), *results.cells):
        append_record(folder / CELLS_FILE, record)


def test_all_items_and_the_claims_are_chosen_without_names():
    study = choose_study([], GPU)
    assert study.items == list_items()
    assert study.claims
    assert study.is_whole


def test_one_item_brings_its_own_cells_alone():
    study = choose_study(["fig13"], GPU)
    assert {cell.model for cell in study.cells} == {"wavlm"}
    assert len(study.cells) == 2 * 2 * 8
    assert not study.claims


def test_the_whole_paper_is_on_a_gpu_in_both_dtypes_at_the_papers_batches():
    cells = choose_study([], GPU).cells
    assert {cell.dtype for cell in cells} == {"fp16", "fp32"}
    assert {cell.batch for cell in cells} == {1, 2, 4, 8, 16, 32, 64, 128}


def test_a_quick_run_of_a_cpu_is_tiny_and_says_so():
    cells = choose_study([], QUICK).cells
    assert all(cell.options.get("tiny") for cell in cells)
    assert "tiny" in QUICK.describe()
    assert len(cells) < 100
    # No claim is tested on tiny models, so none has cells of its own.
    assert set(cells) == set(choose_study([item.name for item in list_items()], QUICK).cells)


def test_tiny_results_have_no_verdicts_and_the_page_says_so(tmp_path):
    study = choose_study(["table1", "claims"], QUICK)
    (page,) = write_study(study, measure_all(study.cells), tmp_path)
    assert page.verdicts == ()
    write_page(page, QUICK)
    assert "no claim is tested" in (tmp_path / "today.md").read_text("utf-8")


def test_sizes_that_are_given_replace_the_usual_ones():
    setting = StudySetting.choose(device="cuda", dtypes=("bf16",), batches=(4, 2))
    assert setting.batches == (2, 4)
    assert {cell.dtype for cell in choose_study(["fig8"], setting).cells} == set()
    with pytest.raises(InvalidArgumentError, match="fp8"):
        StudySetting.choose(device="cpu", dtypes=("fp8",))
    with pytest.raises(InvalidArgumentError, match="tpu"):
        StudySetting.choose(device="tpu")


def test_the_estimate_counts_what_is_left_at_the_pace_of_what_is_there():
    study = choose_study(["fig13"], GPU)
    nothing = estimate(study, make_results([]), {})
    assert (nothing.cells, nothing.to_run) == (32, 32)
    assert "guess" in nothing.basis
    known = make_results(make_cell(cell, seconds=3.0) for cell in study.cells[:20])
    left = estimate(study, known, {})
    assert (left.cells, left.to_run, left.seconds) == (32, 12, pytest.approx(36.0))
    assert (
        left.describe() == "32 cells, 12 to run, about 36 s (20 cells of the folder took so long)"
    )
    with_building = estimate(study, known, {"measure": 60.0, "build": 30.0})
    assert with_building.seconds == pytest.approx(54.0)


def test_a_study_whose_time_is_up_is_not_complete(tmp_path, monkeypatch):
    study = choose_study(["fig13"], QUICK)

    def measure_one(grids, folder, *, resume, quick, time_limit_s, **_):
        assert resume and quick and time_limit_s == 4.0
        found = measure_all(study.cells[:1])
        store(found, folder)
        return dataclasses.replace(found, is_late=True)

    monkeypatch.setattr(study_module, "run_sweep", measure_one)
    results, complete = run_study(study, tmp_path, time_limit_s=4.0)
    assert not complete
    assert [cell.cell for cell in results.cells] == [study.cells[0]]


def test_a_study_writes_pictures_data_tables_claims_and_a_page(tmp_path):
    pytest.importorskip("matplotlib")
    study = choose_study(["fig3", "fig13", "table3", "claims"], GPU)
    reason = "no such thing here"
    results = measure_all(study.cells, lambda cell: cell.model == "bert-base")
    (page,) = write_study(study, results, tmp_path)
    names = {path.relative_to(tmp_path).as_posix() for path in page.files}
    assert names == {
        "figures/fig3.svg", "figures/fig3.png", "data/fig3.csv", "tables/table3.csv",
        "tables/table3.md",
    }  # fmt: skip
    assert all((tmp_path / name).stat().st_size > 0 for name in names)
    assert not (tmp_path / "today.md").exists()  # of the whole paper, which this is not
    assert write_page(page, GPU, 150.0) == tmp_path / "today.md"
    text = (tmp_path / "today.md").read_text("utf-8")
    assert "Figure 13, WavLM on two seconds of sound: nothing of it was measured" in text
    assert "32 cells: not run yet" in text
    assert reason not in text
    assert re.search(r"Of \d+ claims and checks", text)
    assert "Measuring took 2 min of the devices." in text
    with (tmp_path / "claims.csv").open(newline="") as file:
        claims = {row["claim"]: row for row in csv.DictReader(file)}
    assert len(claims) == 80
    kept = read_records(tmp_path / CLAIMS_FILE).records
    assert tuple(kept) == page.verdicts and len(kept) == 80
    # The device is busy half of the time at every batch, so the share does not fall.
    assert claims["S3.2-share-falls"]["today"] != "holds"


def test_a_page_says_how_far_the_machine_drifts(tmp_path):
    study = choose_study(["claims"], GPU)
    latencies = (4.0, 4.4, 3.8, 4.1, 4.3, 3.9, 4.0, 4.2, 4.5, 3.7, 4.0)
    results = make_results(
        make_cell(cell, latency_ms=latencies[cell.options.get("repetition", 0)], busy_ns=1e6)
        for cell in study.cells
    )
    (page,) = write_study(study, results, tmp_path)
    table1 = next(verdict for verdict in page.verdicts if verdict.id == "S4.2.1-width-table1")
    assert table1.today == "holds"  # by its repetitions, which are the same here
    assert page.views[0].drift.cells == 6
    text = write_page(page, GPU, days=("2026-11-23",)).read_text("utf-8")
    assert f"and {6 * GPU.repetitions} of them once more on 2026-11-23" in text
    assert "Intervals and verdicts carry that." in text
    assert f"*{table1.sentence}*" in text


def test_gpus_stand_in_one_table_with_a_verdict_each(tmp_path):
    machines = [make_machine(name) for name in (H100, A100)]
    study = choose_study(["table3"], GPU)
    cells = [make_cell(cell, machine=machine.id) for machine in machines for cell in study.cells]
    study = dataclasses.replace(study, claims=True)
    (page,) = write_study(study, make_results(cells, machines=machines), tmp_path)
    assert (page.folder, page.label) == (tmp_path, "H100, A100")
    (table,) = (item.table for item in page.shown)
    assert set(read_column(table, "measured on")) == {"H100", "A100"}
    with (tmp_path / "claims.csv").open(newline="") as file:
        claims = [row["claim"] for row in csv.DictReader(file)]
    assert claims.count("B-utilisation-rises") == 2
    assert len(read_records(tmp_path / CLAIMS_FILE).records) == len(claims)
    text = describe_today(page.views, page.shown, page.verdicts, setting=GPU, seconds=9.0)
    assert "claims and checks on NVIDIA H100: " in text
    assert text.index("H100, ") < text.index("A100, ") < text.index("Measuring took")


def test_cpus_and_gpus_have_a_folder_each(tmp_path):
    gpu, cpu = make_machine(H100), make_machine(None)
    study = choose_study(["table3"], GPU)
    cells = [
        make_cell(dataclasses.replace(cell, device=device), machine=machine.id)
        for machine, device in ((gpu, "cuda"), (cpu, "cpu"))
        for cell in study.cells
    ]
    study = dataclasses.replace(study, claims=True)
    pages = write_study(study, make_results(cells, machines=(gpu, cpu)), tmp_path)
    assert [page.folder for page in pages] == [tmp_path / "gpus", tmp_path / "cpus"]
    for page in pages:
        assert (page.folder / "tables" / "table3.md").exists()
    with (tmp_path / "claims.csv").open(newline="") as file:
        claims = [row["claim"] for row in csv.DictReader(file)]
    assert claims.count("B-utilisation-rises") == 2  # a verdict for each machine
    assert len(read_records(tmp_path / CLAIMS_FILE).records) == len(claims)
    assert not list(tmp_path.glob(f"*/{CLAIMS_FILE}"))  # or a report would have them twice


def test_no_results_are_refused(tmp_path):
    with pytest.raises(InvalidArgumentError, match="no results"):
        write_study(choose_study(["fig13"], GPU), load_results(tmp_path), tmp_path)


def test_the_command_lists_plans_and_draws_what_there_is(tmp_path):
    pytest.importorskip("matplotlib")
    runner = CliRunner()
    listed = runner.invoke(app, ["paper", "list"])
    assert listed.exit_code == 0
    assert "fig13" in listed.output and "table3" in listed.output and "claims" in listed.output
    where = ["--results", str(tmp_path), "--device", "cpu", "--quick"]
    planned = runner.invoke(app, ["paper", "fig13", "--plan", *where])
    assert planned.exit_code == 0
    assert "4 cells, 4 to run" in planned.output
    assert not list(tmp_path.iterdir())
    store(measure_all(choose_study(["fig13"], QUICK).cells), tmp_path)
    drawn = runner.invoke(app, ["paper", "fig13", "--no-measure", *where])
    assert drawn.exit_code == 0, drawn.output
    assert (tmp_path / "figures" / "fig13.png").exists()


def test_a_whole_study_has_what_shows_its_drift_and_a_quick_one_has_not():
    marks = [cell.options.get("repetition") for cell in choose_study([], GPU).cells]
    assert set(marks) == {None, *range(1, GPU.repetitions + 1)}
    assert len({marks.count(mark) for mark in range(1, GPU.repetitions + 1)}) == 1
    assert len([mark for mark in marks if mark]) < 0.1 * len(marks)
    assert not any("repetition" in cell.options for cell in choose_study([], QUICK).cells)
    assert not any("repetition" in cell.options for cell in choose_study(["fig4"], GPU).cells)


@pytest.mark.slow
def test_a_study_that_looks_for_drift_runs_and_goes_on(tmp_path):
    """Really, with tiny models: each repetition is a cell of its own, and only what is missing is
    run again."""
    setting = dataclasses.replace(QUICK, repetitions=2)
    study = Study(items=(), claims=True, setting=setting)
    results, complete = run_study(study, tmp_path)
    assert complete
    assert {cell.cell for cell in results.cells} == set(study.cells)
    assert {cell.status for cell in results.cells} == {"measured"}
    lines = (tmp_path / CELLS_FILE).read_text().splitlines(keepends=True)
    kept = [line for line in lines if '"repetition":2' not in line]
    assert len(kept) < len(lines)
    (tmp_path / CELLS_FILE).write_text("".join(kept))
    again, complete = run_study(study, tmp_path)
    assert complete
    assert {cell.cell for cell in again.cells} == set(study.cells)
    assert [c for c in results.cells if c.cell.options.get("repetition") != 2] == [
        c for c in again.cells if c.cell.options.get("repetition") != 2
    ]


def test_one_item_is_measured_and_not_measured_again(tmp_path):
    arguments = ["paper", "table2", "--quick", "--device", "cpu", "--results", str(tmp_path)]
    runner = CliRunner()
    first = runner.invoke(app, arguments)
    assert first.exit_code == 0, first.output
    size = (tmp_path / CELLS_FILE).stat().st_size
    results = load_results(tmp_path)
    assert {cell.status for cell in results.cells} == {"measured"}
    assert len(results.cells) == 1
    second = runner.invoke(app, arguments)
    assert second.exit_code == 0, second.output
    assert "0 to run" in second.output
    assert (tmp_path / CELLS_FILE).stat().st_size == size
    with (tmp_path / "tables" / "table2.csv").open(newline="") as file:
        sources = [row["source"] for row in csv.DictReader(file)]
    assert sources == ["the paper"] * 7 + ["this machine"]


@pytest.mark.needs_cuda
def test_a_gpu_shows_its_busy_time_and_its_counters(tmp_path):
    where = ["--quick", "--device", "cuda", "--results", str(tmp_path)]
    runner = CliRunner()
    drawn = runner.invoke(app, ["paper", "fig3", "--batch", "1,2", *where])
    assert drawn.exit_code == 0, drawn.output
    with (tmp_path / "data" / "fig3.csv").open(newline="") as file:
        ours = [row for row in csv.DictReader(file) if not row["source"].endswith("the paper")]
    assert {row["x"] for row in ours} == {"1", "2"}
    for row in ours:
        assert 0 < float(row["busy_ms"]) <= 1.05 * float(row["latency_ms"])
    assert (tmp_path / "figures" / "fig3.png").exists()
