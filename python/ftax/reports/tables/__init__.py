"""One file a kind of result: its tables for a terminal, CSV and Markdown."""
