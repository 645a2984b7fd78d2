"""Figures of bench/check.py: which runs are alike, and what counts as found."""

from types import SimpleNamespace

import check

from ftax.steps.setting import Setting


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
    counted = lambda *_: SimpleNamespace(to_dict=lambda: next(given))  # noqa: E731
    monkeypatch.setattr(check, "count_model", counted)
    assert check.count_repeatedly("bert", 3, Setting()) == [
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


def make_counts(gpu, **totals):
    """Of one model on a GPU."""
    tallies = {kind: {"facts": [{"count": total}]} for kind, total in totals.items()}
    setting = {"torch": "2", "device": "cuda", "gpu": gpu}
    return {"bert": [{"counts": {"setting": setting, "tallies": tallies}, "runs": 1}]}


def test_counts_of_another_processor_are_compared(monkeypatch):
    counts = make_counts("H200", operators=7, host_reads=1, kernels=5)
    before = {"environment": {"gpu": {"name": "H200"}}, "raw": [{"counts": counts}]}
    empty = {"environment": {"gpu": {"name": "A100"}}, "raw": []}
    monkeypatch.setattr(check, "read_lines", lambda _: [empty, before])
    now = [{"counts": make_counts("H100", operators=7, host_reads=2, kernels=6)}]
    found = list_values(check.list_across(now, {"gpu": {"name": "H100"}}))
    assert found == {
        "counts as on H200": 0.5, "counts as on H200, of those that may differ": 0.0
    }  # fmt: skip
    assert not list(check.list_across(now, {"gpu": {"name": "H200"}}))
