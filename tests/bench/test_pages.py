"""Pages whose numbers come from records: names match, and a sentence that turned is refused."""

from __future__ import annotations

import re
import sys

import pytest
from pages import PageOfRecords, Section, fill


def test_numbers_and_names_have_to_match():
    assert fill("a {b}", [Section(numbers={"b": "1"})], name="t.md") == "a 1"
    with pytest.raises(ValueError, match=re.escape("t.md has no c: use or drop them")):
        fill("a {b}", [Section(numbers={"b": "1", "c": "2"})], name="t.md")
    with pytest.raises(ValueError, match=re.escape("t.md has the unknown 'b'")):
        fill("a {b}", [], name="t.md")


def test_a_sentence_that_turned_is_refused():
    turned = Section(numbers={"b": "1"}, holds={"b is large": False, "b is odd": True})
    with pytest.raises(ValueError, match=re.escape("no longer so: b is large: rewrite t.md")):
        fill("a {b}", [turned], name="t.md")


@pytest.fixture
def page(tmp_path):
    (tmp_path / "script.md").write_text("one is {one}\n")
    return PageOfRecords(
        script=str(tmp_path / "script.py"),
        page=tmp_path / "page.md",
        sections={
            "right": lambda folder: Section(numbers={"one": folder.name}, holds={"so": True}),
            "wrong": lambda folder: Section(numbers={}, holds={"so": False}),
        },
        load=lambda folder: folder,
    )


def run(page, monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["script.py", *arguments])
    page.run("What it does.\n\nMore.")


def test_a_section_is_printed_and_nothing_is_written_unless_asked_for(page, monkeypatch, capsys):
    run(page, monkeypatch, "right", "--results", "folder")
    said = capsys.readouterr().out
    assert "folder" in said
    assert "yes  so" in said
    assert not page.page.exists()
    run(page, monkeypatch, "right", "--results", "folder", "--write")
    assert page.page.read_text() == "one is folder\n"


def test_a_page_with_a_wrong_sentence_is_not_written(page, monkeypatch):
    with pytest.raises(SystemExit, match="script: no longer so: so"):
        run(page, monkeypatch, "right", "wrong", "--write")
    assert not page.page.exists()
