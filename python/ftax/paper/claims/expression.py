"""Formulas of claims: parsed, refused if they hold anything unexpected, and made into closures.

The surprising choice: no `eval`, not even of a checked tree. A formula becomes nested Python
functions, one for each node that is known by name here; a node that is not cannot run.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Collection
from typing import Any, NoReturn

from ftax.errors import InvalidArgumentError
from ftax.paper.claims.helpers import HELPERS

Scope = dict[str, Any]
Formula = Callable[[Scope], Any]

LONGEST_FORMULA = 1000  # characters
LONGEST_LIST = 10_000

_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


class UndefinedError(Exception):
    """A formula has no value for these numbers: a division by zero, an empty list."""


def compile_formula(text: str, names: Collection[str]) -> Formula:
    """A function from a scope with ``names`` to the formula's value.

    Allowed are numbers, the names, lists, indices and slices, + - * / on numbers (+ on lists too),
    comparisons, and/or/not, comprehensions with one loop, and calls of `HELPERS` by name.

    Raises:
        InvalidArgumentError: there is anything else in it. It has not been run then.
    """
    if len(text) > LONGEST_FORMULA:
        raise InvalidArgumentError(
            f"a formula of {len(text)} characters is refused; the longest has {LONGEST_FORMULA}"
        )
    try:
        tree = ast.parse(text.strip(), mode="eval")
        return _Compiler(text).make(tree.body, frozenset(names))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        if isinstance(error, InvalidArgumentError):
            raise
        raise InvalidArgumentError(
            f"{text!r} is no formula ({type(error).__name__}: {error}); write an expression"
        ) from error


def run_formula(formula: Formula, scope: Scope) -> Any:
    """The value. Raises UndefinedError if it has none, LackingError if it needs a `Missing`."""
    try:
        return formula(scope)
    except InvalidArgumentError:
        raise
    except (ArithmeticError, ValueError, IndexError, TypeError) as error:
        raise UndefinedError(f"{type(error).__name__}: {error}") from error


class _Compiler:
    def __init__(self, text: str) -> None:
        self.text = text

    def make(self, node: ast.AST, names: frozenset[str]) -> Formula:
        """The closure of a node; ``names`` are those that its scope will have."""
        makers: dict[type[ast.AST], Callable[[Any, frozenset[str]], Formula]] = {
            ast.Constant: self._make_constant,
            ast.Name: self._make_name,
            ast.List: self._make_list,
            ast.Subscript: self._make_subscript,
            ast.Slice: self._make_slice,
            ast.BinOp: self._make_arithmetic,
            ast.UnaryOp: self._make_unary,
            ast.Compare: self._make_comparison,
            ast.BoolOp: self._make_logic,
            ast.Call: self._make_call,
            ast.ListComp: self._make_comprehension,
            ast.GeneratorExp: self._make_comprehension,
        }
        maker = makers.get(type(node))
        return self._refuse(node) if maker is None else maker(node, names)

    def _refuse(self, node: ast.AST, why: str = "is not part of a formula") -> NoReturn:
        shown = ast.unparse(node) if isinstance(node, ast.expr) else type(node).__name__
        raise InvalidArgumentError(
            f"{shown!r} ({type(node).__name__}) in {self.text!r} {why}; use numbers, the claim's "
            f"names, arithmetic, comparisons and {', '.join(HELPERS)}"
        )

    def _make_constant(self, node: ast.Constant, names: frozenset[str]) -> Formula:
        value = node.value
        if type(value) not in (int, float, bool):
            self._refuse(node)
        return lambda scope: value

    def _make_name(self, node: ast.Name, names: frozenset[str]) -> Formula:
        name = node.id
        if name not in names:
            self._refuse(node, "is no name of this claim")
        return lambda scope: scope[name]

    def _make_list(self, node: ast.List, names: frozenset[str]) -> Formula:
        items = [self.make(item, names) for item in node.elts]
        return lambda scope: [item(scope) for item in items]

    def _make_subscript(self, node: ast.Subscript, names: frozenset[str]) -> Formula:
        value, index = self.make(node.value, names), self.make(node.slice, names)
        return lambda scope: value(scope)[index(scope)]

    def _make_slice(self, node: ast.Slice, names: frozenset[str]) -> Formula:
        none: Formula = lambda scope: None  # noqa: E731
        lower, upper, step = (
            none if part is None else self.make(part, names)
            for part in (node.lower, node.upper, node.step)
        )
        return lambda scope: slice(lower(scope), upper(scope), step(scope))

    def _make_arithmetic(self, node: ast.BinOp, names: frozenset[str]) -> Formula:
        operators: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
            ast.Add: _add,
            ast.Sub: operator.sub,
            ast.Mult: _multiply,
            ast.Div: operator.truediv,
        }
        apply = operators.get(type(node.op))
        if apply is None:
            self._refuse(node)
        left, right = self.make(node.left, names), self.make(node.right, names)
        return lambda scope: apply(left(scope), right(scope))

    def _make_unary(self, node: ast.UnaryOp, names: frozenset[str]) -> Formula:
        operand = self.make(node.operand, names)
        if isinstance(node.op, ast.USub):
            return lambda scope: -operand(scope)
        if isinstance(node.op, ast.Not):
            return lambda scope: not operand(scope)
        return self._refuse(node)

    def _make_comparison(self, node: ast.Compare, names: frozenset[str]) -> Formula:
        for op in node.ops:
            if type(op) not in _COMPARISONS:
                self._refuse(node)
        tests = [_COMPARISONS[type(op)] for op in node.ops]
        sides = [self.make(side, names) for side in (node.left, *node.comparators)]

        def compare(scope: Scope) -> bool:
            left = sides[0](scope)
            for test, side in zip(tests, sides[1:]):
                right = side(scope)
                if not test(left, right):
                    return False
                left = right
            return True

        return compare

    def _make_logic(self, node: ast.BoolOp, names: frozenset[str]) -> Formula:
        parts = [self.make(part, names) for part in node.values]
        if isinstance(node.op, ast.And):
            return lambda scope: all(part(scope) for part in parts)
        return lambda scope: any(part(scope) for part in parts)

    def _make_call(self, node: ast.Call, names: frozenset[str]) -> Formula:
        if not isinstance(node.func, ast.Name) or node.func.id not in HELPERS:
            self._refuse(node.func, "cannot be called")
        if node.keywords:
            self._refuse(node, "names its arguments")
        function = HELPERS[node.func.id]
        arguments = [self.make(argument, names) for argument in node.args]
        return lambda scope: function(*[argument(scope) for argument in arguments])

    def _make_comprehension(
        self, node: ast.ListComp | ast.GeneratorExp, names: frozenset[str]
    ) -> Formula:
        if len(node.generators) != 1 or node.generators[0].is_async:
            self._refuse(node, "has more than one loop")
        loop = node.generators[0]
        variables = self._read_variables(loop.target)
        inner = names | frozenset(variables)
        source = self.make(loop.iter, names)
        conditions = [self.make(condition, inner) for condition in loop.ifs]
        element = self.make(node.elt, inner)
        single = isinstance(loop.target, ast.Name)

        def collect(scope: Scope) -> list[Any]:
            own = dict(scope)
            found = []
            for item in source(scope):
                own.update(zip(variables, (item,) if single else item, strict=True))
                if all(condition(own) for condition in conditions):
                    found.append(element(own))
            return found

        return collect

    def _read_variables(self, target: ast.expr) -> list[str]:
        parts = target.elts if isinstance(target, ast.Tuple) else [target]
        variables = [part.id for part in parts if isinstance(part, ast.Name)]
        if len(variables) != len(parts):
            self._refuse(target, "cannot be assigned to")
        return variables


def _add(left: Any, right: Any) -> Any:
    if isinstance(left, list) != isinstance(right, list):
        raise TypeError("a list and a number cannot be added")
    if isinstance(left, list) and len(left) + len(right) > LONGEST_LIST:
        raise InvalidArgumentError(f"a list of a formula may have {LONGEST_LIST} items")
    return left + right


def _multiply(left: Any, right: Any) -> Any:
    if isinstance(left, list) or isinstance(right, list):
        raise TypeError("a list cannot be multiplied")  # [0] * 10**9 would take the memory
    if isinstance(left, int) and isinstance(right, int):
        return float(left) * right  # integers would grow without end
    return left * right
