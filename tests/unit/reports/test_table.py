"""Tables on a terminal: what gives way is said, and a number is never folded nor cut."""

import re
from dataclasses import replace

import pytest
from rich.console import Console

from ftax.ladders.receipt import Receipt
from ftax.reports.table import Printout, Rows
from ftax.reports.tables.measurement_table import draw_measurements, make_measurement_table
from ftax.reports.tables.receipt_table import draw_receipt, make_line_table
from ftax.reports.tables.sweep_table import draw_sweep
from ftax.reports.terminal import make_console, show_on_stdout, to_text
from ftax.sweeps.results import SweepResults
from support.evidence import EAGER, FLAT, TAPE
from support.records import make_measurement
from support.runtimes_receipt import CLOSE, ORT, make_cpu_receipt, make_gpu_receipt, make_runtime
from support.sweeps import MACHINE, make_cell, make_measured
from support.tables import read_column

TIMES = Rows(
    title="Times",
    columns=("name", "latency", "p50", "p90", "why"),
    numeric=("latency", "p50", "p90"),
    gives_way=("p90", "p50"),
    rows=(
        ("first", "1,234 us", "1,200 us", "1,300 us", "a sentence of some words"),
        ("second", "12 us, not resolved", "11 us", "13 us", "-"),
    ),
)


def test_a_wide_terminal_shows_every_column_and_says_nothing_of_it():
    text = to_text(TIMES, width=100)
    assert [line.split("  ")[0] for line in text.splitlines()][:1] == ["Times"]
    assert all(name in text for name in TIMES.columns)
    assert "no room" not in text


def test_columns_give_way_in_their_order_and_a_line_names_them():
    text = to_text(TIMES, width=54)
    assert "p50" in text.split("no room")[0] and "p90" not in text.split("no room")[0]
    assert "(no room in 54 columns for: p90; a wider terminal or COLUMNS=160 has it)" in " ".join(
        text.split()
    )
    both = to_text(TIMES, width=40)
    assert "for: p90, p50; a" in " ".join(both.split())


@pytest.mark.parametrize("width", [10, 25, 40, 60, 80, 120])
def test_a_number_is_whole_at_any_width(width):
    text = to_text(TIMES, width=width)
    assert "1,234 us" in text and "12 us," in text and "not resolved" in text
    assert all(len(line) <= max(width, 40) for line in text.splitlines())


def test_texts_wrap_between_words_where_nothing_is_left_to_give_way():
    text = to_text(TIMES, width=40)
    assert "a sentence of some words" not in text
    assert all(re.search(rf"\b{word}\b", text) for word in ("sentence", "of", "some", "words"))


def test_a_line_ends_with_its_last_character():
    assert all(line == line.rstrip() for line in to_text(TIMES, width=90).splitlines())


def test_tables_of_a_printout_share_the_line_of_what_is_missing():
    drawn = Printout(head=("head",), tables=(TIMES, TIMES), notes=("note",), warnings=("w " * 30,))
    text = to_text(drawn, width=50)
    assert text.startswith("head\n\nTimes\n") and "\nnote\n! w w" in text
    assert text.count("no room") == 1
    assert "\n  w w" in text  # further lines of a warning stand below its first word


def test_a_legend_stands_below_its_table_and_is_no_column():
    table = make_line_table(make_cpu_receipt())
    text = to_text(table, width=80)
    below = text[text.index("= eager, called from Python") :]
    assert "model glue                module calls, hooks, the model's own Python" in below
    assert "what it is" not in text
    assert "what it is" in table.columns


def test_a_line_that_is_not_resolved_is_told_so_below_its_name():
    flat = make_runtime(FLAT, 1000.1, noise=-0.002)
    rungs = (make_runtime(EAGER, 1000.0), flat, make_runtime(TAPE, 700.0))
    (first, *_) = make_line_table(Receipt(rungs=rungs)).rows
    assert first[0].startswith("model glue\n(not resolved")
    legend = to_text(make_line_table(Receipt(rungs=rungs)), width=80).split("= eager")[1]
    assert "model glue                module calls" in legend


@pytest.mark.parametrize("width", [80, 100, 160])
@pytest.mark.parametrize("eager_us", [0.1234, 13.7, 999.9, 9876.5, 123456.0, 1e6])
def test_a_receipt_has_each_runtime_its_latency_and_its_interval_whole(width, eager_us):
    """Folded to single letters at 80 columns, before."""
    others = [
        make_runtime(("torchscript-frozen", "python"), eager_us / 1.7, outputs=CLOSE),
        make_runtime(ORT, eager_us / 3),
    ]
    for receipt in (make_cpu_receipt(*others, eager_us=eager_us), make_gpu_receipt(*others)):
        drawn = draw_receipt(receipt)
        text = to_text(drawn, width=width)
        assert max(map(len, text.splitlines())) <= width
        table = next(table for table in drawn.tables if table.title.startswith("Runtimes of"))
        columns = (read_column(table, name) for name in ("runtime", "called from", "latency"))
        for cells in zip(*columns, read_column(table, "95 % interval"), strict=True):
            line = rf"^{' +'.join(map(re.escape, cells))}( |$)"
            assert re.search(line, text, re.MULTILINE)
        assert all(name in text for name in ("p50", "p90", "p99"))
        assert not any(name in text.partition("(no room")[2] for name in ("p50", "p90", "p99"))


def test_percentiles_fit_80_columns_whatever_a_runtime_is_called():
    found = make_measurement([123_456_789, 123_456_999], runtime="compile-reduce-overhead")
    text = to_text(draw_measurements(found), width=80)
    assert all(name in text for name in ("p50", "p90", "p99")) and "no room" not in text


def test_a_column_gives_way_unasked_where_nothing_else_fits():
    numbers = tuple("abcdefgh")
    wide = Rows(title="", columns=("name", *numbers), numeric=numbers,
                rows=(("a_long_name_of_one_word", *["123,456 us"] * 8),))  # fmt: skip
    lines = to_text(wide, width=40).splitlines()
    assert max(map(len, lines)) <= 40
    assert "(no room in 40 columns for: h, g, f, e," in " ".join(lines)


def test_a_measurement_stands_beside_its_model_only_where_models_differ():
    first = make_measurement([100, 101])
    other = replace(first, cell=replace(first.cell, model="cnn"))
    assert "model" not in make_measurement_table([first, first]).columns
    assert make_measurement_table([first]).title.startswith("Latency of mlp")
    named = make_measurement_table([first.with_label("before"), first])
    assert (named.columns[0], [row[0] for row in named.rows]) == ("label", ["before", ""])
    for table in draw_measurements(first.with_label("before"), first.with_label("after")).tables:
        assert read_column(table, "label") == ["before", "after"]
    both = make_measurement_table([first, other])
    assert read_column(both, "model") == ["mlp", "cnn"]
    assert both.title.startswith("Latency of mlp, cnn")


def test_what_all_cells_of_a_sweep_have_in_common_stands_in_the_title():
    cells = (make_measured(make_cell("eager")), make_measured(make_cell("flat")))
    (table,) = draw_sweep(SweepResults(cells=cells, machines={MACHINE.id: MACHINE})).tables
    assert table.title == (
        "2 cells: model m, called from Python, device cpu, dtype fp32, batch 1, sequence 8"
    )
    assert table.columns[:2] == ("runtime", "latency")
    many = SweepResults(cells=cells * 31, machines={MACHINE.id: MACHINE})
    assert draw_sweep(many).tables == ()
    assert len(draw_sweep(many, is_whole=True).tables[0].rows) == 62


def test_without_a_terminal_the_width_is_that_of_columns_or_80(monkeypatch, capsys):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert make_console().width == 80
    monkeypatch.setenv("COLUMNS", "133")
    assert make_console().width == 133
    monkeypatch.setenv("COLUMNS", "40")
    show_on_stdout(TIMES)
    assert capsys.readouterr().out == to_text(TIMES, width=40)


def test_any_console_can_print_a_table(capsys):
    console = Console(width=60)
    console.print(TIMES)
    assert "1,234 us" in capsys.readouterr().out


def test_a_sweep_of_steps_says_which_and_what_a_unit_takes():
    def measure(step, values_ns=(4e6,) * 8, **values):
        cell = replace(make_cell("eager"), step=step, grad_mode="grad", **values)
        return make_measured(cell, values_ns=values_ns)

    def draw(*cells):
        return draw_sweep(SweepResults(cells=cells, machines={MACHINE.id: MACHINE})).tables[0]

    one, four = measure("train"), measure("train", batch=4, units=4)
    table = draw(one, four)
    assert table.title.endswith("step train")
    assert read_column(table, "latency") == ["4,000 us", "4,000 us"]
    assert read_column(table, "a sample") == ["4,000 us", "1,000 us"]
    assert "step" in draw(one, make_measured(make_cell("eager"))).columns
    assert "a unit" in draw(four, measure("decode", units=8)).columns
    assert "a sample" not in draw(one).columns
    doubtful = draw(one, measure("train", (1.0, 3.0), batch=4, units=4))
    assert read_column(doubtful, "a sample") == ["4,000 us", "-"]
