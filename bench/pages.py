"""Pages of docs/ whose numbers come from the committed records.

The surprising choice: such a page is written by a script from a template beside it, in which
numbers have names, and a sentence that says which of two numbers is larger is checked first. After
a new measurement the page either follows it or is refused.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from record import RESULTS, show

DOCS = Path(__file__).parents[1] / "docs"
Records = TypeVar("Records")
_WIDEST = 60  # of what is printed of a number; the page has all of it


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """What one section of a page says.

    Attributes:
        numbers: by the names that the template has, as they are printed.
        holds: what its sentences take for granted, each with whether it is so.
    """

    numbers: Mapping[str, str]
    holds: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageOfRecords(Generic[Records]):
    """A page, its template, and what fills it.

    Attributes:
        script: the file of the script that writes the page; the template has its name and ``.md``.
        page: where it is written.
        sections: by the names that the command takes.
        load: the records of a folder.
        draw: writes the pictures of the page.
    """

    script: str
    page: Path
    sections: Mapping[str, Callable[[Records], Section]]
    load: Callable[[Path], Records]
    draw: Callable[[Records], None] = lambda records: None

    @property
    def template(self) -> Path:
        """Beside the script."""
        return Path(self.script).with_suffix(".md")

    def render(self, sections: Iterable[Section]) -> str:
        """The text of the page. Raises ValueError as `fill` does."""
        return fill(self.template.read_text("utf-8"), sections, name=self.template.name)

    def run(self, doc: str | None) -> None:
        """The script: print the numbers, or write the page."""
        options = self._parse(doc)
        records = self.load(options.results)
        chosen = options.sections or self.sections
        found = {name: self.sections[name](records) for name in chosen}
        for name, section in found.items():
            first = {
                number: text.partition("\n")[0][:_WIDEST]
                for number, text in section.numbers.items()
            }
            show(name, ("number", "value"), list(first.items()))
            for words, holds in section.holds.items():
                print(f"{'yes' if holds else 'NO '}  {words}")
        if options.write:
            try:
                text = self.render(found.values())
            except ValueError as error:
                sys.exit(f"{Path(self.script).stem}: {error}")
            self.draw(records)
            self.page.write_text(text, "utf-8")

    def _parse(self, doc: str | None) -> argparse.Namespace:
        names = list(self.sections)
        parser = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
        parser.add_argument("sections", nargs="*", metavar="section",
                            help=f"{', '.join(names)}; all if left out")  # fmt: skip
        parser.add_argument("--write", action="store_true", help="write the page and its pictures")
        parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the records")
        options = parser.parse_args()
        if unknown := [name for name in options.sections if name not in names]:
            parser.error(f"there is no section {unknown[0]!r}: give {', '.join(names)}")
        return options


def fill(template: str, sections: Iterable[Section], *, name: str) -> str:
    """The template with its numbers. Raises ValueError for a sentence that is no longer so, and for
    a number that the template has and no section, or the other way round."""
    numbers: dict[str, str] = {}
    for section in sections:
        turned = [words for words, holds in section.holds.items() if not holds]
        if turned:
            raise ValueError(f"no longer so: {'; '.join(turned)}: rewrite {name}")
        numbers |= section.numbers
    unused = [number for number in numbers if f"{{{number}}}" not in template]
    if unused:
        raise ValueError(f"{name} has no {', '.join(unused)}: use or drop them")
    try:
        return template.format_map(numbers)
    except KeyError as error:
        raise ValueError(f"{name} has the unknown {error}") from error
