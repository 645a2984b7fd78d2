"""Pictures: that they are drawn, and that what is in the sheet is on them."""

import functools
import re

import pytest

from ftax.paper.figures.drawing import save_sheet
from ftax.paper.figures.sheet import Panel, Point, Series, Sheet
from ftax.paper.figures.styles import choose_styles
from ftax.paper.figures.view import split_views
from ftax.paper.items.catalogue import find_item, list_items, make_grids
from ftax.paper.setting import Setting
from ftax.sweeps.grid import join_cells
from support.paper_results import make_results, measure_all

pytest.importorskip("matplotlib")

GPU = Setting.choose(device="cuda")
FIGURES = [item.name for item in list_items() if item.kind == "figure"]


@functools.cache
def make_sheet(name):
    item = find_item(name)
    (view,) = split_views(measure_all(join_cells(make_grids(item.make_wants(GPU), GPU))))
    return item.make_sheet(view)


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


def test_equal_data_make_equal_files(tmp_path):
    line = Series(
        label="line", style="eager", source="here", measured=True,
        points=(Point(x=1, latency_ms=2), Point(x=2, latency_ms=3, low_ms=2, high_ms=4)),
    )  # fmt: skip
    panels = (Panel(title="a", series=(line,)),)
    files = [
        save_sheet(Sheet(item="fig0", title="t", note="n", panels=panels), tmp_path / name)[0]
        for name in ("one", "two")
    ]
    assert files[0].read_bytes() == files[1].read_bytes()


@pytest.mark.parametrize("doubt", ["", "the host was disturbed"])
def test_what_is_in_doubt_has_a_ring(doubt, tmp_path):
    points = (Point(x=1, latency_ms=2, doubt=doubt), Point(x=2, latency_ms=3))
    line = Series(label="line", style="eager", source="here", measured=True, points=points)
    sheet = Sheet(item="fig0", title="t", note="n", panels=(Panel(title="a", series=(line,)),))
    text = save_sheet(sheet, tmp_path / "fig0")[0].read_text("utf-8")
    assert ("ring: not resolved, or disturbed" in text) == bool(doubt)


@pytest.mark.parametrize("name", FIGURES)
def test_no_two_things_look_alike(name):
    styles = choose_styles(make_sheet(name))
    assert len(set(styles.values())) == len(styles)
    assert len({marker for _, marker in styles.values()}) == len(styles)  # told apart in grey


def test_points_without_intervals_or_busy_time_are_drawn(tmp_path):
    bare = Series(
        label="bare", style="bare", source="here", measured=True, points=(Point(x=1, latency_ms=2),)
    )
    panels = tuple(
        Panel(title=shows, series=(bare,), shows=shows) for shows in ("latency", "split", "share")
    )
    sheet = Sheet(item="fig0", title="t", note="n", panels=panels)
    svg, _ = save_sheet(sheet, tmp_path / "bare")
    assert re.search(r"solid: here, measured", svg.read_text("utf-8"))


def test_no_results_have_no_view():
    assert split_views(make_results([])) == ()
