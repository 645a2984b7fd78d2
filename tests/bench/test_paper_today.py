"""The page about the paper today: its numbers are those that the script prints of the records."""

from __future__ import annotations

import re

import paper_today
import pytest
from paper_today import PAGE, SECTIONS, Records


@pytest.fixture(scope="module")
def sections():
    records = Records()
    return {name: make(records) for name, make in SECTIONS.items()}


def test_the_page_is_what_the_script_writes(sections):
    assert PAGE.page.read_text("utf-8") == PAGE.render(sections.values())


def test_every_section_names_its_command_and_its_pictures_are_there():
    text = PAGE.page.read_text("utf-8")
    commands = re.findall(r"`python bench/paper_today.py (\w+)`", text)
    assert commands == [name for name in SECTIONS if name != "setting"]
    pictures = re.findall(r"\]\((pictures/\S+)\)", text)
    assert len(pictures) == 5
    for name in pictures:
        assert (PAGE.page.parent / name).stat().st_size > 1000


def test_pictures_are_drawn_of_the_records(tmp_path):
    pytest.importorskip("matplotlib")
    paper_today.draw(Records(), tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {
        "framework-overhead-h200.svg", "today-frameworks.svg", "today-nested.svg",
        "today-torchscript.svg", "today-hosts.svg",
    }  # fmt: skip
    assert "TorchScript saves" in (tmp_path / "today-torchscript.svg").read_text()
