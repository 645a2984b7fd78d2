"""What is printed of two sweeps: a row a cell, a count of verdicts, and what to know before."""

from __future__ import annotations

from ftax.reports.tables.sweep_comparison_table import draw_sweep_comparisons
from ftax.reports.terminal import to_text
from ftax.sweeps.comparison import compare_sweeps
from support.fleet import A100, H100, make_cell, make_machine, make_results

FAST, SLOW = make_machine(H100), make_machine(A100)


def draw(latencies_us, **options):
    before = [make_cell(FAST, 100.0, batch=b) for b in latencies_us]
    after = [make_cell(SLOW, us, batch=b) for b, us in latencies_us.items()]
    found = compare_sweeps(
        make_results(before, FAST), make_results(after, SLOW), names=("old", "new"),
        allow_different=True,
    )  # fmt: skip
    return draw_sweep_comparisons([found], **options)


def test_a_cell_is_a_row_with_both_latencies_and_the_verdict():
    drawn = draw({1: 150.0, 2: 100.0})
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
    (table,) = draw(many).tables
    assert [row[0] for row in table.rows] == ["7"]
    assert "the 1 of 500 cells that changed" in table.title
    assert len(draw(many, is_whole=True).tables[0].rows) == 500
    assert any("about 5 would be called" in text for text in draw(many).warnings)


def test_numbers_have_the_columns_of_every_comparison():
    numbers = draw({1: 150.0}).to_numbers()
    (row,) = (dict(zip(numbers.columns, row, strict=True)) for row in numbers.rows)
    assert (row["part"], row["a"], row["b"], row["verdict"]) == ("cell", "old", "new", "slower")
    assert row["cell_a"].startswith("bert-base eager/python cuda fp16 b1")
