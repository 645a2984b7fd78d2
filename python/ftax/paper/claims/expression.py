"""Formulas of claims: refused if they hold anything unexpected, then run as Python.

The surprising choice: a formula is compiled by Python itself, and only because nothing is left in
it by then that could do more than arithmetic: no attributes, no names but the claim's own, no calls
but of `HELPERS`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection
from typing import Any

from ftax.errors import InvalidArgumentError
from ftax.paper.claims.helpers import HELPERS

Scope = dict[str, Any]
Formula = Callable[[Scope], Any]

LONGEST_FORMULA = 1000  # characters

# What a formula may be made of, besides what `_check` looks at itself.
_PARTS = (
    ast.List, ast.Subscript, ast.Slice, ast.expr_context,
    ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.UnaryOp, ast.USub, ast.Not,
    ast.Compare, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq, ast.BoolOp, ast.boolop,
)  # fmt: skip


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
        _check(tree.body, frozenset(names), text)
        code = compile(_WithoutGenerators().visit(tree), "<formula>", "eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        if isinstance(error, InvalidArgumentError):
            raise
        raise InvalidArgumentError(
            f"{text!r} is no formula ({type(error).__name__}: {error}); write an expression"
        ) from error
    return lambda scope: eval(code, {"__builtins__": {}, **HELPERS, **scope})


def run_formula(formula: Formula, scope: Scope) -> Any:
    """The value. Raises UndefinedError if it has none, LackingError if it needs a `Missing`."""
    try:
        return formula(scope)
    except (ArithmeticError, ValueError, IndexError, TypeError) as error:
        raise UndefinedError(f"{type(error).__name__}: {error}") from error


class _WithoutGenerators(ast.NodeTransformer):
    """Lists in their place: a formula looks at all of a series or at none of it."""

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> ast.ListComp:
        self.generic_visit(node)
        return ast.copy_location(ast.ListComp(node.elt, node.generators), node)


def _check(node: ast.AST, names: frozenset[str], text: str) -> None:
    """Raise InvalidArgumentError for what is no part of a formula that knows ``names``."""
    inside, why = list(ast.iter_child_nodes(node)), "is not part of a formula"
    match node:
        case ast.Constant():
            is_allowed = type(node.value) in (int, float, bool)
        case ast.Name():
            is_allowed, why = node.id in names, "is no name of this claim"
        case ast.Call():
            is_helper = isinstance(node.func, ast.Name) and node.func.id in HELPERS
            is_allowed, why = is_helper and not node.keywords, "cannot be called"
            inside = [*node.args]
        case ast.ListComp(generators=[loop]) | ast.GeneratorExp(generators=[loop]):
            _check(loop.iter, names, text)
            targets = loop.target.elts if isinstance(loop.target, ast.Tuple) else [loop.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
            is_allowed = all(isinstance(target, ast.Name) for target in targets)
            inside = [*targets, *loop.ifs, node.elt]
        case _:
            is_allowed = isinstance(node, _PARTS)
    if not is_allowed:
        shown = ast.unparse(node) if isinstance(node, ast.expr) else type(node).__name__
        raise InvalidArgumentError(
            f"{shown!r} ({type(node).__name__}) in {text!r} {why}; use numbers, the claim's "
            f"names, arithmetic, comparisons and {', '.join(HELPERS)}"
        )
    for part in inside:
        _check(part, names, text)
