"""One kind of table for every output: rows of text, fitted to a terminal or written as CSV,
Markdown or HTML for a notebook; and a printout, which is tables and what is said below them.

A terminal that is too narrow gets fewer columns and never a folded number. A table says which
columns give way, and a line below all tables names those that did.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Literal, Self

from rich import box
from rich.cells import cell_len
from rich.console import ConsoleOptions, RenderableType
from rich.table import Table

from ftax.reports.columns import Cell, Column, Numbers, for_people, write_csv
from ftax.reports.terminal import clean, clean_line, plain, to_text

# Styles in a notebook.
_TABLE = "border-collapse:collapse;margin:0.3em 0 1em"
_CELL = "padding:0.15em 0.8em 0.15em 0;white-space:pre-line;vertical-align:top;text-align:"
_HEAD = "border-bottom:1px solid currentColor;"
_WARNING = "border-left:3px solid #d99a00;padding-left:0.6em"  # seen on white and on black
_GAP = 2  # columns of a terminal between two of a table
_TEXT_WIDTH = 13  # that a text keeps before a column gives way for it: "bitwise equal"
_FEWEST = 2  # columns that are left where nothing fits
_LEAST_WORD = 8  # columns of a terminal that a text keeps where its words are broken


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """A titled table of text.

    Attributes:
        numeric: columns that are aligned to the right and stay on one line; others may wrap.
        gives_way: columns that a narrow terminal leaves out, the first one first; after them those
            at the end.
        legend: the column whose texts a terminal shows below the table, beside the first line of
            those of the first column.
        look: "ruled" has its columns named above a rule; "light" has the names alone, and "bare"
            has neither.
    """

    title: str = ""
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: tuple[str, ...] = ()
    gives_way: tuple[str, ...] = ()
    legend: str = ""
    look: Literal["ruled", "light", "bare"] = "ruled"

    @classmethod
    def of(
        cls,
        title: str,
        items: Iterable[Any],
        cells: Mapping[str, Cell],
        *,
        text: Collection[str] = (),
        **more: Any,
    ) -> Self:
        """A row an item, of columns that no program has: how each is written, and all but ``text``
        numeric."""
        columns = [Column(head, cell, is_text=head in text) for head, cell in cells.items()]
        return cls.of_columns(title, items, columns, **more)

    @classmethod
    def of_columns(
        cls, title: str, items: Iterable[Any], columns: Iterable[Column], **more: Any
    ) -> Self:
        """A row an item, without the columns that only programs have."""
        shown = for_people(columns)
        return cls(
            title=title,
            columns=tuple(column.head for column in shown),
            numeric=tuple(column.head for column in shown if not column.is_text),
            rows=tuple(tuple(column.write(item) for column in shown) for item in items),
            **more,
        )

    def __rich_console__(
        self, console: object, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        yield Printout(tables=(self,))

    def fit(self, width: int) -> tuple[list[RenderableType], tuple[str, ...]]:
        """What a terminal of ``width`` columns shows, and which columns it has no room for."""
        kept = [name for name in self.columns if name != self.legend]
        widths, dropped = self._choose_widths(kept, width), []
        for name in self.gives_way:
            if _add(widths) <= width:
                break
            if name in kept:
                kept.remove(name)
                dropped.append(name)
                widths = self._choose_widths(kept, width)
        if _add(widths) > width:
            widths = self._choose_widths(kept, width, is_tight=True)
        while _add(widths) > width and len(kept) > _FEWEST:
            dropped.append(kept.pop())
            widths = self._choose_widths(kept, width, is_tight=True)
        parts: list[RenderableType] = [plain(self.title, "table.title")] if self.title else []
        parts += [*([plain("")] if self.look == "ruled" else []), self._draw(widths)]
        if self.legend:
            place = self.columns.index(self.legend)
            told = [(row[0].partition("\n")[0], row[place]) for row in self.rows if row[place]]
            parts += [plain(""), _explain(told, width)]
        return parts, tuple(dropped)

    def to_csv(self) -> str:
        """For a spreadsheet."""
        return write_csv(self.columns, self.rows, numeric=self.numeric)

    def to_markdown(self) -> str:
        """For a page; the title goes above as bold text."""
        rule = ["---:" if column in self.numeric else "---" for column in self.columns]
        lines = [self.columns, rule, *self.rows]
        title = f"**{clean_line(self.title)}**\n\n" if self.title else ""
        return title + "".join(f"| {' | '.join(map(_escape, line))} |\n" for line in lines)

    def to_html(self) -> str:
        """For a notebook."""
        sides = ["right" if name in self.numeric else "left" for name in self.columns]

        def make_row(tag: str, style: str, texts: Sequence[str]) -> str:
            cells = (
                f'<{tag} style="{style}{side}">{_escape_html(text)}</{tag}>'
                for text, side in zip(texts, sides, strict=True)
            )
            return f"<tr>{''.join(cells)}</tr>"

        head = make_row("th", _HEAD + _CELL, self.columns)
        rows = "".join(make_row("td", _CELL, row) for row in self.rows)
        title = f"<b>{_escape_html(self.title)}</b>" if self.title else ""
        body = f"<thead>{head}</thead><tbody>{rows}</tbody>"
        return f'{title}<table style="{_TABLE}">{body}</table>'

    def _choose_widths(
        self, kept: Sequence[str], width: int, *, is_tight: bool = False
    ) -> dict[str, int]:
        """The width of each column: what it needs, and as much of what it likes as there is room
        for, those first that lack least. A text needs room for each word, a number for all of it;
        where it ``is_tight``, intervals have two lines, and long words are broken."""
        needs, likes = {}, {}
        for name in kept:
            cells = [row[self.columns.index(name)] for row in self.rows]
            texts = [text for cell in cells for text in cell.split("\n")]
            if name in self.numeric:
                parts = [part for text in texts for part in _break(text, is_tight=is_tight)]
            else:
                parts = [word for text in texts for word in text.split()]
                if not is_tight:
                    parts += [text[:_TEXT_WIDTH] for text in texts]
            heading = [] if self.look == "bare" else [name]
            needs[name] = max(map(_measure, [*parts, *" ".join(heading).split()]), default=0)
            likes[name] = max(map(_measure, [*texts, *heading]), default=0)
        if is_tight:
            self._break_words(needs, width)
        room = width - _add(needs)
        for name in sorted(kept, key=lambda name: likes[name] - needs[name]):
            more = max(0, min(likes[name] - needs[name], room))
            needs[name] += more
            room -= more
        return needs

    def _break_words(self, needs: dict[str, int], width: int) -> None:
        """Take from columns of text what is too wide; from the first one, of names, last."""
        first, *others = needs
        for names in (others, [first]):
            texts = [name for name in names if name not in self.numeric]
            while _add(needs) > width and any(needs[name] > _LEAST_WORD for name in texts):
                needs[max(texts, key=needs.__getitem__)] -= 1

    def _draw(self, widths: dict[str, int]) -> Table:
        is_ruled = self.look == "ruled"
        table = Table(box=box.SIMPLE_HEAD if is_ruled else None, show_edge=False, pad_edge=False,
                      padding=(0, 0, 0, 1) if is_ruled else (0, _GAP, 0, 0),
                      show_header=self.look != "bare", width=_add(widths))  # fmt: skip
        for name, width in widths.items():
            table.add_column(
                plain(name),
                justify="right" if name in self.numeric else "left",
                width=width,
                overflow="fold",
            )
        for row in self.rows:
            cells = dict(zip(self.columns, row, strict=True))
            table.add_row(
                *(
                    plain("\n".join(_break(cells[name], is_tight=_is_folded(cells[name], width))))
                    if name in self.numeric and _measure(cells[name]) > width
                    else plain(cells[name])
                    for name, width in widths.items()
                )
            )
        return table


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Printout:
    """What a reader sees of a result.

    Attributes:
        head: what comes before the tables, a line each.
        notes: sentences below the tables.
        warnings: what to know before believing any of it.
        numbers: makes the table for programs; left out, it is the one table of text.
    """

    head: tuple[str, ...] = ()
    tables: tuple[Rows, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    numbers: Callable[[], Numbers] | None = None

    def __rich_console__(
        self, console: object, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        yield from map(plain, self.head)
        missing: list[str] = []
        for place, table in enumerate(self.tables):
            if place or self.head:
                yield plain("")
            parts, dropped = table.fit(options.max_width)
            yield from parts
            missing += dropped if table.look != "bare" else ()  # whose columns have no names
        below: list[RenderableType] = [*map(plain, self.notes)]
        if self.warnings:
            below.append(_hang([("!", text) for text in self.warnings], "yellow"))
        if missing:
            below.append(plain(_say_missing(missing, options.max_width), "dim"))
        if below and (self.tables or self.head):
            yield plain("")
        yield from below

    def __repr__(self) -> str:  # what a prompt shows of `receipt.details`
        return to_text(self)

    def _repr_html_(self) -> str:
        """For a notebook, light or dark: no colour but that of warnings."""
        parts = [f"<p>{'<br>'.join(map(_escape_html, self.head))}</p>"] if self.head else []
        parts += [table.to_html() for table in self.tables]
        parts += [f"<p>{_escape_html(note)}</p>" for note in self.notes]
        parts += [f'<p style="{_WARNING}">{_escape_html(text)}</p>' for text in self.warnings]
        return f"<div>{''.join(parts)}</div>"

    def to_numbers(self) -> Numbers:
        """For programs, and for `to_dataframe`."""
        if self.numbers is not None:
            return self.numbers()
        (table,) = self.tables
        return Numbers(columns=table.columns, rows=table.rows)

    def to_markdown(self) -> str:
        """For a page: what comes before the tables, the tables, and what is to be said below them;
        lines that are indented are code, as they are."""
        head, notes = (
            [text if text.startswith(" ") else _escape(text) for text in texts if text]
            for texts in (self.head, (*self.notes, *self.warnings))
        )
        tables = [table.to_markdown() for table in self.tables]
        return "\n".join([*(f"{text}\n" for text in head), *tables, *(f"{n}\n" for n in notes)])


def _say_missing(names: Sequence[str], width: int) -> str:
    listed = ", ".join(dict.fromkeys(names))
    return f"(no room in {width} columns for: {listed}; a wider terminal or COLUMNS=160 has it)"


def _hang(pairs: Sequence[tuple[str, str]], style: str, *, gap: int = 1) -> Table:
    """Each first text, and beside it the second one, whose further lines do not begin below the
    first."""
    table = Table.grid(padding=(0, gap, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for first, second in pairs:
        table.add_row(plain(first, style), plain(second, style))
    return table


def _explain(told: Sequence[tuple[str, str]], width: int) -> RenderableType:
    """What words mean: beside each, or behind it where that leaves little room."""
    if 2 * max((_measure(word) for word, _ in told), default=0) <= width:
        return _hang(told, "dim", gap=_GAP)
    return plain("\n".join(f"{word}: {text}" for word, text in told), "dim")


def _add(widths: dict[str, int]) -> int:
    """Of a table, between whose columns are gaps."""
    return sum(widths.values()) + _GAP * (len(widths) - 1)


def _break(text: str, *, is_tight: bool) -> list[str]:
    """Where a cell with a number may be broken: before a remark, "12.3 us, not resolved", and where
    it ``is_tight`` between the ends of an interval."""
    broken = text.replace(", ", ",\n")
    return (broken.replace(" to ", " to\n") if is_tight else broken).split("\n")


def _is_folded(text: str, width: int) -> bool:
    """Whether it takes more than a break before remarks to fit."""
    return any(_measure(part) > width for part in _break(text, is_tight=False))


def _measure(text: str) -> int:
    return cell_len(clean(text))


def _escape(text: str) -> str:
    return clean_line(text.replace("\n", " ")).replace("|", "\\|")


def _escape_html(text: str) -> str:
    return escape(clean(text))
