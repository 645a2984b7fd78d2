"""Receipts on pages: each block is what its record prints, and a wrong comment is refused."""

from __future__ import annotations

import pytest
import shown
from shown import CHANGES, PAGES, PARTS, update

from ftax import Receipt
from support.records import make_measurement


@pytest.fixture
def results(tmp_path, monkeypatch):
    receipt = Receipt(
        rungs=(
            make_measurement([1000] * 30),
            make_measurement([600] * 30, runtime="flat"),
            make_measurement([400] * 30, host="cpp"),
        )
    )
    receipt.save(tmp_path / "r.jsonl")
    make_measurement([1000] * 30).save(tmp_path / "r.jsonl")
    monkeypatch.setattr(shown, "RESULTS", tmp_path)
    return receipt


def make_page(what, text="old\n"):
    return f"# Title\n\n<!-- shown: {what} -->\n```\n{text}```\nAfter.\n"


def test_every_block_of_every_page_is_what_its_record_prints():
    assert any("<!-- shown: " in page.read_text("utf-8") for page in PAGES)
    for page in PAGES:
        text = page.read_text("utf-8")
        assert update(text) == text, f"{page.name}: run python bench/shown.py --write"


def test_a_block_is_replaced_and_nothing_else(results):
    page = update(make_page("r.jsonl 1 80 lines"))
    assert page.startswith("# Title\n\n<!-- shown: r.jsonl 1 80 lines -->\n```\nReceipt: ")
    assert page.endswith("```\nAfter.\n")
    assert "\n= eager, called from Python" in page
    assert max(map(len, page.splitlines())) <= 80
    assert update(page) == page


def test_parts_come_in_the_order_in_which_they_are_named(results):
    page = update(make_page("r.jsonl 1 100 advice lines"))
    assert page.index(results.recommendation[:20]) < page.index("Receipt: ")
    assert [part for part in PARTS if update(make_page(f"r.jsonl 1 100 {part}"))] == [*PARTS]


def test_two_lines_are_compared(results):
    results.save(shown.RESULTS / "r.jsonl")
    page = update(make_page("r.jsonl 1:3 80 lines largest"))
    assert "after against before, line by line" in page and "= eager/python" in page
    assert [part for part in CHANGES if update(make_page(f"r.jsonl 1:3 80 {part}"))] == [*CHANGES]


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("r.jsonl 2 80 lines", "write FILE LINE WIDTH"),
        ("r.jsonl 3 80 lines", "line 3 of r.jsonl is no result"),
        ("r.jsonl 1 80 everything", "'everything'"),
        ("r.jsonl 1 wide lines", "'wide'"),
        ("r.jsonl", "write FILE LINE WIDTH"),
        ("r.jsonl 1:1:1 80 lines", "write FILE LINE WIDTH"),
    ],
)
def test_a_comment_that_names_nothing_is_refused(results, what, words):
    with pytest.raises(ValueError, match=words):
        update(make_page(what))
