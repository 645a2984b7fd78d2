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
    compare: Callable[[Sequence[torch.Tensor], Sequence[torch.Tensor], bool], Equality]
    | None = None,
) -> Checks:
    """Compare ``run(inputs)`` with eager, seeded alike, on the main inputs and on a second set.

    ``reference`` are eager's outputs on the main inputs, and ``compare`` is `Workspace.compare` for
    what may differ as eager does from itself. Raises UnsupportedError, naming the inputs, where the
    outputs are not the model's; with ``refuse=False`` the checks say so instead.
    """
    found = []
    for second, inputs, expected in (
        (False, loaded.flat_inputs(), reference),
        (True, loaded.flat_check_inputs(), run_eager(loaded.call_check, loaded)),
    ):
        copies = [tensor.clone() for tensor in inputs]  # `run` may write into the originals
        with preserve_state(loaded), torch.inference_mode():
            outputs = run(copies)
            found.append(
                compare_outputs(expected, outputs)
                if compare is None
                else compare(expected, outputs, second)
            )
        if refuse and not found[-1].within_tolerance:
            which = "a second input" if second else "the recorded input"
            raise UnsupportedError(
                f"{name} is not the model: on {which} it gives other outputs than eager "
                f"({found[-1].problem}); what the model computes on the host is baked in"
            )
    return Checks(outputs=found[0], second_input=found[1])
