"""Cells: what makes two of them the same."""

import dataclasses
import json

from hypothesis import given
from hypothesis import strategies as st

from ftax.timing.cell import Cell

scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text()
cells = st.builds(
    Cell,
    model=st.text(min_size=1),
    runtime=st.text(min_size=1),
    host=st.sampled_from(["python", "cpp"]),
    device=st.sampled_from(["cpu", "cuda", "cuda:3"]),
    dtype=st.sampled_from(["fp32", "fp16", "bf16"]),
    batch=st.integers(1, 2**40),
    sequence=st.none() | st.integers(1, 2**40),
    options=st.dictionaries(st.text(), scalars, max_size=3),
)


def make_cell(**changes):
    fields = {"model": "bert", "runtime": "eager", "host": "python", "batch": 1, "sequence": 128}
    return Cell(**{**fields, **changes})


def test_options_and_their_types_are_part_of_a_cell_but_their_order_is_not():
    one = make_cell(options={"a": 1, "b": None})
    assert one == make_cell(options={"b": None, "a": 1})
    assert one.key() == make_cell(options={"b": None, "a": 1}).key()
    for other in ({"a": True, "b": None}, {"a": 1.0, "b": None}, {"a": 1}):
        assert one != make_cell(options=other)
    assert len({one, make_cell(options={"b": None, "a": 1}), make_cell()}) == 2


def test_every_field_of_a_cell_changes_its_key():
    changes = {
        "model": "gpt2",
        "runtime": "onnxruntime",
        "host": "cpp",
        "device": "cuda:1",
        "dtype": "fp16",
        "batch": 2,
        "sequence": None,
        "step": "train",
        "grad_mode": "no_grad",
        "units": 4,
        "options": {"threads": 2},
    }
    assert set(changes) == {field.name for field in dataclasses.fields(Cell)}
    keys = {make_cell(**{name: value}).key() for name, value in changes.items()}
    assert len(keys | {make_cell().key()}) == len(changes) + 1


def test_a_label_is_short_and_says_what_was_measured():
    assert make_cell().label() == "bert eager/python cpu fp32 b1 s128"
    image = make_cell(sequence=None, options={"threads": 2, "graph": True})
    assert make_cell(grad_mode="no_grad").label() == "bert eager/python cpu fp32 b1 s128 no_grad"
    assert image.label() == "bert eager/python cpu fp32 b1 graph=true threads=2"


@given(cells, cells)
def test_cells_are_equal_exactly_if_their_keys_are(one, other):
    assert Cell.from_dict(json.loads(one.key())) == one
    assert (one == other) == (one.key() == other.key())
