"""One HTML file of any results: readable without network, each number with its record."""
