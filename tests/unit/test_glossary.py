"""The glossary: short, in alphabetical order, and of words that readers meet."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GLOSSARY = ROOT / "docs" / "glossary.md"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
ENTRIES = dict(re.findall(r"^- \*\*(.+?)\*\*: (.+)$", GLOSSARY.read_text("utf-8"), re.MULTILINE))
MOST = 50
RETIRED = {  # what we no longer write, and what we write
    "crews?": "workers of a site",
    "culprit": "cause",
    "lanes?": "worker",
    "second opinion": "independent check",
    "strikes?": "remove what is done",
    "traps?": "fault",
    "yardstick": "reference",
}


def count_pages(pattern: str, pages: list[Path]) -> int:
    """How many pages have the words, in any case and over the end of a line."""
    words = re.compile(rf"\b(?:{pattern})\b".replace(" ", r"\s+"), re.IGNORECASE)
    return sum(bool(words.search(page.read_text("utf-8"))) for page in pages)


def test_entries_are_few_and_in_order() -> None:
    assert 30 <= len(ENTRIES) <= MOST
    assert [*ENTRIES] == sorted(ENTRIES, key=str.lower)
    for word, meaning in ENTRIES.items():
        assert meaning.count(". ") == 0 and meaning.endswith("."), f"{word}: one sentence"


@pytest.mark.parametrize("word", ENTRIES)
def test_an_entry_is_a_word_of_the_documentation(word: str) -> None:
    others = [page for page in PAGES if page != GLOSSARY]
    assert count_pages(rf"{re.escape(word)}(?:s|d|es)?".replace(r"\ ", " "), others)


@pytest.mark.parametrize("word", RETIRED)
def test_a_retired_word_is_nowhere(word: str) -> None:
    assert not count_pages(word, PAGES), f"write: {RETIRED[word]}"
