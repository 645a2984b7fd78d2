"""The bench of `ftax compare`: what its sources have in common, and what it counts."""

import ast
import random

from compare_validity import KINDS, make_figures, summarise, write_source


def read_shape(path):
    """The kinds of all nodes of a source, without names and comments."""
    return [type(node).__name__ for node in ast.walk(ast.parse(path.read_text()))]


def test_the_same_work_is_written_with_other_names_and_comments(tmp_path):
    draw = random.Random(0)
    old, new, more = (tmp_path / name for name in ("old.py", "new.py", "more.py"))
    for path, count in ((old, 20), (new, 20), (more, 21)):
        write_source(path, (64, 1), count, draw)
    assert old.read_text() != new.read_text()
    assert read_shape(old) == read_shape(new) == read_shape(more)
    assert "range(20)" in new.read_text() and "range(21)" in more.read_text()


def test_the_bars_are_shares_of_what_was_run():
    def item(kind, verdict, code=0, seconds=20.0):
        return {"kind": kind, "verdict": verdict, "exit_code": code, "seconds": seconds}

    done = [
        *[item("same", "equal")] * 97, *[item("same", "faster")] * 3,
        *[item("slow", "slower")] * 89, *[item("slow", "cannot-tell", seconds=61.0)] * 11,
        *[item("layers", "slower", 1)] * 19, item("layers", "slower"),
    ]  # fmt: skip
    summary = summarise(done)
    assert set(summary) == set(KINDS)
    figures = {figure.name: (figure.value, figure.met) for figure in make_figures(summary)}
    assert figures == {
        "same called different": (3.0, True),
        "5 % more work called slower": (89.0, False),
        "5 % more work called faster": (0.0, True),
        "5 layers, not 4, fail the gate": (95.0, False),
        "median run": (20.0, True),
    }
    assert set(summarise(done[:1])) == {"same"}
