"""Pictures, as files and on a page: that they are drawn, and what is in the sheet is on them."""

import functools

import pytest

from ftax.paper.claims.claim_verdict import Verdict
from ftax.paper.drawing import save_sheet
from ftax.paper.items import find_item, list_items, make_grids
from ftax.paper.machine_view import split_views
from ftax.paper.sheet import Panel, Point, Series, Sheet, choose_styles, list_hands
from ftax.paper.study_page import describe_study
from ftax.paper.study_setting import StudySetting
from ftax.reports.html.sources import Found, Sweeps
from ftax.sweeps.grid import join_cells
from support.fleet import A100, H100, make_machine
from support.paper_results import make_cell, make_results

pytest.importorskip("matplotlib")

GPU = StudySetting.choose(device="cuda")
FIGURES = [item.name for item in list_items() if item.kind == "figure"]


@functools.cache
def make_sheet(name, *gpus):
    item, machines = find_item(name), [make_machine(gpu) for gpu in gpus or (H100,)]
    cells = join_cells(make_grids(item.make_wants(GPU), GPU))
    results = make_results(
        [make_cell(cell, machine=machine.id) for machine in machines for cell in cells],
        machines=machines,
    )
    return item.make_sheet(split_views(results))


@pytest.mark.parametrize("name", FIGURES)
def test_a_picture_has_the_names_of_all_its_series(name, tmp_path):
    sheet = make_sheet(name)
    svg, png = save_sheet(sheet, tmp_path / name)
    text = svg.read_text("utf-8")
    for panel in sheet.panels:
        assert panel.title in text
        for series in panel.series:
            assert series.label in text
    assert "the paper" in text or name in ("fig2", "fig6")
    assert png.read_bytes().startswith(b"\x89PNG")


def test_two_gpus_stand_in_one_panel_with_a_line_each():
    panel = make_sheet("fig4", H100, A100).panels[0]
    ours = [(series.label, series.source) for series in panel.series if series.measured]
    assert ours == [
        (runtime, gpu)
        for gpu in ("H100", "A100")
        for runtime in ("eager", "torchscript", "onnxruntime")
    ]
    assert list_hands(make_sheet("fig4", H100, A100)) == ["H100", "A100"]


def test_what_hides_another_machines_has_a_panel_each_beside_one_of_both():
    panels = make_sheet("fig3", H100, A100).panels
    assert [panel.title for panel in panels][:3] == [
        "BERT, fp16: latency, H100", "BERT, fp16: latency, A100", "BERT, fp16: overhead share",
    ]  # fmt: skip
    sources = [{series.source for series in panel.series if series.measured} for panel in panels]
    assert sources[:3] == [{"H100"}, {"A100"}, {"H100", "A100"}]


def test_among_the_papers_gpus_each_of_ours_has_its_name_and_colour():
    sheet = make_sheet("fig9", H100, A100)
    ours = [series for series in sheet.panels[0].series if series.measured]
    assert [series.label for series in ours] == ["H100, here", "A100, here"]
    assert len({choose_styles(sheet)[series.style] for series in ours}) == 2
    assert list_hands(sheet) == []  # the colour says it


@pytest.mark.parametrize("name", ["fig1", "fig3", "fig9"])
def test_a_picture_of_two_gpus_names_both(name, tmp_path):
    svg, _ = save_sheet(make_sheet(name, H100, A100), tmp_path / name)
    text = svg.read_text("utf-8")
    assert "H100" in text and "A100" in text


def draw(stem, *points, shows=("latency",)):
    """The SVG of one line that was measured."""
    line = Series(label="line", style="eager", source="here", measured=True, points=points)
    panels = tuple(Panel(title=name, series=(line,), shows=name) for name in shows)
    return save_sheet(Sheet(item="fig0", title="t", note="n", panels=panels), stem)[0].read_text()


def test_equal_data_make_equal_files(tmp_path):
    points = (Point(x=1, latency_ms=2), Point(x=2, latency_ms=3, low_ms=2, high_ms=4))
    assert draw(tmp_path / "one", *points) == draw(tmp_path / "two", *points)


@pytest.mark.parametrize("doubt", ["", "the host was disturbed"])
def test_what_is_in_doubt_has_a_ring(doubt, tmp_path):
    text = draw(tmp_path / "fig0", Point(x=1, latency_ms=2, doubt=doubt), Point(x=2, latency_ms=3))
    assert ("ring: not resolved, or disturbed" in text) == bool(doubt)


def test_points_without_intervals_or_busy_time_are_drawn(tmp_path):
    point = Point(x=1, latency_ms=2)
    text = draw(tmp_path / "bare", point, shows=("latency", "split", "share"))
    assert "solid: here, measured" in text


@pytest.mark.parametrize("name", FIGURES)
def test_no_two_things_look_alike(name):
    styles = choose_styles(make_sheet(name))
    assert len(set(styles.values())) == len(styles)
    assert len({marker for _, marker in styles.values()}) == len(styles)  # told apart in grey


VERDICT = Verdict(
    id="c", section="3", claim="a is slow", claim_kind="ordering", origin="paper", expected="",
    paper="holds", today="holds", shares={},
)  # fmt: skip


def describe(*names, machines):
    cells = join_cells(
        [grid for name in names for grid in make_grids(find_item(name).make_wants(GPU), GPU)]
    )
    found = [
        Found(file="cells.jsonl", line=place, record=make_cell(cell, machine=machine.id))
        for machine in machines
        for place, cell in enumerate(cells)
    ]
    sweeps = Sweeps(
        cells=tuple(found), machines={machine.id: machine for machine in machines}, problems=()
    )
    (view,) = describe_study([Found(file="c.jsonl", line=1, record=VERDICT)], sweeps).items
    return view


def test_two_gpus_are_one_view_with_lines_of_their_own():
    view = describe("fig4", machines=[make_machine(H100), make_machine(A100)])
    assert view.machine == "H100, A100"
    figure = next(figure for figure in view.figures if figure.number == 4)
    entries = {entry.name: entry.look.dash for entry in figure.charts.legend if entry.look}
    assert entries["H100, measured here"] == 0 and entries["A100, measured here"] == 3
    assert entries["RTX-8000, the paper"] == 1
    lines = figure.charts.panels[0].chart.lines
    assert [line.look.dash for line in lines] == [0, 0, 0, 3, 3, 3, 1, 1, 1]


def test_among_the_papers_gpus_ours_are_named_by_their_lines():
    view = describe("fig9", machines=[make_machine(H100), make_machine(A100)])
    figure = next(figure for figure in view.figures if figure.number == 9)
    names = [entry.name for entry in figure.charts.legend]
    assert names[:2] == ["H100, here", "A100, here"] and "A100" in names
    assert "H100, measured here" not in names
