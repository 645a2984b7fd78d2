"""Autograd goes on from a capture as it does from the original, bit for bit, or a refusal says why
not. Each program is run twice from its beginning."""

from __future__ import annotations

import gc
import os
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from hostile import followed as _followed  # noqa: F401  # enters the table
from hostile.facts import describe
from hostile.followed.table import TABLE, Program, Take
from torch import nn
from torch.utils import _pytree as pytree

import ftax

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


@pytest.mark.parametrize("goes_backward", [True, False])
@pytest.mark.parametrize("checks", [True, False])
@pytest.mark.usefixtures("alone")
def test_no_call_leaves_memory(goes_backward: bool, checks: bool) -> None:
    """Each of them saves 3 MiB."""
    net = nn.Sequential(nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh())
    x = torch.ones(1024, 256)
    fast = ftax.capture(net, (x,))

    def step() -> None:
        loss = fast(x).sum()
        if goes_backward:
            loss.backward()

    fast.audit(40 if checks else 0)
    for _ in range(8):
        step()
    before = count_resident_bytes()
    for _ in range(30):
        step()
    assert count_resident_bytes() - before < 30 << 20


def count_resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
