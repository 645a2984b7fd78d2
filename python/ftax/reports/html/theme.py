"""Colours and type of a page, for style sheet and charts alike.

The surprising choice: they are Python, not CSS, so that a test can compute the contrast of each.
The series differ in lightness as well as in hue, and charts give each a marker of its own, so that
no reader depends on colour.
"""

from __future__ import annotations

from collections.abc import Mapping

# paper: the page; sheet: what stands out from it; ink, faint: text; rule: lines; accent: links,
# focus and resolved taxes; quiet: what is no tax (kernels, the rest); warn: what is not to be used.
# Bars are outlined with a colour and filled with its -fill, on which whiskers can be seen.
LIGHT: Mapping[str, str] = {
    "paper": "#fffefb",
    "sheet": "#f6f4ee",
    "ink": "#1d1d1b",
    "faint": "#5b5a55",
    "rule": "#d9d6cc",
    "accent": "#1b5e8c",
    "quiet": "#8f8c84",
    "accent-fill": "#9cc0db",
    "quiet-fill": "#d6d3ca",
    "warn-fill": "#e9b896",
    "warn": "#a03c00",
    "series-1": "#1b5e8c",
    "series-2": "#c34f00",
    "series-3": "#00795a",
    "series-4": "#a8478c",
    "series-5": "#8a6a00",
    "series-6": "#3a8cc4",
    "series-7": "#4a4a47",
    "series-8": "#7a2038",
}
DARK: Mapping[str, str] = {
    "paper": "#16181b",
    "sheet": "#1f2226",
    "ink": "#e9e7e1",
    "faint": "#a9a69d",
    "rule": "#3a3d42",
    "accent": "#7db9e8",
    "quiet": "#85837d",
    "accent-fill": "#2d5878",
    "quiet-fill": "#484a4c",
    "warn-fill": "#6e3a17",
    "warn": "#f0a06a",
    "series-1": "#7db9e8",
    "series-2": "#f28e43",
    "series-3": "#34c197",
    "series-4": "#df8fc4",
    "series-5": "#e2c044",
    "series-6": "#5a8fe6",
    "series-7": "#c9c7c0",
    "series-8": "#e5737f",
}
SERIES = 8
SANS = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'


def make_properties(colours: Mapping[str, str]) -> str:
    """CSS custom properties, ``--paper: #fffefb; ...``."""
    return " ".join(f"--{name}: {value};" for name, value in colours.items())


def compute_contrast(one: str, other: str) -> float:
    """The ratio of WCAG 2.2 (relative luminance), from 1 to 21, of two ``#rrggbb`` colours."""
    lighter, darker = sorted((_compute_luminance(one), _compute_luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _compute_luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
