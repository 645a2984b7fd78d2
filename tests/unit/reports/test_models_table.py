"""The zoo as a table."""

from ftax.reports.tables.models_table import list_rows
from ftax.steps.zoo.registry import list_models


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
