"""One HTML file of any results: readable without network, each number with its record."""

from ftax.report.html.page import make_page, write_report
from ftax.report.html.sources import Found, Sources, read_sources

__all__ = ["Found", "Sources", "make_page", "read_sources", "write_report"]
