"""Receipts that pages show: printed from their records, so that a page cannot show another one.

A page names the record in a comment above the block, `<!-- shown: FILE LINE WIDTH PART ... -->`:
the file is one of bench/results, the line counts from 1, and the parts are those of `PARTS`. Two
lines, 1:2, are compared, and the parts are those of `CHANGES`. People write these pages; the script
replaces the blocks alone.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from pages import DOCS
from rich.console import RenderableType

from ftax import Comparison, Receipt, compare
from ftax.records.store import read_records
from ftax.reports.tables.comparison_table import (
    describe_largest,
    draw_comparisons,
    make_change_table,
    make_line_change_table,
)
from ftax.reports.tables.receipt_table import draw_receipt, make_line_table
from ftax.reports.tables.runtime_table import make_runtime_tables
from ftax.reports.terminal import plain, to_text
from record import RESULTS

_ROOT = DOCS.parent
PAGES = (_ROOT / "README.md", *sorted(DOCS.rglob("*.md")))
PARTS: Mapping[str, Callable[[Receipt], RenderableType]] = {
    "lines": lambda receipt: make_line_table(receipt),
    "runtimes": lambda receipt: make_runtime_tables(receipt)[0],
    "advice": lambda receipt: plain(receipt.recommendation),
    "adoption": lambda receipt: plain(receipt.adoption),
    "all": draw_receipt,
    "screen": lambda receipt: receipt.draw(more="ftax show --all"),
}
CHANGES: Mapping[str, Callable[[Comparison], RenderableType]] = {
    "lines": make_line_change_table,
    "runtimes": lambda comparison: make_change_table([comparison]),
    "largest": lambda comparison: plain(describe_largest(comparison)),
    "all": draw_comparisons,
}
_BLOCK = re.compile(r"<!-- shown: (?P<what>[^>]*?) -->\n```\n(?P<text>.*?)```\n", re.DOTALL)


def show_receipt(receipt: Receipt, width: int, *parts: str) -> str:
    """What a terminal of so many columns has, an empty line between the parts."""
    return "\n".join(to_text(PARTS[part](receipt), width=width) for part in parts)


def show_change(a: Receipt, b: Receipt, width: int, *parts: str) -> str:
    """What a terminal of so many columns has of b against a."""
    change = compare(a, b, names=("before", "after"))
    return "\n".join(to_text(CHANGES[part](change), width=width) for part in parts)


def read_receipt(file: str, line: int) -> Receipt:
    """The receipt on a line of a file of bench/results. Raises ValueError if there is none."""
    found = read_records(RESULTS / file)
    receipts = dict(zip(found.lines, found.records, strict=True))
    receipt = receipts.get(line)
    if not isinstance(receipt, Receipt):
        raise ValueError(f"line {line} of {file} is no receipt")
    return receipt


def update(text: str) -> str:
    """The page with its blocks as their records are. Raises ValueError for a comment that names no
    receipt, no width, or a part that there is not."""

    def replace(match: re.Match[str]) -> str:
        try:
            file, line, width, *parts = match["what"].split()
            receipts = [read_receipt(file, int(number)) for number in line.split(":")]
            show = show_change if ":" in line else show_receipt
            block = show(*receipts, int(width), *parts)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"<!-- shown: {match['what']} -->: {error}; write FILE LINE WIDTH and some of "
                f"{', '.join(PARTS)}; of two lines of {', '.join(CHANGES)}"
            ) from error
        return f"<!-- shown: {match['what']} -->\n```\n{block}```\n"

    return _BLOCK.sub(replace, text)


def main() -> None:
    """Print the pages that differ, or write them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="replace the blocks")
    options = parser.parse_args()
    stale: list[Path] = []
    for page in PAGES:
        text = page.read_text("utf-8")
        if (new := update(text)) != text:
            stale.append(page)
            if options.write:
                page.write_text(new, "utf-8")
    for page in stale:
        print(f"{page.relative_to(_ROOT)} {'was written' if options.write else 'is not as it is'}")
    sys.exit(1 if stale and not options.write else 0)


if __name__ == "__main__":
    main()
