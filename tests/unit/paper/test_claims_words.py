"""Words: every condition says something by itself, and a verdict's sentence and its row in a table
say no more."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace

import pytest

from ftax.paper.claims import testing as claims
from ftax.paper.claims.claim_verdict import TestVerdict
from ftax.paper.claims.judge import describe_verdict, read_paper
from ftax.paper.claims.testing import find_claim, list_claims
from ftax.paper.claims.verdict_tables import (
    describe_numbers,
    describe_reason,
    explain_outcome,
    format_number,
    make_claims_table,
)
from support.claim_results import GRAPHS, judge_one, make_graph_results, make_results, make_series


def make_test(about, today, left=""):
    return TestVerdict(about=about, paper=True, today=today, left=left)


def test_conditions_speak_in_words():
    for claim in list_claims():
        for check in read_paper(claim).checks:
            bare = re.search(r"\b([rbeto](16|32)?(_[eto])?|ts|ort)\b(?!=)", check.about)
            assert bare is None, check.about
            assert len(check.about.split()) > 1
            assert bool(check.left) == (check.relation is not None)
            assert check.left != check.about


def test_what_a_condition_lost_is_not_said_to_hold():
    tests = (
        make_test("over 70 % at batch 128", "another size", "faster at batch 128"),
        make_test("past the knee it is faster", "holds"),
        make_test("it is free", "does not hold"),
        make_test("it is flat", "not resolved"),
        make_test("it is small", "not tested"),
    )
    assert describe_verdict("changed", "", tests, "H200") == (
        "On H200: past the knee it is faster. Not so: over 70 % at batch 128; it is free. In "
        "another size: faster at batch 128. Open: it is flat. Not tested: it is small."
    )


def test_what_conditions_share_is_said_once():
    tests = [make_test(f"BERT is flat: {what}", "holds") for what in ("eager", "TorchScript")]
    tests.append(make_test("BERT is flat: ONNX Runtime", "does not hold"))
    assert describe_verdict("changed", "", tests, "H200") == (
        "On H200, BERT is flat: eager; TorchScript. Not so: ONNX Runtime."
    )


def test_many_conditions_are_counted():
    tests = [make_test(f"case {number}", "holds") for number in range(6)]
    sentence = describe_verdict("holds", "", tests, "H200")
    assert sentence == "On H200: case 0; case 1; case 2; case 3; and 2 more."


def test_each_alone_and_not_all_together_is_open():
    tests = [make_test("one", "holds"), make_test("other", "holds")]
    sentence = describe_verdict("not resolved", "of the resamples: holds in 91%", tests, "H200")
    assert sentence.endswith("Open is whether all of that is so at once (of the resamples: holds "
                             "in 91%).")  # fmt: skip


def test_a_verdict_has_the_sentence_of_its_conditions():
    verdict = judge_one(GRAPHS, make_graph_results(20.0))
    assert verdict.sentence == (
        "On NVIDIA H200: not so: CUDA graphs cut at least 40 % for b=1..8. In another size: CUDA "
        "graphs gain at batches 1 to 8."
    )
    missing = judge_one(GRAPHS, make_series(lambda _: 1.0))
    assert missing.sentence == f"Not tested: {missing.reason}."


NAMES = ("S4.1-cudagraphs-small", "S5-table1-other-cells", "S3.2-share-falls")


@pytest.fixture(scope="module")
def verdicts():
    cells = [
        *make_series(lambda b: 10.0 + b, kernel_ms=lambda b: 1.0 + b),
        *make_series(lambda b: 4.0 + b / 2, framework="cuda-graph/python"),
    ]
    chosen = [find_claim(name) for name in NAMES]
    return claims.test_claims(make_results(cells), claims=chosen, resamples=200)


def test_a_row_a_claim(verdicts):
    rows = list(csv.DictReader(io.StringIO(make_claims_table(verdicts).to_csv())))
    assert [row["claim"] for row in rows] == list(NAMES)
    first, own, _ = rows
    assert (first["paper's data"], first["today"], first["conditions"]) == (
        "holds", "holds", "1 of 1",
    )  # fmt: skip
    assert first["paper -> today"].startswith("cut_b1 73.34 -> 59.09 [")
    assert first["in a sentence"] == "On NVIDIA H200: CUDA graphs cut at least 40 % for b=1..8."
    assert first["why"] == "-"
    assert (own["today"], own["machine"], own["conditions"]) == ("cannot be tested here", "-", "-")
    assert own["why"].startswith("it compares numbers of the paper")


def test_what_does_not_hold_says_which_condition(verdicts):
    verdict = replace(verdicts[2], today="changed", reason="", notes=("a note",))
    first, second = verdict.tests
    tests = (replace(first, today="does not hold"), replace(second, today="another size"))
    verdict = replace(verdict, tests=tests, sentence="On it: not so: this.")
    assert explain_outcome(verdict) == verdict.sentence
    assert describe_reason(verdict) == "On it: not so: this.; a note"
    assert explain_outcome(replace(verdict, today="holds")) == ""
    assert explain_outcome(replace(verdict, today="not resolved", reason="open")) == "open"


def test_a_number_without_a_value_says_none():
    cells = make_series(lambda _: 1.0)
    (verdict,) = claims.test_claims(
        make_results(cells), claims=[find_claim(NAMES[0])], resamples=200
    )
    assert "cut_b1 73.34 -> none; " in describe_numbers(verdict)


@pytest.mark.parametrize(
    ("number", "text"), [(73.3422, "73.34"), (0.00012, "0.00012"), (32000.0, "32000"), (8.0, "8")]
)
def test_numbers_are_short(number, text):
    assert format_number(number) == text
