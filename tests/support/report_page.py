"""A report's page, parsed: what tests look at without a browser."""

from __future__ import annotations

import re
from html.parser import HTMLParser

VOID = {"meta", "input", "br", "img", "link", "hr"}


class Page(HTMLParser):
    """Tags as they are opened, texts, headings, captions of figures, tables as rows of texts, bars,
    the words of marks by the label of their chart, and tags that do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.mismatches: list[str] = []
        self.tables: list[dict[str, object]] = []
        self.charts: list[tuple[str, list[str]]] = []
        self.bars: list[tuple[str, list[dict[str, object]]]] = []
        self.headings: list[str] = []
        self.captions: list[str] = []
        self.text: list[str] = []
        self.spans: list[str] = []  # the classes of those that are open
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.tags.append((tag, attributes))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self.tables.append({"record": attributes.get("data-record"), "caption": "", "rows": []})
        elif tag == "tr":
            self.tables[-1]["rows"].append({"record": attributes.get("data-record"), "cells": []})
        elif tag in ("td", "th"):
            self.tables[-1]["rows"][-1]["cells"].append("")
        elif tag == "svg":
            self.charts.append((attributes.get("aria-label") or "", []))
        elif tag == "h3":
            self.headings.append("")
        elif tag == "figcaption":
            self.captions.append("")
        elif tag == "title" and "use" in self.open:
            self.charts[-1][1].append("")
        self._add_bar(tag, attributes)

    def _add_bar(self, tag, attributes):
        kind = attributes.get("class") or ""
        if kind == "bars":
            self.bars.append((attributes["aria-label"], []))
        elif kind == "bar":
            self.bars[-1][1].append({"text": attributes.get("title"), "value": "", "parts": []})
        elif tag == "i" and "track" in self.spans and kind != "whisker":
            numbers = [float(part.split(":")[1][:-1]) for part in attributes["style"].split(";")]
            self.bars[-1][1][-1]["parts"].append((*numbers, kind))
        if tag == "span":
            self.spans.append(kind)

    def handle_endtag(self, tag):
        if self.open and self.open[-1] == tag:
            self.open.pop()
        else:
            self.mismatches.append(tag)
        if tag == "span":
            self.spans.pop()

    def handle_data(self, data):
        inside = self.open[-1] if self.open else ""
        if inside in ("script", "style"):
            return
        self.text.append(data)
        if "use" in self.open:
            self.charts[-1][1][-1] += data
        if "figcaption" in self.open:
            self.captions[-1] += data
        if "h3" in self.open:
            self.headings[-1] += data
        if self.spans[-1:] == ["value"]:
            self.bars[-1][1][-1]["value"] += data
        if "caption" in self.open:
            self.tables[-1]["caption"] += data
        elif {"td", "th"} & set(self.open):
            self.tables[-1]["rows"][-1]["cells"][-1] += data

    def ids(self):
        return [attributes["id"] for _, attributes in self.tags if "id" in attributes]

    def find_table(self, caption):
        return next(table for table in self.tables if table["caption"].startswith(caption))

    @property
    def marks(self):
        return [text for _, marks in self.charts for text in marks]

    def marks_of(self, label):
        """The words of all marks of the charts whose labels begin so."""
        return [text for name, marks in self.charts if name.startswith(label) for text in marks]

    def bars_of(self, label):
        """(label, bars) of the charts whose labels begin like the pattern."""
        return [(name, bars) for name, bars in self.bars if re.match(label, name)]

    def find_points(self):
        """The rows of all tables of measurements, by their columns."""
        rows = []
        for table in self.tables:
            if table["caption"].startswith("Measurements of"):
                head, *body = table["rows"]
                rows += [dict(zip(head["cells"], row["cells"], strict=True)) for row in body]
        return rows
