"""Proves that a replay is the model.

A replay of captured work takes no inputs and returns no outputs: it reads and writes memory that is
fixed. So one that does nothing leaves the last right answer in place, and looks right. Here each
check puts its inputs into that memory, and fills the outputs with NaN, before it replays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from ftax.errors import UnsupportedError
from ftax.runtimes.equality import compare_outputs
from ftax.runtimes.tape.tape import preserve_state, run_eager
from ftax.steps.loaded import LoadedModel
from ftax.timing.checks import Checks, Equality


def check_on_both_inputs(
    loaded: LoadedModel,
    reference: Sequence[torch.Tensor],
    run: Callable[[Sequence[torch.Tensor]], Sequence[torch.Tensor]],
    *,
    name: str,
    refuse: bool = True,
    compare: Callable[..., Equality] = compare_outputs,
) -> Checks:
    """Compare ``run(inputs)`` with eager, seeded alike, on the main inputs and on a second set.

    ``reference`` are eager's outputs on the main inputs. Raises UnsupportedError, naming the
    inputs, where the outputs are not the model's; with ``refuse=False`` the checks say so instead.
    """
    found = []
    for which, inputs, expected in (
        ("the recorded input", loaded.flat_inputs(), reference),
        ("a second input", loaded.flat_check_inputs(), run_eager(loaded.call_check, loaded)),
    ):
        copies = [tensor.clone() for tensor in inputs]  # `run` may write into the originals
        with preserve_state(loaded), torch.inference_mode():
            found.append(compare(expected, run(copies)))
        if refuse and not found[-1].within_tolerance:
            raise UnsupportedError(
                f"{name} is not the model: on {which} it gives other outputs than eager "
                f"({found[-1].problem}); what the model computes on the host is baked in"
            )
    return Checks(outputs=found[0], second_input=found[1])
