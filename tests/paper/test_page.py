"""The paper on a page: GPUs of one folder stand in one chart, told apart by their lines."""

from __future__ import annotations

from ftax.paper.claims.claim_verdict import Verdict
from ftax.paper.items import find_item, make_grids
from ftax.paper.study_page import describe_study
from ftax.paper.study_setting import StudySetting
from ftax.reports.html.sources import Found, Sweeps
from ftax.sweeps.grid import join_cells
from support.fleet import A100, H100, make_machine
from support.paper_results import make_cell

GPU = StudySetting.choose(device="cuda")
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
