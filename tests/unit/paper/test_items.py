"""Items: what they want exists, and what they show is what was put in."""

import csv
import io
from dataclasses import replace

import pytest

from ftax.errors import InvalidArgumentError
from ftax.paper.items import find_item, list_items, make_grids, make_wants
from ftax.paper.machine_view import split_views
from ftax.paper.reference import select
from ftax.paper.sheet import COLUMNS
from ftax.paper.study_setting import NOT_RUN, StudySetting, describe_missing, find_missing
from ftax.runtimes.catalogue import list_runtimes
from ftax.steps.zoo.registry import list_models
from ftax.sweeps.grid import join_cells
from ftax.timing.cell import Cell
from support.claim_results import make_gpu
from support.paper_results import (
    MACHINE,
    latency_of,
    make_cell,
    make_failed,
    make_results,
    measure_all,
)

GPU = StudySetting.choose(device="cuda")
CPU = StudySetting.choose(device="cpu")
FIGURES = [item for item in list_items() if item.kind == "figure"]
TABLES = [item for item in list_items() if item.kind == "table"]


def list_cells(item, setting=GPU):
    return join_cells(make_grids(item.make_wants(setting), setting))


def make_view(item, setting=GPU, choose=lambda _: True):
    (view,) = split_views(measure_all(list_cells(item, setting), choose))
    return view


def read_rows(sheet):
    return list(csv.DictReader(io.StringIO(sheet.to_csv())))


def test_there_are_thirteen_figures_three_tables_and_one_of_training():
    names = [item.name for item in list_items()]
    figures = [f"fig{n}" for n in range(1, 14)]
    assert names == [*figures, *(f"table{n}" for n in range(1, 4)), "training"]


def test_an_unknown_item_is_answered_with_the_nearest():
    with pytest.raises(InvalidArgumentError, match="did you mean 'fig4'"):
        find_item("fig44")


@pytest.mark.parametrize("item", list_items(), ids=lambda item: item.name)
@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_what_an_item_wants_exists(item, device, quick):
    setting = StudySetting.choose(device=device, quick=quick)
    wants = list(item.make_wants(setting))
    models = {spec.name for spec in list_models()}
    runtimes = {f"{spec.name}/{host}" for spec in list_runtimes() for host in spec.hosts}
    if item.name == "training" and quick:  # which a first look can do without
        assert not wants
        return
    assert wants
    assert {want.model.removesuffix(" train") for want in wants} <= models
    assert {want.runtime for want in wants} <= runtimes
    # A grid checks dtypes, sizes and devices by itself.
    assert list_cells(item, setting)


def test_claims_want_cells_that_exist():
    setting = StudySetting.choose(device="cuda")
    wants = make_wants((), setting, claims=True)
    cells = join_cells(make_grids(wants, setting))
    assert {cell.runtime for cell in cells} >= {"eager", "torchscript", "onnxruntime", "cuda-graph"}
    assert {cell.dtype for cell in cells} == {"fp16", "fp32"}


def test_cells_of_several_items_are_run_once():
    items = [find_item(name) for name in ("fig3", "fig4", "fig9")]
    cells = join_cells(make_grids(make_wants(items, GPU, claims=False), GPU))
    apart = [list_cells(item) for item in items]
    assert len(cells) == len(set(cells)) < sum(len(part) for part in apart)
    assert set(cells) == set().union(*apart)


@pytest.mark.parametrize("item", FIGURES, ids=lambda item: item.name)
def test_a_figure_shows_the_numbers_put_in_and_the_papers(item):
    cells = list_cells(item)
    view = make_view(item)
    sheet = item.make_sheet([view])
    rows = read_rows(sheet)
    assert list(rows[0]) == list(COLUMNS)
    ours = {row["latency_ms"] for row in rows if row["source"] == view.label}
    assert ours == {f"{latency_of(cell):.7g}" for cell in cells}
    for row in rows:
        if row["source"] == view.label:
            assert float(row["low"]) < float(row["latency_ms"]) < float(row["high"])
            assert float(row["busy_ms"]) == pytest.approx(float(row["latency_ms"]) / 2)
    theirs = [row for row in rows if row["source"] != view.label]
    assert all(row["source"].endswith(", the paper") for row in theirs)
    # The paper drew a sketch for Figure 2, and Figure 6 is nowhere in its repository.
    assert bool(theirs) == (item.name not in ("fig2", "fig6"))


def test_every_published_point_of_a_decoded_figure_is_in_ours():
    # Figures 1, 3, 4, 5, 9, 10 and 13 come from the drawings themselves.
    for number in (1, 3, 4, 5, 9, 10, 13):
        item = find_item(f"fig{number}")
        rows = read_rows(item.make_sheet([make_view(item)]))
        shown = {float(row["latency_ms"]) for row in rows if row["source"].endswith("the paper")}
        printed = {row.latency_ms for row in select(figure=f"Figure {number}")}
        assert {f"{value:.7g}" for value in printed} <= {f"{value:.7g}" for value in shown}, number


def test_digitised_figures_agree_with_the_raw_runs_that_are_shown():
    for number in (7, 11, 12):
        item = find_item(f"fig{number}")
        shown = {
            (line.where["model"], plot.dtype, point.x): point.latency_ms
            for plot, line, point in _list_printed(item)
        }
        for row in select(figure=f"Figure {number}"):
            raw = shown[row.model, row.dtype, row.batch]
            assert raw == pytest.approx(row.latency_ms, rel=0.04), (number, row.model, row.batch)


def _list_printed(item):
    from ftax.paper.items import figures
    from ftax.paper.sheet import read_points

    for plot in getattr(figures, f"make_{item.name}")():
        for line in plot.printed:
            for point in read_points(line, "batch"):
                yield plot, line, point


def test_figure_3_share_is_what_the_device_did_not_work():
    panels = find_item("fig3").make_sheet([make_view(find_item("fig3"))]).panels
    share = next(panel for panel in panels if panel.shows == "share")
    ours, paper = share.series
    assert [point.share_pct for point in ours.points] == pytest.approx([50.0] * 8)
    assert paper.points[0].share_pct == pytest.approx(82.4055, abs=1e-3)  # of the paper's claims


def test_figure_1_is_over_the_counted_work():
    item = find_item("fig1")
    rows = read_rows(item.make_sheet([make_view(item)]))
    assert {row["x"] for row in rows if not row["source"].endswith("the paper")} == {"1"}
    assert {row["x_name"] for row in rows} == {"multiply-accumulates (1e9)"}
    paper = {row["series"]: float(row["x"]) for row in rows if row["source"].endswith("the paper")}
    assert paper["bert-base"] == pytest.approx(10.8837)


def test_the_length_panel_is_at_the_largest_batch():
    item = find_item("fig4")
    panel = next(p for p in item.make_sheet([make_view(item)]).panels if p.x_name == "tokens")
    ours = [series for series in panel.series if series.measured]
    assert [point.x for point in ours[0].points] == [1, 2, 4, 8, 16, 32, 64, 128]
    at_128 = latency_of(
        Cell(model="m", runtime="r", host="python", batch=128, sequence=1, dtype="fp16")
    )
    assert ours[0].points[0].latency_ms == pytest.approx(at_128)


def test_all_is_missing_without_results():
    item = find_item("fig5")
    missing = find_missing(item.make_wants(GPU), GPU, [])
    assert {gap.reason for gap in missing} == {NOT_RUN}
    assert sum(gap.count for gap in missing) == len(list_cells(item))


def test_what_failed_is_missing_with_its_reason_and_the_rest_is_drawn():
    item = find_item("fig13")
    cells = list_cells(item)
    reason = "onnx is not here"
    results = make_results(
        make_failed(cell, reason) if cell.runtime == "torchscript" else make_cell(cell)
        for cell in cells
        if cell.batch != 64
    )
    (view,) = split_views(results)
    missing = find_missing(item.make_wants(GPU), GPU, [view])
    counts = {gap.reason: 0 for gap in missing}
    for gap in missing:
        counts[gap.reason] += gap.count
    assert counts == {reason: 14, NOT_RUN: 4}
    lines = describe_missing(missing)
    assert any(line.startswith("14 cells: onnx is not here (wavlm torchscript") for line in lines)
    sheet = item.make_sheet([view], missing)
    assert "18 wanted cells are missing" in sheet.note
    labels = {series.label for panel in sheet.panels for series in panel.series if series.measured}
    assert labels == {"eager"}


def test_nothing_measured_is_no_sheet_of_today():
    item = find_item("fig10")
    sheet = item.make_sheet([make_view(find_item("fig13"))])
    assert not sheet.measured
    assert sheet.panels  # the paper's own lines are still there


def test_busy_time_that_nobody_traced_is_said_to_lack():
    item = find_item("fig3")
    cells = list_cells(item)
    results = make_results(
        make_cell(cell, busy_ns=None, facts={"trace": "buffers were lost"}) for cell in cells
    )
    (view,) = split_views(results)
    missing = find_missing(item.make_wants(GPU), GPU, [view])
    assert {gap.reason for gap in missing} == {"no busy time: buffers were lost"}
    (share,) = (panel for panel in item.make_sheet([view]).panels if panel.shows == "share")
    assert [series.measured for series in share.series] == [False]  # the paper's, in fp16


def test_a_cpu_lacks_what_only_a_gpu_runs():
    item = find_item("fig5")
    view = make_view(item, CPU)
    missing = find_missing(item.make_wants(CPU), CPU, [view])
    assert {gap.reason for gap in missing} == {"cuda-graph/python does not run on a CPU"}
    assert sum(gap.count for gap in missing) == len(CPU.batches)


def test_a_quick_run_says_what_it_leaves_out():
    quick = StudySetting.choose(device="cuda", quick=True)
    (gap,) = find_missing(
        find_item("fig10").make_wants(quick), quick, [make_view(find_item("fig10"), quick)]
    )
    assert gap.what == "gpt2-generate torchscript/python fp16, b1 s128 to b64 s128"
    assert "quick" in gap.reason


def test_generation_is_measured_in_the_papers_dtype_where_there_is_a_choice():
    item = find_item("fig10")
    dtypes = {
        kind: {cell.dtype for cell in list_cells(item, setting)
               if cell.model == "gpt2-generate"}
        for kind, setting in (("gpu", GPU), ("cpu", CPU))
    }  # fmt: skip
    assert dtypes == {"gpu": {"fp16"}, "cpu": {"fp32"}}
    reasons = {gap.reason for gap in find_missing(item.make_wants(GPU), GPU, [make_view(item)])}
    assert reasons == {"left out in fp32: it takes long to make ready, and the paper has fp16"}


@pytest.mark.parametrize("item", TABLES, ids=lambda item: item.name)
def test_a_table_has_the_papers_rows_and_ours(item):
    table = item.make_table([make_view(item)])
    text = table.to_csv()
    wanted = {
        "table1": "13.6", "table2": "Xeon 8339HC,A100", "table3": "ONNX RT with CUDA Graphs",
        "training": "funnel,32",
    }  # fmt: skip
    assert wanted[item.name] in text


def test_the_tax_of_training_is_what_the_lowest_rung_leaves():
    item = find_item("training")
    cells = list_cells(item)
    assert {(cell.step, cell.options["optimizer"]) for cell in cells} == {
        ("train", "adamw-capturable")
    }
    latency = {"eager": 4.0, "cuda-graph": 1.0}
    results = make_results(make_cell(cell, latency_ms=latency[cell.runtime]) for cell in cells)
    table = item.make_table(split_views(results))
    rows = [dict(zip(table.columns, row)) for row in table.rows]
    assert {row["tax (%)"] for row in rows} == {"75"}
    assert [row["batch"] for row in rows if row["model"] == "funnel"] == ["1", "8", "32"]


def test_table_1_sets_ours_beside_the_paper():
    table = find_item("table1").make_table([make_view(find_item("table1"))])
    by_batch = [dict(zip(table.columns, row)) for row in table.rows]
    label = next(name for name in table.columns if name.startswith("fp16 (ms)"))
    assert [row["tokens"] for row in by_batch] == ["128", "128", "512", "128"]
    assert by_batch[0][label].startswith("0.55 [")  # (1 + 1 / 10) / 2
    assert by_batch[1][label].startswith("0.7 [")
    each = next(name for name in table.columns if name.startswith("fp16 a request"))
    assert [row[each] for row in by_batch] == ["0.55", "0.175", "0.55", "0.55"]
    paper = [row["the paper, a request"] for row in by_batch]
    assert paper == ["13.6", "3.4", "13.4", "13.4"]  # what it prints as TP, in s


def test_table_1_shows_what_was_measured_by_turns():
    cells = list(join_cells(make_grids(make_wants((), GPU, claims=True), GPU)))
    scaled = {"bert-768": 5.0, "bert-1536": 6.0}
    results = make_results(
        make_cell(
            cell,
            latency_ms=scaled[cell.model] + 0.01 * cell.options["repetition"]
            if cell.options and cell.model in scaled
            else 1.0,
        )
        for cell in cells
    )
    (view,) = split_views(results)
    assert {len(cell.values_ns) for cell in view.repeated.values()} == {GPU.repetitions}
    table = find_item("table1").make_table([view])
    label = next(name for name in table.columns if name.startswith("fp16 (ms)"))
    rows = [dict(zip(table.columns, row)) for row in table.rows]
    middle = 0.01 * (GPU.repetitions + 1) / 2
    for row, base in zip(rows, (5.0, 5.0, 5.0, 6.0), strict=True):
        assert float(row[label].split()[0]) == pytest.approx(base + middle, rel=5e-3)


def test_table_2_has_what_the_vendor_states_of_a_known_gpu():
    facts = replace(MACHINE.environment, gpu=make_gpu("NVIDIA H200"))
    machine = replace(MACHINE, environment=facts)
    cells = list_cells(find_item("table2"))
    (view,) = split_views(make_results(map(make_cell, cells), machines=(machine,)))
    table = find_item("table2").make_table([view])
    ours = dict(zip(table.columns, table.rows[-1]))
    assert (ours["GPU"], ours["cores"], ours["bandwidth (GB/s)"]) == ("H200", "16896", "4800")
    assert ours["source"] == "this machine; its vendor"


def test_table_3_has_counters_and_dashes():
    item = find_item("table3")
    view = make_view(item, choose=lambda cell: cell.runtime != "torchscript")
    table = item.make_table([view])
    listed = [dict(zip(table.columns, row)) for row in table.rows]
    assert [row["batch"] for row in listed] == [str(b) for b in GPU.batches for _ in range(5)]
    assert {row["SMs active (%), the paper"] for row in listed[5:]} == {"-"}
    rows = {row["framework"]: row for row in listed[:5]}
    eager = rows["PyTorch"]
    assert eager["SMs active (%)"] == "25.0"
    assert eager["occupancy (%)"] == "12.5"
    assert eager["SMs active (%), the paper"] == "2.6"
    assert rows["PyTorch with TorchScript"]["latency (ms)"] == "-"
    assert rows["PyTorch with TorchScript"]["latency (ms), the paper"] == "6.14"
