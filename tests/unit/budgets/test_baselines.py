"""Baselines as text: read back as they were written, and refused where they were changed."""

import pytest

from ftax.budgets.baselines import find_path, make_baseline, read_baseline, write_baseline
from ftax.budgets.counts import Counts, Fact, Tally
from ftax.errors import InvalidArgumentError, ResultsError

COUNTS = Counts(
    tallies={
        "operators": Tally(
            facts=(
                Fact(what="aten::relu", where="at model.py in forward: x = x.relu()", count=1),
                Fact(what="aten::linear", where="in layers.*", count=12, lines=("model.py:3",)),
            )
        ),
        "host_reads": Tally(),
        "python_calls": Tally(facts=(Fact(what="forward"),), problem="another number each time"),
    },
    setting={"torch": "2.13.0+cpu", "device": "cpu"},
)
TEXT = """\
# What one call of model:make does; written anew by --update, never by hand.
torch 2.13.0+cpu
device cpu

operators 13
  12 aten::linear in layers.*
  1 aten::relu at model.py in forward: x = x.relu()

host_reads 0
"""


def test_it_is_text_of_exact_counts_a_line_a_fact(tmp_path):
    path = tmp_path / "folder" / "forward.txt"
    write_baseline(path, make_baseline(COUNTS), "model:make")
    assert path.read_text() == TEXT
    assert read_baseline(path) == make_baseline(COUNTS)


def test_there_may_be_none(tmp_path):
    assert read_baseline(tmp_path / "forward.txt") is None


@pytest.mark.parametrize(
    ("old", "new"),
    [("12 aten", "13 aten"), ("operators 13", "operator 13"), ("  1 aten", "  aten"), ("13", "x")],
)
def test_a_changed_one_is_refused(tmp_path, old, new):
    path = tmp_path / "forward.txt"
    path.write_text(TEXT.replace(old, new))
    with pytest.raises(ResultsError, match=r"forward.txt is no baseline.*--update"):
        read_baseline(path)


@pytest.mark.parametrize("name", ["", ".", "../up", "a b", "a/b"])
def test_a_step_needs_a_name_that_can_be_a_file(tmp_path, name):
    with pytest.raises(InvalidArgumentError, match="a step is called"):
        find_path(tmp_path, name)
