"""Proves that a replay is the model.

A replay of captured work takes no inputs and returns no outputs: it reads and writes memory that is
fixed. So one that does nothing leaves the last right answer in place, and looks right. Here each
check puts its inputs into that memory, and fills the outputs with NaN, before it replays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from ftax.errors import UnsupportedError
from ftax.models import LoadedModel
from ftax.runtimes.equality import Equality, compare_outputs
from ftax.runtimes.tape import preserve_state, run_eager


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffers:
    """The tensors that a replay reads (inputs and constants) and writes (outputs)."""

    inputs: tuple[torch.Tensor, ...]
    outputs: tuple[torch.Tensor, ...]
    constants: tuple[torch.Tensor, ...]
    mutated: bool = False  # the model writes into its inputs or constants

    def run(
        self, replay: Callable[[], object], inputs: Sequence[torch.Tensor]
    ) -> tuple[torch.Tensor, ...]:
        """The outputs of ``replay()`` on these inputs. Call it under inference mode.

        Raises UnsupportedError if the replay changes a weight, a buffer or an input.
        """
        self._poison_outputs()
        for target, source in zip(self.inputs, inputs, strict=True):
            target.copy_(source)
        before = self._sum_what_is_read()
        replay()
        if not self.mutated and self._sum_what_is_read() != before:
            raise UnsupportedError("the replay writes into the model's weights, buffers or inputs")
        return self.outputs

    def _poison_outputs(self) -> None:
        """Bytes of ones: NaN in every floating-point format, -1 in integers. An output that is an
        input or a weight is nobody's to overwrite."""
        kept = {tensor.untyped_storage().data_ptr() for tensor in (*self.inputs, *self.constants)}
        for output in self.outputs:
            storage = output.untyped_storage()
            if storage.data_ptr() not in kept:
                storage.fill_(255)  # type: ignore[attr-defined]

    def _sum_what_is_read(self) -> list[int]:
        """A sum a tensor: a copy of the weights could be more than the device has room for."""
        sums = [
            tensor.detach().contiguous().reshape(-1).view(torch.uint8).sum(dtype=torch.int64)
            for tensor in (*self.inputs, *self.constants)
            if tensor.layout == torch.strided and not (tensor.is_quantized or tensor.is_nested)
        ]
        return [int(total) for total in sums]


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
