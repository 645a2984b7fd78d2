"""Text of any origin reaches a terminal as text: no markup, nothing that commands it."""

import csv
import io

import pytest
from rich.console import Console, Group
from rich.text import Text

from ftax.reports.table import Rows
from ftax.reports.terminal import clean, clean_line, make_bar, make_console, say, to_text

HOSTILE = "[bold]x[/bold] [/red] \x1b[2J\r\x07\x9b1m \u202egpj.exe \udc80 \x00"
SHOWN = r"[bold]x[/bold] [/red] \x1b[2J\r\x07\x9b1m \u202egpj.exe \udc80 \x00"


def make_rows(text):
    return Rows(title=text, columns=("name", text), numeric=(text,), rows=((text, text),))


def test_what_is_not_printable_is_written_as_python_writes_it():
    assert clean(HOSTILE) == SHOWN
    assert clean("two\nlines\tand µs, 日本, \xa0 stay") == "two\nlines\tand µs, 日本, \xa0 stay"
    assert clean_line("one\nline\tonly") == r"one\nline\tonly"
    assert clean(SHOWN) == SHOWN


def test_a_table_of_hostile_text_is_shown_whole_on_any_console():
    assert to_text(make_rows(HOSTILE), width=400).count(SHOWN) == 4
    foreign = Console(width=400, file=io.StringIO(), force_terminal=True)
    foreign.print(make_rows("[/red] \x1b[2J"))
    assert foreign.file.getvalue().count(r"[/red] \x1b[2J") == 4


@pytest.mark.parametrize("renderable", [HOSTILE, Text(HOSTILE), Group(HOSTILE, Text(HOSTILE))])
def test_nothing_passes_our_console_even_if_it_was_made_elsewhere(renderable, capsys):
    make_console(width=400).print(renderable)
    shown = capsys.readouterr().out
    assert r"\x1b[2J" in shown and "[bold]x[/bold] [/red]" in shown
    assert not set("\x1b\x9b\x00\u202e\udc80") & set(shown)


def test_columns_stay_below_each_other_whatever_is_in_a_cell():
    rows = Rows(
        title="t",
        columns=("name", "time"),
        numeric=("time",),
        rows=(("a\x1b\x1b", "1"), ("b", "2")),
    )
    lines = [line for line in to_text(rows).splitlines() if line.strip()[-1:] in ("1", "2")]
    assert len({line.rstrip().rindex(line.strip()[-1]) for line in lines}) == 1


def test_a_bar_shows_the_name_of_a_model_and_moves_no_cursor_for_it():
    console = make_console(stderr=True, width=200)
    console.file = io.StringIO()
    bar = make_bar(console)
    bar.add_task("[/red]\x1b[2J", total=1, left="at most 3 s left")
    console.print(bar.get_renderable())
    assert "[/red]" in console.file.getvalue() and "\x1b" not in console.file.getvalue()


def test_say_neither_reads_markup_nor_breaks_on_what_cannot_be_encoded(capsys):
    say(HOSTILE)
    say(HOSTILE, error=False)
    assert capsys.readouterr() == (f"{SHOWN}\n", f"{SHOWN}\n")


def test_markdown_has_a_row_a_line_and_csv_gives_every_cell_back():
    rows = Rows(title="t\nu", columns=("a", "b"), numeric=(), rows=(("x\ny|z", '"q",\x1b\n'),))
    assert rows.to_markdown().splitlines()[-1] == r'| x y\|z | "q",\x1b  |'
    assert rows.to_markdown().startswith("**t\\nu**\n")
    assert list(csv.reader(io.StringIO(rows.to_csv())))[1] == ["x\ny|z", '"q",\\x1b\n']


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("=HYPERLINK(1)", "'=HYPERLINK(1)"),
        (" @SUM(1)", "' @SUM(1)"),
        ("-2+3+cmd|' /C calc'!A0", "'-2+3+cmd|' /C calc'!A0"),
        ("= eager, host python", "= eager, host python"),
        ("-", "-"),
        ("torch.nn (x)", "torch.nn (x)"),
    ],
)
def test_a_name_that_a_spreadsheet_would_run_is_text_in_csv(text, written):
    rows = Rows(title="", columns=("name", "n"), numeric=("n",), rows=((text, "-1.0 us (no)"),))
    assert list(csv.reader(io.StringIO(rows.to_csv())))[1] == [written, "-1.0 us (no)"]


@pytest.mark.parametrize("columns", ["0", "1", "-5", "abc", "", " ", "\u00b2", "9" * 5000])
def test_a_width_that_no_terminal_has_is_as_good_as_none(columns, monkeypatch):
    """COLUMNS=0 printed nothing, COLUMNS=1 a letter a line, and a superscript raised."""
    rows = Rows(title="t", columns=("a", "b"), numeric=("b",), rows=(("x " * 60, "1"),))
    monkeypatch.delenv("COLUMNS", raising=False)
    wanted = to_text(rows)
    assert max(map(len, wanted.splitlines())) > 60
    monkeypatch.setenv("COLUMNS", columns)
    assert to_text(rows) == wanted
