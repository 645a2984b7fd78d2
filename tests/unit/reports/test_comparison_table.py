"""Comparisons as they are printed: results against the first one, lines of receipts, and sweeps."""

from ftax import compare
from ftax.reports.tables.comparison_table import (
    describe_largest,
    draw_comparisons,
    draw_sweep_comparisons,
    make_change_table,
    make_line_change_table,
)
from ftax.reports.terminal import to_text
from ftax.sweeps.comparison import compare_sweeps
from support.evidence import EAGER
from support.fleet import A100, H100, make_cell, make_machine, make_results
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


# --- sweeps ---------------------------------------------------------------------------------------

FAST, SLOW = make_machine(H100), make_machine(A100)


def draw_sweeps(latencies_us, **options):
    before = [make_cell(FAST, 100.0, batch=b) for b in latencies_us]
    after = [make_cell(SLOW, us, batch=b) for b, us in latencies_us.items()]
    found = compare_sweeps(
        make_results(before, FAST), make_results(after, SLOW), names=("old", "new"),
        allow_different=True,
    )  # fmt: skip
    return draw_sweep_comparisons([found], **options)


def test_a_cell_is_a_row_with_both_latencies_and_the_verdict():
    drawn = draw_sweeps({1: 150.0, 2: 100.0})
    (table,) = drawn.tables
    assert table.title == (
        "new against old, model bert-base, runtime eager, called from Python, device cuda, "
        "dtype fp16, sequence 128"
    )
    assert table.columns == ("batch", "old", "new", "change", "99% interval", "verdict")
    assert table.rows[0][:4] == ("1", "100 us", "150 us", "+50.0%")
    assert [row[-1] for row in table.rows] == ["slower", "cannot tell"]
    assert drawn.head == ("new against old: 2 cells, 0 faster, 1 slower, 0 equal, 1 cannot tell",)
    assert "not of the code alone: the GPU is" in drawn.warnings[0]
    assert any("2 cells compared between rounds" in text for text in drawn.warnings)
    assert "new against old" in to_text(drawn, width=80)
    assert "not of the code alone" in drawn.to_markdown()


def test_of_many_cells_a_terminal_shows_those_that_changed():
    many = dict.fromkeys(range(1, 501), 100.0) | {7: 200.0}
    (table,) = draw_sweeps(many).tables
    assert [row[0] for row in table.rows] == ["7"]
    assert "the 1 of 500 cells that changed" in table.title
    assert len(draw_sweeps(many, is_whole=True).tables[0].rows) == 500
    assert any("about 5 would be called" in text for text in draw_sweeps(many).warnings)


def test_numbers_have_the_columns_of_every_comparison():
    numbers = draw_sweeps({1: 150.0}).to_numbers()
    (row,) = (dict(zip(numbers.columns, row, strict=True)) for row in numbers.rows)
    assert (row["part"], row["a"], row["b"], row["verdict"]) == ("cell", "old", "new", "slower")
    assert row["cell_a"].startswith("bert-base eager/python cuda fp16 b1")
