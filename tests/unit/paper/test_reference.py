"""The paper's numbers as they ship: the rows, their reading, and what selects them."""

from __future__ import annotations

import json

import pytest

from ftax import InvalidArgumentError
from ftax.paper.reference import TABLES, list_rows, read_data, read_table, select


def test_every_row_of_the_file_is_read():
    assert len(list_rows()) == 8038
    assert len({row.source for row in list_rows()}) > 50
    assert sum(row.kernel_ms is not None for row in list_rows()) > 10


def test_a_figure_is_selected_by_its_name():
    rows = select(
        figure="Figure 4", model="bert", framework="pytorch-eager", dtype="fp16", note_has="batch"
    )
    batches = [row.batch for row in rows if "batch panel" in row.note]
    assert batches == [1, 2, 4, 8, 16, 32, 64, 128]
    assert rows[0].latency_ms == pytest.approx(10.541, abs=1e-3)


def test_a_collection_of_values_selects_any_of_them():
    rows = select(figure="Figure 3", batch=(1, 64))
    assert (rows[0].batch, rows[0].latency_ms, rows[0].kernel_ms) == (1, 16.437, 2.892)
    assert {row.batch for row in rows} == {1, 64}


def test_inputs_are_read_as_sizes():
    padded = select(figure="Figure 5", framework="bettertransformer")
    generated = select(model="gpt2")
    assert {(row.size, row.is_padded) for row in padded} == {(128, True)}
    assert {(row.input, row.size, row.is_padded) for row in generated} == {("gen16", None, False)}


def test_module_calls_stand_in_the_note():
    with_calls = [row for row in list_rows() if row.read_note("nn_calls") is not None]
    without = select(figure="Figure 3")
    assert len(with_calls) > 1000
    assert all(f"nn_calls={row.read_note('nn_calls'):.0f}" in row.note for row in with_calls)
    assert {row.read_note("nn_calls") for row in without} == {None}


def test_an_unknown_field_or_table_is_refused():
    with pytest.raises(InvalidArgumentError, match=r"no field 'gpu'; there are source, model"):
        select(gpu="A100")
    with pytest.raises(InvalidArgumentError, match=r"no table 'table4.csv'"):
        read_table("table4.csv")


@pytest.mark.parametrize(("name", "rows"), list(zip(TABLES, (4, 7, 5))))
def test_tables_are_as_printed(name, rows):
    assert len(read_table(name)) == rows


def test_setup_and_provenance_ship_too():
    assert json.loads(read_data("setup.json"))["timing"]["forward_passes_averaged"] == 100
    assert "## Known inconsistencies" in read_data("README.md")
