"""Axes and paths of charts, by hand: ranges, ticks, units, and what no line may join."""

from __future__ import annotations

import pytest

from ftax.reports.html.charts import (
    Axis,
    Line,
    Look,
    Looks,
    Mark,
    Plot,
    make_linear_axis,
    make_log_axis,
    make_share_axis,
    make_size_axis,
    make_time_axis,
)
from ftax.reports.html.view import Scale, TableView, typeset
from ftax.reports.table import Rows
from ftax.timing.cell import Cell


def read_ticks(axis: Axis) -> list[str]:
    return [label for _, label in axis.ticks]


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ((1.2, 40), ["2", "5", "10", "20"]),
        ((3, 3000), ["10", "100", "1,000"]),
        ((0.2, 0.9), ["0.2", "0.4", "0.6", "0.8"]),
        ((80, 81), ["70", "80", "90", "100"]),  # flat, and drawn flat
    ],
)
def test_a_logarithmic_axis_has_few_round_ticks_and_holds_its_values(values, ticks):
    axis = make_log_axis("", values)
    assert axis.low < min(values) and max(values) < axis.high
    assert set(ticks) <= set(read_ticks(axis))
    assert 3 <= len(axis.ticks) <= 6
    assert axis.high / axis.low > 1.7


def test_an_interval_far_beyond_its_values_leaves_the_axis():
    near, far = (
        make_log_axis("", [1.0, 2.0], [(0.5, 5.0)]),
        make_log_axis("", [1.0, 2.0], [(0.1, 90.0)]),
    )
    assert near.low < 0.5 and near.high > 5
    assert far.low > 0.3 and far.high < 6
    assert far.place(90.0) == 1.0 and far.place(-1.0) == 0.0


def test_a_time_axis_has_one_unit():
    assert make_time_axis("latency", [400.0, 9e6]).title == "latency (\N{MICRO SIGN}s)"
    axis = make_time_axis("latency", [2e6, 5e7])
    assert (axis.title, read_ticks(axis)[0]) == ("latency (ms)", "2")
    assert axis.ticks[0][0] == pytest.approx(2e6)
    assert make_time_axis("t", [2e5], like_ns=1e9).title == "t (ms)"
    assert make_time_axis("t", [2e6, 5e7], log=False).low == 0.0


def test_other_axes():
    assert read_ticks(make_linear_axis("", [33.0])) == ["0", "10", "20", "30"]
    assert read_ticks(make_size_axis("", [1, 3, 8])) == ["1", "3", "8"]
    assert read_ticks(make_size_axis("", range(1, 20))) == ["1", "2", "4", "8", "16"]
    assert read_ticks(make_share_axis("")) == ["0 %", "25 %", "50 %", "75 %", "100 %"]


def make_plot(*places: tuple[float, float], **changes) -> tuple[Plot, Line]:
    marks = tuple(Mark(x=x, y=y, interval=(y, y + 1)) for x, y in places)
    line = Line(look=Look(colour=0, shape=0), marks=marks, **changes)
    axis = Axis(title="", low=0.0, high=10.0, ticks=((0.0, "0"),))
    return Plot(label="", x=axis, y=axis, lines=(line,)), line


def test_a_line_runs_through_its_marks_from_the_lower_left_upwards():
    plot, line = make_plot((0, 0), (10, 10))
    left, top, right, bottom = plot.frame
    assert plot.join(line) == f"M{left:g} {bottom:g}L{right:g} {top:g}"
    assert plot.reach(line).count("M") == 2


def test_no_line_joins_two_marks_of_one_size():
    for plot, line in (
        make_plot((1, 1), (1, 2)),
        make_plot((1, 1)),
    ):
        assert plot.join(line) == ""


def test_runtimes_have_looks_of_their_own():
    cells = [
        Cell(model="m", runtime=f"r{i}", host="python", batch=1, sequence=None) for i in range(20)
    ]
    looks = Looks(cells)
    assert len({(looks.find(cell).colour, looks.find(cell).shape) for cell in cells}) == 20


def test_a_bar_that_goes_down_begins_where_it_ends():
    scale = Scale([-5.0, 15.0])
    part = scale.make_part(0.0, -5.0, "tax")
    assert (part.start, part.width) == (0.0, 25.0)
    assert scale.measure((10.0, 99.0)) == (75.0, 25.0)  # what is beyond the room ends with it


@pytest.mark.parametrize(
    ("text", "is_narrow"), [("short", True), ("a text of some length " * 2, False)]
)
def test_a_table_knows_whether_a_phone_has_room_for_it(text, is_narrow):
    rows = Rows(title="t", columns=("a", "b", "c"), numeric=(), rows=((text, "1", "2"),))
    assert TableView(rows=rows).is_narrow == is_narrow


def test_microseconds_have_their_letter_and_words_keep_theirs():
    assert typeset("12 us, 3 us to us, 4 usual") == "12 µs, 3 µs to us, 4 usual"
