"""Figures of bench/check.py: which runs are alike, and what counts as found."""

from types import SimpleNamespace

import check


def make_worker(runs, **planted):
    """``runs`` gave each total."""
    tries = [
        {"kind": kind, "verdict": verdict, "is_named": is_named}
        for kind in check._LINES
        for verdict, is_named in planted.get(kind, [("breach", True)])
    ]
    counts = [{"counts": {"tallies": total}, "runs": number} for total, number in runs.items()]
    return {"counts": {"bert": counts}, "planted": tries}


def list_values(figures):
    return {figure.name: figure.value for figure in figures}


def test_a_result_that_comes_again_is_kept_once(monkeypatch):
    given = iter([{"a": 1}, {"a": 2}, {"a": 1}])
    counted = lambda _: SimpleNamespace(to_dict=lambda: next(given))  # noqa: E731
    monkeypatch.setattr(check, "count_model", counted)
    assert check.count_repeatedly("bert", 3) == [
        {"counts": {"a": 1}, "runs": 2}, {"counts": {"a": 2}, "runs": 1}
    ]  # fmt: skip


def test_a_run_is_alike_if_its_counts_are_those_of_the_first():
    found = list_values(check.list_alike([make_worker({1: 2}), make_worker({1: 1, 2: 1})], 2))
    assert found == {"runs of a model": 4, "runs with the same counts": 0.75}


def test_what_is_planted_has_to_be_a_breach_that_names_its_line():
    tries = [("breach", True), ("breach", False), ("within", False), ("breach", True)]
    found = list_values(check.list_planted([make_worker({1: 1}, operators=tries)]))
    assert found["operators: planted"] == 4
    assert found["operators: caught, its line named"] == 0.5
    assert found["copies: caught, its line named"] == 1
