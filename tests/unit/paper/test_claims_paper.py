"""Claims on the paper's own numbers, and the arithmetic that they are made of."""

from __future__ import annotations

import pytest

from ftax import InvalidArgumentError, ResultsError
from ftax.paper.claims import arithmetic as n
from ftax.paper.claims.arithmetic import LackingError, Missing
from ftax.paper.claims.claim import Lookup, PaperNumbers
from ftax.paper.claims.judge import read_paper
from ftax.paper.claims.testing import find_claim, list_claims

EVERY = list_claims()
GONE = Missing("b2 was not measured")


def test_there_are_80_claims_of_known_verdicts():
    verdicts = [read_paper(claim).verdict for claim in EVERY]
    counts = {verdict: verdicts.count(verdict) for verdict in set(verdicts)}
    assert counts == {"holds": 39, "partly": 30, "does not hold": 5, "no data": 6}
    assert len({claim.id for claim in EVERY}) == len(EVERY) == 80


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("S1-flops-growth", "growth_pct", (175.902,)),
        ("S1-macs-vs-latency", "mobilebert_over_bert", (3.67633,)),
        ("S3.2-share-falls", "share_pct",
         (82.4055, 80.121, 73.5986, 59.2969, 25.3383, 4.89292, 2.17096)),
        ("S4-flat-every-framework", "knee_b16_o", (2,)),
        ("S4-flat-seq", "ort_max_over_min_s1_4", (1.87386,)),
        ("S4.1-torchscript-other-gpus", "ts_cut_fp32",
         (13.0002, 63.5825, 50.537, 56.5883, 26.7902, 49.8847, 18.1423)),
        ("S4.1-avg-torchscript", "all_26", (30.8654,)),
        ("S4.1-avg-ort", "bert_resnet50_both_precisions", (70.9496,)),
        ("S4.1-nested-large", "cut_vs_eager_padded_b128", (80.56,)),
        ("S4.3-prominence-trend", "rho_tflops_knee_b16", (0.610786,)),
        ("S5-depth-proxy", "rho_calls_all", (0.77947,)),
        ("B-utilisation-rises", "warps", (0.9, 3.0, 9.2, 9.5, 20.3)),
        ("E-wavlm-input", "samples", (32000,)),
        ("X-repeat-3090", "spread_b1", (1.78466,)),
        ("S5-fnet", "cut_fp16", ()),
    ],
)  # fmt: skip
def test_numbers_of_the_paper_are_read_from_its_rows(name, value, expected):
    assert read_paper(find_claim(name)).values[value] == pytest.approx(expected, rel=1e-4)


def test_a_condition_on_several_gpus_has_to_be_met_on_each():
    found = read_paper(find_claim("S4.1-torchscript-other-gpus"))
    assert found.verdict == "partly"
    assert found.truths == (False, True)  # the A6000 is slower in half precision
    assert found.conditions == 13  # there is no such file of the 3090


def test_what_is_left_of_a_condition_holds_wherever_the_condition_does():
    left = 0
    for claim in EVERY:
        for check in read_paper(claim).checks:
            if check.left and check.truth is True:
                assert check.relation is True or bool(check.relation), (claim.id, check.about)
                left += 1
    assert left > 20


def test_a_number_means_one_row_or_none():
    numbers = PaperNumbers()
    wanted = Lookup("bert", "eager/python", "fp16", 1, None, "latency_ms", "Figure 4", "RTX-8000")
    assert numbers.read(wanted) == pytest.approx(10.541, abs=0.001)
    for other in (wanted._replace(batch=3), wanted._replace(source=""),
                  wanted._replace(model="fnet"), wanted._replace(column="kernels")):  # fmt: skip
        assert isinstance(numbers.read(other), Missing)
    padded = wanted._replace(source="2022_1014")
    assert isinstance(numbers.read(padded), Missing)


def test_two_rows_for_one_number_are_an_error(monkeypatch):
    from ftax.paper.claims import claim

    wanted = Lookup("bert", "eager/python", "fp16", 1, None, "latency_ms", "Figure 4", "RTX-8000")
    key = ("Figure 4", "bert", "pytorch-eager", "RTX-8000", 1)
    rows = claim._index_rows()[key]
    monkeypatch.setattr(claim, "_index_rows", lambda: {key: [*rows, *rows]})
    with pytest.raises(ResultsError, match="at most 1 may be"):
        PaperNumbers().read(wanted)


def test_an_unknown_claim_is_refused():
    with pytest.raises(InvalidArgumentError, match="no claim 'S9'; there are S1-macs-vs-latency"):
        find_claim("S9")


def test_what_is_computed_of_a_missing_number_is_missing():
    for value in (
        GONE + 1, 1 - GONE, 2 * GONE, GONE / 3, 1 / GONE, -GONE, abs(GONE), GONE < 1, GONE == GONE,
        n.most([1.0, GONE]), n.mean([1.0, GONE]), n.cut(1.0, GONE), n.spread(1.0, GONE),
        n.every([GONE > 1]), n.either([GONE > 1]), n.rising(1.0, GONE), n.within(GONE, 1, 2),
        n.knee([1.0, GONE]), n.plateau([1.0, GONE]), n.spearman([1.0, 2.0], [1.0, GONE]),
        n.past([1.0, 2.0, 3.0], [1.0, GONE, 3.0]), n.most(GONE),
    ):  # fmt: skip
        assert isinstance(value, Missing) and value.why == GONE.why
    with pytest.raises(LackingError, match="b2 was not measured"):
        bool(GONE > 1)


def test_a_missing_number_matters_only_to_what_looks_at_it():
    assert n.knee([1.0, 2.0, GONE]) == 1
    assert n.every([False, GONE]) is False
    assert n.either([True, GONE]) is True
    assert n.cuts([10.0, 2.0, 1.0], [4.0, GONE, 1.0])[::2] == [60.0, 0.0]


def test_numbers_without_a_value_say_so():
    for value in (n.spearman([1.0, 2.0], [1.0, 1.0]), n.most([]), n.mean([]), n.knee([])):
        assert value.why.startswith("it has no value for these numbers (")


@pytest.mark.parametrize(
    ("found", "value"),
    [
        (n.knee([1, 1.2, 1.3, 1.31, 1]), 4),
        (n.knee([2, 1, 1.2, 5]), 4),  # within 1.3 of the smallest so far, which falls
        (n.knee([1, 2]), 1),
        (n.knee([1, 1, 2], (3, 5, 7)), 5),
        (n.past(["a", "b", "c"], [1, 1, 2]), ["c"]),
        (n.plateau([3, 1, 1.2, 9]), 1.2),
        (n.spearman([1, 2, 3], [10, 20, 30]), 1.0),
        (n.spearman([1, 2, 3], [3, 2, 1]), -1.0),
        (n.spearman([1, 2, 2, 4], [1, 3, 2, 4]), 4.5 / (4.5 * 5) ** 0.5),  # ranks 0, 1.5, 1.5, 3
        (n.cut(10, 4), 60.0),
        (n.spread(3, 1.5, 2), 2.0),
        (n.ratios([3, 1], [1, 4]), [3, 0.25]),
        (n.rising(1, 2, 2), False),
        (n.falling_or_same(2, 2, 1), True),
        (n.within(1.04, 1, 0.05) and not n.within(1.06, 1, 0.05), True),
    ],
)
def test_arithmetic_by_hand(found, value):
    assert found == (pytest.approx(value) if isinstance(value, float) else value)


def test_the_last_size_of_a_plateau_is_past_by_none():
    assert n.past([1, 2], [1.0, 1.1]).why == (
        "the largest batch that was measured is still on the plateau"
    )
