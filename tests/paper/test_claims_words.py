"""Words: every condition says something by itself, and a verdict's sentence says no more."""

from __future__ import annotations

import re

import pytest

from ftax.paper.claims.record import TestVerdict, list_claims
from ftax.paper.claims.today import make_plan
from ftax.paper.claims.words import describe_verdict, leave_gpu, word_condition
from support.claim_results import GRAPHS, judge_one, make_graph_results, make_series

PLANS = [plan for plan in map(make_plan, list_claims()) if not plan.reason]


def make_test(about, today, left=""):
    return TestVerdict(expression="x>1", about=about, paper=True, today=today, left=left)


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.claim.id)
def test_conditions_speak_in_words(plan):
    for test in plan.tests:
        if not (plan.needs_named_gpus or plan.gpus):
            bare = re.search(r"\b([rbeto](16|32)?(_[eto])?|ts|ort)\b(?!=)", test.about)
            assert bare is None, test.about
            assert len(test.about.split()) > 1
        assert bool(test.left) == bool(test.relation)
        assert test.left != test.about


@pytest.mark.parametrize(
    ("claim", "about", "words"),
    [
        ("S4-flat-every-framework", "r32_e still flat at b=2", "ResNet-50 fp32 eager still flat"),
        ("S4.2.3-efficient-faster-large", "squeeze t16", "b=128: SqueezeBERT TorchScript fp16"),
        ("D-low-flop-more-bound", "squeeze fp16", "leaves the plateau after ResNet-50: SqueezeNet"),
        ("S4.1-faster-at-b1", "ORT < TorchScript < eager for bert fp16", "eager for BERT fp16"),
        ("S4.2.1-depth-both-regimes", "e16_128 rises with depth", "eager fp16 b=128 rises"),
        ("S4.2.3-efficient-slower-small", "RTX-8000 e16", "slower than BERT: eager fp16"),
    ],
)
def test_codes_of_the_file_become_words(claim, about, words):
    assert words in word_condition(claim, about)


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


@pytest.mark.parametrize(
    ("about", "words"),
    [
        ("flat up to batch 2: r32_g1080", "flat up to batch 2: ResNet-50 fp32"),
        ("flat up to batch 2: b16_rtx8000", "flat up to batch 2: BERT fp16"),
        ("TorchScript beats eager for BERT at b=1: A6000_fp16",
         "TorchScript beats eager for BERT at b=1: fp16"),
        ("Funnel is slower than BERT at large batch: a6000",
         "Funnel is slower than BERT at large batch"),
        ("plateau on the 3090", "plateau on the 3090"),
    ],
)  # fmt: skip
def test_what_is_said_of_one_gpu_can_be_said_of_another(about, words):
    assert leave_gpu(about) == words
