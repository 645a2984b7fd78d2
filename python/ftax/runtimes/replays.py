"""Proves that a replay is the model.

A replay of captured work takes no inputs and returns no outputs: it reads and writes memory that is
fixed. So one that does nothing leaves the last right answer in place, and looks right. Here each
check puts its inputs into that memory, and fills the outputs with NaN, before it replays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from ftax.errors import UnsupportedError
from ftax.runtimes.workspace import Workspace
from ftax.tape.tape import explain_other_outputs, preserve_state
from ftax.timing.checks import Checks


def check_on_both_inputs(
    workspace: Workspace,
    run: Callable[[Sequence[torch.Tensor]], Sequence[torch.Tensor]],
    *,
    name: str,
    otherwise: str = "what the model computes on the host is baked in",
) -> Checks:
    """Compare ``run(inputs)`` with eager, seeded alike, on the main inputs and on a second set.

    Raises UnsupportedError, naming the inputs, where the outputs are not the model's:
    ``otherwise`` is why, unless an operator is found that does not give them twice.
    """
    loaded, found = workspace.loaded, []
    for second, inputs, expected in (
        (False, loaded.flat_inputs(), workspace.reference),
        (True, loaded.flat_check_inputs(), workspace.check_reference),
    ):
        copies = [tensor.clone() for tensor in inputs]  # `run` may write into the originals
        with preserve_state(loaded), torch.inference_mode():
            found.append(workspace.compare(expected, run(copies), second))
        if not found[-1].within_tolerance:
            which = "a second input" if second else "the recorded input"
            why = explain_other_outputs(loaded, otherwise, second=second)
            raise UnsupportedError(
                f"{name} is not the model: on {which} it gives other outputs than eager "
                f"({found[-1].problem}); {why}"
            )
    return Checks(outputs=found[0], second_input=found[1])
