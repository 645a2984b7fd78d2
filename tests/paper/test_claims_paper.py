"""Claims on the paper's own data: every stored number, outcome and verdict, computed again."""

from __future__ import annotations

import pytest

from ftax import InvalidArgumentError, ResultsError
from ftax.paper.claims.paper import Formulas, find_operand
from ftax.paper.claims.record import find_claim, list_claims
from ftax.paper.claims.scope import list_amendments

EVERY = list_claims()


def compile_claim(claim):
    expressions = [test.expression for test in claim.tests]
    return Formulas.compile(claim.operands, claim.compute, expressions)


def find_operands(claim):
    return {name: find_operand(selector).value for name, selector in claim.operands.items()}


@pytest.mark.parametrize("claim", EVERY, ids=[claim.id for claim in EVERY])
def test_stored_numbers_and_verdicts_are_computed_again(claim):
    found = compile_claim(claim).run(find_operands(claim))
    assert found.computed.keys() == claim.computed.keys()
    for name, value in claim.computed.items():
        assert found.computed[name] == pytest.approx(value, rel=1e-3, abs=1e-3), name
    assert found.tests == tuple(test.holds for test in claim.tests)
    verdicts = {(True,): "holds", (False,): "does not hold", (False, True): "partly"}
    assert verdicts.get(tuple(sorted(set(found.tests))), "no data") == claim.verdict


def test_there_are_80_claims_of_known_verdicts():
    verdicts = [claim.verdict for claim in EVERY]
    counts = {verdict: verdicts.count(verdict) for verdict in set(verdicts)}
    assert counts == {"holds": 39, "partly": 30, "does not hold": 5, "no data": 6}
    assert len({claim.id for claim in EVERY}) == len(EVERY) == 80


def test_a_changed_number_of_the_paper_is_noticed():
    claim = find_claim("S4.1-cudagraphs-small")
    scope = find_operands(claim)
    scope["g"] = [2 * latency for latency in scope["g"]]
    found = compile_claim(claim).run(scope)
    assert found.tests == (False,)
    assert found.computed["cut_b1"] != pytest.approx(claim.computed["cut_b1"], rel=1e-3)


def list_changes(field):
    """By claim, the conditions of which a field is another today: number -> its text."""
    found = {
        name: {index: change[field] for index, change in amended.changes.items() if field in change}
        for name, amended in list_amendments().items()
    }
    return {name: texts for name, texts in found.items() if texts}


RELATIONS, SUBSTITUTES = list_changes("relation"), list_changes("expression")


@pytest.mark.parametrize("name", RELATIONS)
def test_a_relation_without_its_size_holds_wherever_the_condition_does(name):
    claim = find_claim(name)
    operands = find_operands(claim)
    texts = RELATIONS[name]
    found = Formulas.compile(claim.operands, claim.compute, texts.values()).run(operands)
    for (index, text), holds in zip(texts.items(), found.tests, strict=True):
        assert isinstance(holds, bool)
        assert holds or not claim.tests[index].holds, text


@pytest.mark.parametrize("name", sorted(set(SUBSTITUTES) - {"S4.1-avg-ort"}))
def test_what_a_condition_says_today_the_papers_data_answer_as_they_did(name):
    """A batch past the paper's knee is one that the paper calls large, and so on."""
    claim = find_claim(name)
    operands = find_operands(claim)
    texts = SUBSTITUTES[name]
    found = Formulas.compile(claim.operands, claim.compute, texts.values()).run(operands)
    assert found.tests == tuple(claim.tests[index].holds for index in texts)


def test_a_selector_has_to_mean_one_row():
    figure = find_claim("S3.2-share-falls").operands["total"]["source"]
    with pytest.raises(ResultsError, match=r"7 rows of Figure 3 .* have \{\}"):
        find_operand({"source": figure})
    with pytest.raises(ResultsError, match="0 rows"):
        find_operand({"source": figure, "batch": 3})
    with pytest.raises(ResultsError, match="may vary one field"):
        find_operand({"source": figure, "batch": [1, 2], "model": ["bert"]})
    with pytest.raises(ResultsError, match="has no gmacs"):
        find_operand({"source": figure, "batch": 1, "col": "gmacs"})


def test_an_unknown_claim_is_refused():
    with pytest.raises(InvalidArgumentError, match="no claim 'S9'; there are S1-macs-vs-latency"):
        find_claim("S9")
