"""Proves that a replay is the model.

A replay of captured work takes no inputs and returns no outputs: it reads and writes memory that is
fixed. So one that does nothing leaves the last right answer in place, and looks right. Here each
check puts its inputs into that memory, and fills the outputs with NaN, before it replays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from ftax.errors import UnsupportedError
from ftax.runtimes.equality import Equality, compare_outputs
from ftax.runtimes.tape.tape import preserve_state, run_eager
from ftax.steps.loaded import LoadedModel


def check_on_both_inputs(
    loaded: LoadedModel,
    reference: Sequence[torch.Tensor],
    run: Callable[[Sequence[torch.Tensor]], Sequence[torch.Tensor]],
    *,
    name: str,
    refuse: bool = True,
) -> dict[str, object]:
    """Compare ``run(inputs)`` with eager, seeded alike, on the main inputs and on a second set.

    ``reference`` are eager's outputs on the main inputs. Returns JSON-able checks. Raises
    UnsupportedError, naming the inputs, where the outputs are not the model's; with
    ``refuse=False`` the checks say so instead.
    """
    which = {"outputs": "the recorded input", "second_input": "a second input"}
    equalities = compare_on_both_inputs(loaded, reference, run)
    for key, equality in equalities.items():
        if refuse and not equality.within_tolerance:
            raise UnsupportedError(
                f"{name} is not the model: on {which[key]} it gives other outputs than eager "
                f"({equality.problem}); what the model computes on the host is baked in"
            )
    return {key: equality.to_dict() for key, equality in equalities.items()}


def compare_on_both_inputs(
    loaded: LoadedModel,
    reference: Sequence[torch.Tensor],
    run: Callable[[Sequence[torch.Tensor]], Sequence[torch.Tensor]],
) -> dict[str, Equality]:
    """How ``run(inputs)`` compares with eager, seeded alike, on the main inputs ("outputs") and on
    a second set ("second_input"). ``reference`` are eager's outputs on the main inputs."""
    cases = {
        "outputs": (loaded.flat_inputs(), reference),
        "second_input": (loaded.flat_check_inputs(), run_eager(loaded.call_check, loaded)),
    }
    equalities = {}
    for key, (inputs, expected) in cases.items():
        inputs = [tensor.clone() for tensor in inputs]  # `run` may write into the originals
        with preserve_state(loaded), torch.inference_mode():
            equalities[key] = compare_outputs(expected, run(inputs))
    return equalities
