"""Records check themselves against their annotations: each kind of field, by hand."""

import json
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftax.errors import InvalidArgumentError, ResultsError
from ftax.records.fields import FrozenMap, Rule
from ftax.records.record import PositiveInt, Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner(Record):
    size: PositiveInt


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer(Record):
    constant: ClassVar[int] = 1

    text: str
    flag: bool
    whole: int
    number: float
    maybe: int | None
    choice: Literal["a", 1]
    rows: tuple[tuple[int, ...], ...]
    perhaps: tuple[int, ...] | None
    inner: Inner | None
    facts: Mapping[str, object]
    even: Annotated[int, Rule("an even number", lambda value: value % 2 == 0)] = 0


GOOD = {
    "text": "t",
    "flag": True,
    "whole": 3,
    "number": 1.5,
    "maybe": None,
    "choice": "a",
    "rows": [[1, 2], []],
    "perhaps": [1],
    "inner": {"size": 1},
    "facts": {"list": [1, None, {"deep": "x"}]},
    "even": 2,
}


def test_a_record_travels_through_json_unchanged():
    record = Outer.from_dict(json.loads(json.dumps(GOOD)))
    assert record.to_dict() == GOOD
    assert record.rows == ((1, 2), ())
    assert record.inner == Inner(size=1)
    assert record == Outer.from_dict(record.to_dict())


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("text", 1, "Outer.text is 1; it has to be a string"),
        ("flag", 1, "Outer.flag is 1; it has to be true or false"),
        ("whole", True, "Outer.whole is True; it has to be an integer"),
        ("whole", 1.0, "Outer.whole is 1.0; it has to be an integer"),
        ("whole", 2**64, "64 bits"),
        ("number", float("nan"), "Outer.number is nan; it has to be a finite number"),
        ("number", float("inf"), "a finite number"),
        ("number", 10**400, "Outer.number is 1000"),
        ("number", False, "a finite number"),
        ("maybe", "x", "Outer.maybe is 'x'; it has to be an integer of at most 64 bits or null"),
        ("choice", True, "Outer.choice is True; it has to be one of 'a', 1"),
        ("rows", [[1], [2, "x"]], "Outer.rows[1][1] is 'x'"),
        ("rows", "ab", "Outer.rows is 'ab'; it has to be a list"),
        ("perhaps", [1, "x"], "Outer.perhaps[1] is 'x'; it has to be an integer"),
        ("perhaps", "x", "Outer.perhaps is 'x'; it has to be a list or null"),
        ("inner", {"size": 0}, "Inner.size is 0; it has to be an integer of at least 1"),
        ("inner", {"size": 1, "more": 2}, "Inner has the unknown 'more'"),
        ("inner", {}, "Inner lacks 'size'"),
        ("inner", 5, "it has to be an object with the fields of Inner or null"),
        ("facts", {1: 2}, "keys are strings"),
        ("facts", {"a": {"b": float("inf")}}, "Outer.facts['a']['b'] is inf"),
        ("facts", {"a": b"bytes"}, "a JSON value"),
        ("even", 3, "Outer.even is 3; it has to be an even number"),
    ],
)
def test_a_wrong_value_is_named_with_its_place_and_what_would_be_right(name, value, said):
    with pytest.raises(ResultsError) as caught:
        Outer.from_dict({**GOOD, name: value})
    assert said in str(caught.value)


def test_python_gets_its_own_error_type():
    with pytest.raises(InvalidArgumentError, match=r"Inner\.size is -1"):
        Inner(size=-1)


def test_every_field_has_to_be_there_even_one_with_a_default():
    for name in GOOD:
        with pytest.raises(ResultsError, match=f"Outer lacks '{name}'"):
            Outer.from_dict({key: value for key, value in GOOD.items() if key != name})


def test_a_long_wrong_value_is_cut_short():
    with pytest.raises(ResultsError) as caught:
        Outer.from_dict({**GOOD, "whole": "x" * 10_000})
    assert len(str(caught.value)) < 200


def test_an_integer_is_a_number():
    number = Outer.from_dict({**GOOD, "number": 2}).number
    assert (number, type(number)) == (2.0, float)


def test_nothing_in_a_record_can_be_changed_and_it_does_not_follow_its_source():
    source = {"list": [1]}
    record = Outer.from_dict({**GOOD, "facts": source})
    source["list"].append(2)
    assert record.facts == {"list": (1,)}
    with pytest.raises(TypeError):
        record.facts["list"] = 3
    with pytest.raises(AttributeError):
        record.text = "u"


def test_records_can_be_hashed_and_sent_to_another_process():
    record = Outer.from_dict(GOOD)
    assert pickle.loads(pickle.dumps(record)) == record
    assert len({record, Outer.from_dict(GOOD)}) == 1


def test_a_record_inside_another_is_read_by_its_own_from_dict():
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Doubled(Record):
        size: int

        @classmethod
        def from_dict(cls, data):
            return cls(size=2 * data["half"])

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Holder(Record):
        inside: tuple[Doubled, ...]

    holder = Holder.from_dict({"inside": [{"half": 3}]})
    assert holder.inside == (Doubled(size=6),)


def test_a_field_type_that_json_lacks_is_refused_when_the_record_is_first_used():
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Odd(Record):
        field: set[int]

    with pytest.raises(TypeError, match="cannot have a field of type"):
        Odd(field={1})


@given(st.dictionaries(st.text(), st.integers(-(2**63), 2**64 - 1)))
def test_a_frozen_map_behaves_like_the_dict_it_was_made_of(items):
    frozen = FrozenMap(items)
    assert frozen == items
    assert dict(frozen) == items
    assert hash(frozen) == hash(FrozenMap(dict(reversed(items.items()))))
