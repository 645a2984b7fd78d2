"""Comparisons as they are printed: results against the first one, and lines of receipts."""

from ftax import compare
from ftax.reports.tables.comparison_table import (
    describe_largest,
    draw_comparisons,
    make_change_table,
    make_line_change_table,
)
from ftax.reports.terminal import to_text
from support.evidence import EAGER
from support.records import make_measurement
from support.runtimes_receipt import ORT, make_cpu_receipt, make_runtime
from support.tables import read_column


def make_change():
    before = make_cpu_receipt(make_runtime(ORT, 300.0))
    after = make_cpu_receipt(make_runtime(ORT, 310.0), eager_us=2000.0)
    return compare(before, after, names=("before", "after"))


def test_a_line_has_both_times_the_difference_and_the_verdict():
    table = make_line_change_table(make_change())
    assert table.title == "after against before, line by line"
    assert table.columns == ("what", "before", "after", "difference", "99% interval", "verdict")
    assert table.rows[0][:4] == ("model glue", "100 us", "200 us", "+100 us")
    assert table.rows[-1][:4] == ("= eager/python", "1,000 us", "2,000 us", "+1,000 us")
    assert read_column(table, "verdict") == ["slower"] * 4


def test_a_runtime_has_a_row_a_result():
    table = make_change_table([make_change()])
    assert read_column(table, "runtime") == [
        "eager/python", "", "flat/python", "", "eager/cpp", "", "onnxruntime/cpp", "",
    ]  # fmt: skip
    assert read_column(table, "result") == ["before", "after"] * 4
    assert table.rows[-2:] == (
        ("onnxruntime/cpp", "before", "300 us", "-", "-", "-"),
        ("", "after", "310 us", "+3.3%", "+3.3 to +3.3%", "cannot tell"),
    )


def test_any_number_of_results_stands_in_one_table():
    sides = {name: make_runtime(EAGER, us) for name, us in (("a", 10), ("b", 11), ("c", 9))}
    found = [compare(sides["a"], sides[name], names=("a", name)) for name in ("b", "c")]
    drawn = draw_comparisons(*found)
    (table,) = drawn.tables
    assert read_column(table, "result") == ["a", "b", "c"]
    assert read_column(table, "verdict") == ["-", "slower", "faster"]
    *answers, cells = drawn.head
    assert cells == "a, b, c: mlp eager/python cpu fp32 b1"
    assert [line.partition(",")[0] for line in answers] == [
        "b against a: slower", "c against a: faster",
    ]  # fmt: skip
    assert len([text for text in drawn.warnings if "by turns" in text]) == 0


def test_two_measurements_need_no_table():
    found = compare(make_measurement([100, 101, 99]), make_measurement([200, 201, 199]))
    assert draw_comparisons(found).tables == ()


def test_the_line_that_changed_most_is_said():
    change = make_change()
    assert describe_largest(change) == (
        "What changed most is operators: 700 us more in after than in before."
    )
    assert describe_largest(compare(make_cpu_receipt(), make_cpu_receipt())) == ""


def test_all_of_it_fits_80_columns():
    text = to_text(make_change(), width=80)
    assert max(map(len, text.splitlines())) <= 80
    assert "no room" not in text and "+1,000 us" in text
