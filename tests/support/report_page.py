"""A report's page, parsed: what tests look at without a browser."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = {"meta", "input", "br", "img", "link", "hr"}


class Page(HTMLParser):
    """Tags as they are opened, texts, tables as rows of texts, and tags that do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.mismatches: list[str] = []
        self.tables: list[dict[str, object]] = []
        self.data = ""
        self.text: list[str] = []
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

    def handle_endtag(self, tag):
        if self.open and self.open[-1] == tag:
            self.open.pop()
        else:
            self.mismatches.append(tag)

    def handle_data(self, data):
        inside = self.open[-1] if self.open else ""
        if inside == "script":
            if self.tags[-1][1].get("type") == "application/json":
                self.data += data
            return
        if inside == "style":
            return
        self.text.append(data)
        if "caption" in self.open:
            self.tables[-1]["caption"] += data
        elif {"td", "th"} & set(self.open):
            self.tables[-1]["rows"][-1]["cells"][-1] += data

    def ids(self):
        return [attributes["id"] for _, attributes in self.tags if "id" in attributes]

    def find_table(self, caption):
        return next(table for table in self.tables if table["caption"].startswith(caption))
