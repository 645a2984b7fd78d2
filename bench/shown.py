"""Parts of pages that are printed from records, so that a page cannot show other ones.

The comment above a block names it. `<!-- shown: FILE LINE WIDTH PART ... -->` is a result in a
file of bench/results, whose lines count from 1, with parts of `PARTS`; two lines, 1:2, are receipts
that are compared, with parts of `CHANGES`. `<!-- measured: TABLE -->` is one of `measured.py`.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from measured import TABLES, make_table
from rich.console import RenderableType

from ftax import Comparison, Receipt, compare
from ftax.records.result import Shown
from ftax.records.store import find_results, read_records
from ftax.reports.tables.comparison_table import (
    describe_largest,
    draw_comparisons,
    make_change_table,
    make_line_change_table,
)
from ftax.reports.tables.receipt_table import make_line_table
from ftax.reports.tables.runtime_table import make_runtime_tables
from ftax.reports.terminal import plain, to_text
from record import RESULTS

_ROOT = Path(__file__).parents[1]
PAGES = (_ROOT / "README.md", *sorted((_ROOT / "docs").rglob("*.md")))
PARTS: Mapping[str, Callable[[Any], RenderableType]] = {
    "lines": make_line_table,
    "runtimes": lambda receipt: make_runtime_tables(receipt)[0],
    "advice": lambda receipt: plain(receipt.recommendation),
    "adoption": lambda receipt: plain(receipt.adoption),
    "all": lambda result: result.details,
    "screen": lambda result: result.draw(more="ftax show --all"),
}
CHANGES: Mapping[str, Callable[[Comparison], RenderableType]] = {
    "lines": make_line_change_table,
    "runtimes": lambda comparison: make_change_table([comparison]),
    "largest": lambda comparison: plain(describe_largest(comparison)),
    "all": draw_comparisons,
}
_SHOWN = re.compile(r"(<!-- shown: (?P<what>[^>]*?) -->\n```\n)(?P<text>.*?)(?=```\n)", re.DOTALL)
_MEASURED = re.compile(r"(<!-- measured: (?P<what>[^>]*?) -->\n)(?P<text>(\|.*\n)*)")


def show_result(what: str) -> str:
    """The text of a block. Raises ValueError for what names no result, no width or no part."""
    try:
        file, lines, width, *parts = what.split()
        found = [_read_result(file, int(number)) for number in lines.split(":")]
        if len(found) == 1:
            drawn = [PARTS[part](found[0]) for part in parts]
        else:
            a, b = found
            drawn = [CHANGES[part](compare(a, b, names=("before", "after"))) for part in parts]
        return "\n".join(to_text(part, width=int(width)) for part in drawn)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"<!-- shown: {what} -->: {error}; write FILE LINE WIDTH and some of "
            f"{', '.join(PARTS)}; of two lines of {', '.join(CHANGES)}"
        ) from error


def _read_result(file: str, line: int) -> Any:
    read = read_records(find_results(RESULTS / file) or RESULTS / file)
    result = dict(zip(read.lines, read.records, strict=True)).get(line)
    if not isinstance(result, Receipt | Shown):
        raise ValueError(f"line {line} of {file} is no result")
    return result


def update(text: str) -> str:
    """The page with its blocks as their records are. Raises ValueError as `show_result` does, and
    for a table that there is not."""
    text = _SHOWN.sub(lambda match: match[1] + show_result(match["what"]), text)
    return _MEASURED.sub(lambda match: match[1] + make_table(match["what"]), text)


def main() -> None:
    """Print the pages that differ, or write them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="replace the blocks")
    parser.add_argument("--measured", action="store_true", help="print the tables of measured.md")
    options = parser.parse_args()
    if options.measured:
        print("\n".join(make_table(name) for name in TABLES))
        return
    stale = []
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
