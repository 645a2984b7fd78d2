"""Autograd goes on from a capture as it does from the original, bit for bit, or a refusal says why
not. Each program is run twice from its beginning."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from hostile import followed as _followed  # noqa: F401  # enters the table
from hostile.facts import describe
from hostile.followed.table import TABLE, Program, Take
from torch.utils import _pytree as pytree

pytestmark = pytest.mark.usefixtures("record_at_once")
PROGRAMS = [pytest.param(item, id=name) for name, item in TABLE.items()]


@pytest.mark.parametrize("program", PROGRAMS)
def test_nothing_silently_wrong(program: Program, request: pytest.FixtureRequest) -> None:
    if not program.threads:
        request.getfixturevalue("alone")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = play(program, Take(captures=False))
    take = Take(captures=True)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = play(program, take)
    differs = [name for name, value in expected.items() if describe(found[name]) != describe(value)]
    if program.rounded:
        assert differs
        assert not list_far(expected, found)
    else:
        assert bool(differs) == program.found, differs
    assert program.words in take.refusal
    assert bool(program.words) == bool(take.refusal)
    said = [str(item.message) for item in told if "captur" in str(item.message)]
    assert bool(said) == bool(program.warns), said
    assert not program.warns or any(program.warns in item for item in said), said
    assert sum(item.stats().replayed for item in take.taken) >= program.replayed or take.refusal


def play(program: Program, take: Take) -> dict[str, Any]:
    """All that it returned and left behind."""
    torch.manual_seed(0)
    result = program.run(take)
    weights = [item for module in take.modules for item in module.parameters()]
    return {
        "results": result,
        "weights": weights,
        "buffers": [item for module in take.modules for item in module.buffers()],
        "gradients": [item.grad for item in weights],
        "random numbers": torch.get_rng_state(),
    }


def list_far(expected: Any, found: Any) -> list[Any]:
    """Tensors that are not even close."""
    pairs = zip(pytree.tree_leaves(expected), pytree.tree_leaves(found), strict=True)
    tensors = [(a, b) for a, b in pairs if isinstance(a, torch.Tensor)]
    return [(a, b) for a, b in tensors if not torch.allclose(a, b, rtol=1e-2, atol=1e-3)]
