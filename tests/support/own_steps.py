"""What ftax.toml holds to budgets: ftax itself."""

import importlib
import sys

import torch
from torch import nn

import ftax
from ftax import _core


def make_import():
    """`import ftax`, where torch and the compiled core are there already."""

    def import_ftax():
        found = {name: module for name, module in sys.modules.items() if name.startswith("ftax")}
        for name in found.keys() - {"ftax._core"}:  # which cannot be imported twice
            del sys.modules[name]
        try:
            importlib.import_module("ftax")
        finally:
            sys.modules.update(found)

    return ftax.step(import_ftax)


def make_timed_loop():
    """Two rounds of the loop itself, which calls no Python."""
    runner, plan = _core.EmptyRunner(), _core.RoundPlan()
    plan.rule.min_rounds = plan.rule.max_rounds = 2

    def measure():
        _core.measure_rounds([runner], plan)

    return ftax.step(measure)


def make_replay():
    """One call of a captured model."""
    layers = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)).eval()
    inputs = torch.randn(2, 8)
    with torch.inference_mode():
        fast = ftax.capture(layers, inputs)

    def replay(x):
        with torch.inference_mode():
            return fast(x)

    return replay, inputs
