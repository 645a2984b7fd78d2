"""Words: every condition says something by itself, and a verdict's sentence says no more."""

from __future__ import annotations

import re

from ftax.paper.claims.claim_verdict import TestVerdict
from ftax.paper.claims.judge import describe_verdict, read_paper
from ftax.paper.claims.testing import list_claims
from support.claim_results import GRAPHS, judge_one, make_graph_results, make_series


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
