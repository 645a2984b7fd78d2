"""The evaluator of claims: values equal to Python's own, and nothing else can be written."""

from __future__ import annotations

import builtins

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftax import InvalidArgumentError
from ftax.paper.claims.expression import UndefinedError, compile_formula, run_formula
from ftax.paper.claims.helpers import HELPERS, LackingError, Missing

SCOPE = {"a": 2.0, "b": -3.5, "v": [1.0, 2.5, 4.0], "w": [2.0, 2.0, 0.5]}

numbers = st.one_of(
    st.sampled_from(["a", "b", "v[0]", "w[-1]", "max(v)", "len(w)", "cut(a,b)", "mean(v)"]),
    st.integers(0, 9).map(str),
    st.floats(0.5, 9, allow_nan=False).map(lambda number: f"{number:.3f}"),
)


def combine(parts):
    return st.one_of(
        st.tuples(parts, st.sampled_from("+-*"), parts).map(lambda p: f"({p[0]}{p[1]}{p[2]})"),
        parts.map(lambda part: f"abs(-{part})"),
        st.tuples(parts, parts).map(lambda p: f"min({p[0]},{p[1]})"),
        parts.map(lambda part: f"sum([x*{part} for x in v if x>2])"),
    )


arithmetic = st.recursive(numbers, combine, max_leaves=12)
conditions = st.one_of(
    st.tuples(arithmetic, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), arithmetic).map(
        " ".join
    ),
    arithmetic.map(lambda part: f"all(x<y or {part}>1 for x,y in zip(v,v[1:]))"),
    arithmetic.map(lambda part: f"not (1 < {part} < 5) and any(v[i]>w[i] for i in range(3))"),
)


def run(text, scope=SCOPE):
    return run_formula(compile_formula(text, scope), dict(scope))


@given(st.one_of(arithmetic, conditions))
def test_values_are_those_of_python(text):
    expected = eval(text, {"__builtins__": {}, **HELPERS, **SCOPE})
    assert run(text) == pytest.approx(expected)


@given(st.text(st.characters(max_codepoint=126), max_size=25))
def test_any_text_is_a_formula_or_refused(text):
    try:
        formula = compile_formula(text, SCOPE)
    except InvalidArgumentError:
        return
    assert callable(formula)


@given(
    name=st.sampled_from([name for name in dir(builtins) if name not in HELPERS]),
    form=st.sampled_from(["{}", "{}(1)", "max({}, 1)", "[x for x in {}]", "a + {}", "v[{}]"]),
)
def test_no_name_but_the_claims_and_the_helpers_is_known(name, form):
    if name in ("True", "False"):  # constants and not names
        return
    with pytest.raises(InvalidArgumentError):
        compile_formula(form.format(name), SCOPE)


@given(
    value=st.sampled_from(["a", "v", "max", "(1)", "[1]", "max(v)", "v[0]"]),
    attribute=st.sampled_from(["__class__", "append", "real", "__globals__", "x"]),
    form=st.sampled_from(["{}", "{}()", "max({})", "[{} for i in v]", "v[{}]"]),
)
def test_attributes_are_refused(value, attribute, form):
    with pytest.raises(InvalidArgumentError):
        compile_formula(form.format(f"{value}.{attribute}"), SCOPE)


@given(st.sampled_from(["max(v)(1)", "[max][0](1)", "(lambda: 1)()", "v[0](1)", "a(1)", "(a)(b)"]))
def test_only_helpers_can_be_called_and_only_by_name(text):
    with pytest.raises(InvalidArgumentError):
        compile_formula(text, SCOPE)


@pytest.mark.parametrize(
    "text",
    [
        "max",  # a helper is no value
        "'text'",
        "b'1'",
        "None",
        "...",
        "1j",
        "f'{a}'",
        "lambda: 1",
        "{1: 2}",
        "{1}",
        "(1, 2)",
        "a if b else 1",
        "(x := 1)",
        "a ** 9",
        "9 << 9",
        "7 // 2",
        "a in v",
        "a is b",
        "+a",
        "~1",
        "max(*v)",
        "sorted(v, key=abs)",
        "round(number=a)",
        "[x*y for x in v for y in v]",
        "{x for x in v}",
        "[x for v[0] in v]",
        "[x for x, *y in v]",
        "x = 1",
        "import os",
        "",
        "(" * 300 + "1" + ")" * 300,
        "-" * 990 + "1",
        "1+" * 600 + "1",
    ],
)
def test_anything_else_is_refused(text):
    with pytest.raises(InvalidArgumentError):
        compile_formula(text, SCOPE)


def test_a_loop_sees_names_around_it_and_leaves_them_alone():
    assert run("[a*x for x in v]") == [2.0, 5.0, 8.0]
    assert run("[x for x in v][0] + [a for a in w][2] + a") == 3.5
    with pytest.raises(InvalidArgumentError, match="is no name of this claim"):
        compile_formula("[x for x in v][0] + x", SCOPE)


@pytest.mark.parametrize(
    "text", ["1/0", "max([])", "v[9]", "v+1", "v<1", "spearman(v,[1,1,1])", "ratio(v,[1])"]
)
def test_what_has_no_value_says_so(text):
    with pytest.raises(UndefinedError):
        run(text)


def test_a_missing_number_matters_only_to_those_who_look_at_it():
    scope = {"v": [1.0, Missing("b2 was not measured"), 4.0]}
    assert run("v[2]/v[0]", scope) == 4.0
    assert run("len(v)", scope) == 3
    for text in ("v[1]", "v[:2]"):
        assert "Missing" in repr(run(text, scope))
    looks = ["v[0]<v[1]", "max(v)", "sorted(v)==v", "knee(v)", "-v[1]", "abs(v[1])", "1-v[1]",
             "v[1]/2", "mean(v)", "v[1]==v[1]", "not v[1]", "v[1] and 1<2", "round(v[1])",
             "any(x>1 for x in v[1:])", "min(v[0],v[1])", "2*v[1]"]  # fmt: skip
    for text in looks:
        with pytest.raises(LackingError, match="b2 was not measured"):
            run(text, scope)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("knee([1,1.2,1.3,1.31,1])", 4),
        ("knee([2,1,1.2,5])", 4),  # within 1.3 of the smallest so far, which falls
        ("knee([1,2])", 1),
        ("spearman([1,2,3],[10,20,30])", 1.0),
        ("spearman([1,2,3],[3,2,1])", -1.0),
        ("spearman([1,2,2,4],[1,3,2,4])", 4.5 / (4.5 * 5) ** 0.5),  # ranks 0, 1.5, 1.5, 3
        ("cut(10,4)", 60.0),
        ("cuts([10,2],[4,3])", [60.0, -50.0]),
        ("spread(3,1.5,2)", 2.0),
        ("within(1.04,1,0.05) and not within(1.06,1,0.05)", True),
        ("minus([3,1],[1,3])", [2, -2]),
        ("round(2.6)+len(list(range(3)))", 6),
    ],
)
def test_helpers_by_hand(text, value):
    assert run(text) == pytest.approx(value)
