"""The page about the paper today: its numbers are those that the script prints of the records."""

from __future__ import annotations

import re

import paper_today
import pytest
from paper_today import PAGE, SECTIONS, Records, Section, fill, render


@pytest.fixture(scope="module")
def sections():
    records = Records()
    return {name: make(records) for name, make in SECTIONS.items()}


def test_the_page_is_what_the_script_writes(sections):
    assert PAGE.read_text("utf-8") == render(sections.values())


def test_it_names_its_sections_and_its_pictures_are_there():
    text = PAGE.read_text("utf-8")
    (names,) = re.findall(r"one\nsection: ([\w, ]+)\.", text)
    assert names.split(", ") == [name for name in SECTIONS if name != "setting"]
    pictures = re.findall(r"\]\((pictures/\S+)\)", text)
    assert len(pictures) == 5
    for name in pictures:
        assert (PAGE.parent / name).stat().st_size > 1000


def test_pictures_are_drawn_of_the_records(tmp_path):
    pytest.importorskip("matplotlib")
    paper_today.draw(Records(), tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {
        "framework-overhead-h200.svg", "today-frameworks.svg", "today-nested.svg",
        "today-torchscript.svg", "today-hosts.svg",
    }  # fmt: skip
    assert "TorchScript saves" in (tmp_path / "today-torchscript.svg").read_text()


def test_numbers_and_names_have_to_match():
    assert fill("a {b}", [Section(numbers={"b": "1"})]) == "a 1"
    with pytest.raises(ValueError, match=r"paper_today\.md has no c: use or drop them"):
        fill("a {b}", [Section(numbers={"b": "1", "c": "2"})])
    with pytest.raises(ValueError, match=r"paper_today\.md has the unknown 'b'"):
        fill("a {b}", [])


def test_a_sentence_that_turned_is_refused():
    turned = Section(numbers={"b": "1"}, holds={"b is large": False, "b is odd": True})
    with pytest.raises(ValueError, match=r"no longer so: b is large: rewrite paper_today\.md"):
        fill("a {b}", [turned])
