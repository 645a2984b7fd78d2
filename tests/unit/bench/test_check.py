"""Figures of bench/check.py: which runs are alike, and what counts as found."""

import check


def make_worker(*totals, **planted):
    tries = [
        {"kind": kind, "verdict": verdict, "is_named": is_named}
        for kind in check._LINES
        for verdict, is_named in planted.get(kind, [("breach", True)])
    ]
    return {"counts": {"bert": [{"tallies": total} for total in totals]}, "planted": tries}


def list_values(figures):
    return {figure.name: figure.value for figure in figures}


def test_a_run_is_alike_if_its_counts_are_those_of_the_first():
    found = list_values(check.list_alike([make_worker(1, 1), make_worker(1, 2)], repeats=2))
    assert found == {"runs of a model": 4, "runs with the same counts": 0.75}


def test_what_is_planted_has_to_be_a_breach_that_names_its_line():
    tries = [("breach", True), ("breach", False), ("within", False), ("breach", True)]
    found = list_values(check.list_planted([make_worker(1, operators=tries)]))
    assert found["operators: planted"] == 4
    assert found["operators: caught, its line named"] == 0.5
    assert found["copies: caught, its line named"] == 1
