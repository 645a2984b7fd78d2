"""Results made readable: rich tables, and plain text, CSV and Markdown of the same rows."""
