"""Tables of verdicts: the paper beside today, reasons, and nothing that is not in the verdict."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

import pytest

from ftax.paper.claims import testing as claims
from ftax.paper.claims.testing import find_claim
from ftax.paper.claims.verdict_tables import (
    describe_numbers,
    describe_reason,
    explain_outcome,
    format_number,
    make_claims_table,
)
from support.claim_results import make_results, make_series

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
