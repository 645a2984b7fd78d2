"""Verdicts: what is over its budget, by how much and where."""

from dataclasses import replace

import pytest

from ftax.budgets.baselines import make_baseline
from ftax.budgets.budget_file import Budget, make_budget
from ftax.budgets.counts import Counts, Fact, Tally
from ftax.budgets.held import hold

NONE = Budget()
SETTING = {"torch": "2.13.0", "device": "cpu", "python": "3.11", "cpu": "AVX2", "threads": "1"}


def make_counts(operators=1, reads=0, **more):
    tallies = {
        "operators": Tally(
            facts=(
                Fact(
                    what="aten::add", count=operators, lines=("model.py:7", "model.py:9"),
                    where="at model.py in forward: x = x + 1",
                ),
            )
        ),
        "host_reads": Tally(
            facts=(Fact(what="aten::item", where="at stop.py in done", count=reads),) * bool(reads)
        ),
    }  # fmt: skip
    return Counts(tallies=tallies | more, setting=SETTING)


def judge(counts, budget=NONE, baseline=None):
    known = None if baseline is None else make_baseline(baseline)
    return {item.kind: item for item in hold("forward", counts, budget, known)}


def test_without_budget_and_baseline_there_is_no_verdict():
    assert judge(make_counts())["operators"].verdict == "no budget"


@pytest.mark.parametrize(
    ("number", "verdict"), [(0, "breach"), (1, "within"), (2, "within"), ("any", "no budget")]
)
def test_a_budget_is_the_most_there_may_be(number, verdict):
    assert (
        judge(make_counts(), make_budget({"operators": number}, ()))["operators"].verdict == verdict
    )


@pytest.mark.parametrize(("known", "verdict"), [(1, "breach"), (2, "within"), (3, "below")])
def test_a_baseline_is_what_there_was(known, verdict):
    assert judge(make_counts(2), baseline=make_counts(known))["operators"].verdict == verdict


def test_a_breach_names_what_is_new_and_where():
    held = judge(make_counts(3), baseline=make_counts(1))["operators"]
    assert held.describe() == "operator calls: expected at most 1 (baseline), got 3"
    assert [*held.list_places()] == ["at model.py:7, 9 in forward: +2 aten::add", "    x = x + 1"]


def test_what_moved_to_another_line_is_nothing_new():
    def make(*facts):
        tally = Tally(facts=tuple(Fact(what=what, where=where) for what, where in facts))
        return Counts(tallies={"operators": tally}, setting=SETTING)

    before = make(("aten::relu", "at a.py in f: x.relu()"))
    after = make(("aten::relu", "at a.py in f: x.relu() + 1"), ("aten::add", "at a.py in f: ..."))
    held = judge(after, baseline=before)["operators"]
    assert [fact.what for fact in held.new] == ["aten::add"]


def test_the_budget_goes_before_the_baseline():
    held = judge(make_counts(3), make_budget({"operators": 3}, ()), make_counts(1))["operators"]
    assert (held.verdict, held.most, held.source) == ("within", 3, "budget")


def test_what_is_allowed_does_not_count():
    budget = make_budget({"host_reads": 0}, ["stop.py"])
    assert judge(make_counts(reads=2), budget)["host_reads"].verdict == "within"
    allowed = make_budget({}, ["stop.py"])
    assert judge(make_counts(reads=2), allowed, make_counts(reads=5))["host_reads"].most == 0


def test_more_than_a_baseline_of_another_setting_cannot_be_told():
    other = replace(make_counts(1), setting={**SETTING, "torch": "2.12.1"})
    held = judge(make_counts(2), baseline=other)["operators"]
    assert held.verdict == "cannot tell"
    assert "the baseline is of torch 2.12.1, and this is 2.13.0" in held.problem
    patch = replace(make_counts(1), setting={**SETTING, "torch": "2.13.1"})
    assert judge(make_counts(2), baseline=patch)["operators"].verdict == "breach"


def test_threads_matter_to_allocations_alone():
    counts = make_counts(2, allocations=Tally(facts=(Fact(what="aten::add", count=2),)))
    before = make_counts(1, allocations=Tally(facts=(Fact(what="aten::add", count=1),)))
    found = judge(counts, baseline=replace(before, setting={**SETTING, "threads": "2"}))
    assert found["allocations"].verdict == "cannot tell"
    assert found["operators"].verdict == "breach"


def test_what_is_not_exact_is_not_told():
    unsure = Tally(facts=(Fact(what="aten::add"),), problem="1 and 2")
    counts = Counts(tallies={"operators": unsure}, setting=SETTING)
    for budget, verdict in ((NONE, "cannot tell"), (5, "cannot tell"), ("any", "no budget")):
        given = budget if budget is NONE else make_budget({"operators": budget}, ())
        assert judge(counts, given)["operators"].verdict == verdict


def test_what_is_not_counted_here_cannot_be_told():
    held = judge(make_counts(), make_budget({"kernels": 5}, ()))["kernels"]
    assert held.verdict == "cannot tell"
    assert held.describe() == "kernels: expected at most 5 (budget), and CUPTI saw no GPU in it"


@pytest.mark.parametrize(
    ("share", "most", "verdict"),
    [("0 %", 20, "breach"), ("10%", 22, "breach"), ("15 %", 23, "within"), ("any", None, None)],
)
def test_a_share_is_how_much_more_than_the_baseline_there_may_be(share, most, verdict):
    held = judge(make_counts(23), make_budget({"operators": share}, ()), make_counts(20))
    assert held["operators"].most == most
    assert held["operators"].verdict == (verdict or "no budget")
    if verdict == "breach":
        words = (
            f"operator calls: expected at most {most} (baseline + {share.rstrip(' %')} %), got 23"
        )
        assert held["operators"].describe() == words
        assert [fact.count for fact in held["operators"].new] == [3]


@pytest.mark.parametrize(("number", "verdict"), [(18, "within"), (17, "below")])
def test_what_is_less_by_no_more_than_the_share_is_within(number, verdict):
    held = judge(make_counts(number), make_budget({"operators": "10 %"}, ()), make_counts(20))
    assert held["operators"].verdict == verdict


def test_a_share_of_no_baseline_is_no_budget_yet():
    held = judge(make_counts(2), make_budget({"operators": "5 %"}, ()))["operators"]
    assert (held.verdict, held.source) == ("no budget", "")


@pytest.mark.parametrize(
    ("where", "verdict"),
    [("", "cannot tell"), ("in another thread", "cannot tell"), ("at model.py in step", "breach")],
)
def test_what_has_no_line_may_be_what_is_allowed(where, verdict):
    facts = (Fact(what="cudaStreamSynchronize", where=where),)
    counts = Counts(tallies={"synchronisations": Tally(facts=facts)}, setting={})
    for allow, wanted in ((["stop.py"], verdict), ([], "breach")):
        budget = make_budget({"synchronisations": 0}, allow)
        (held,) = hold("step", counts, budget, None)
        assert held.verdict == wanted
