"""The zoo as a table, and the page that shows it."""

from pathlib import Path

import pytest

from ftax.errors import InvalidArgumentError
from ftax.reports.tables.models_table import list_rows, update_page
from ftax.steps.zoo.registry import list_models

PAGE = Path(__file__).parents[2] / "docs" / "models.md"


def test_page_shows_the_zoo_of_today() -> None:
    text = PAGE.read_text()
    assert update_page(text) == text, (
        "run: python -m ftax.reports.tables.models_table docs/models.md"
    )
    for spec in list_models():
        row = f"| `{spec.name}` | {spec.parameter_count:,} |"
        assert (f"`{spec.name}-" if spec.family == "layer" else row) in text


def test_page_without_a_place_for_the_zoo_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="zoo: end"):
        update_page("# Models\n<!-- zoo: generated -->\n")


def test_only_what_is_between_the_marks_is_rewritten() -> None:
    page = update_page("before\n<!-- zoo: generated -->\nold\n<!-- zoo: end -->\nafter\n")
    assert page.startswith("before\n<!-- zoo: generated -->\n**Text**\n\n| name |")
    assert page.endswith("\n<!-- zoo: end -->\nafter\n")
    assert "old\n" not in page


def test_rows_say_family_size_and_the_papers_name() -> None:
    short, full = list_rows(full=False), list_rows(full=True)
    rows = {row[0]: row for row in short.rows}
    assert rows["mobilebert"][1:5] == ("text", "24.6 M", "128 tokens", "mobile_bert")
    assert rows["wavlm"][3] == "32000 samples"
    assert rows["llama"][4] == "-"
    assert len(full.rows) == len(short.rows) == len(list_models())
    notes = {row[0]: row[full.columns.index("note")] for row in full.rows}
    assert "fused kernels" in notes["mamba"]
    assert all("|" not in cell for row in full.rows for cell in row)
