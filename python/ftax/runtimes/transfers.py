"""What it costs to serve from host memory: input and output copies around any runtime.

Where a runtime allocates its outputs anew in each request, the copy back reads a stand-in of the
same sizes. What a copy costs does not depend on what it copies; the record counts the stand-ins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from ftax import _core
from ftax.runtimes.cuda_graph import require_cuda_build
from ftax.timing.candidate import Candidate

if TYPE_CHECKING:
    from ftax.runtimes.workspace import Workspace


def add_transfers(workspace: Workspace, prepared: Candidate) -> Candidate:
    """``prepared`` with its inputs copied from pinned host memory before each request and its
    outputs copied back after it, on the stream of the request.

    Raises UnavailableError in a build without CUDA parts.
    """
    require_cuda_build("transfers need")
    buffers = prepared.buffers
    read = buffers.inputs if buffers else workspace.loaded.flat_inputs()
    written = buffers.outputs if buffers else workspace.reference
    inputs, foreign = _choose_memory(read, own=True)
    outputs, made = _choose_memory(written, own=buffers is not None)
    sources = [tensor.cpu().pin_memory() for tensor in inputs]
    targets = [torch.empty_like(tensor, device="cpu", pin_memory=True) for tensor in outputs]
    torch.cuda.synchronize(workspace.loaded.device)
    runner = _core.TransferRunner(
        prepared.runner,
        [
            (to.data_ptr(), out.data_ptr(), to.nbytes)
            for to, out in zip(inputs, sources, strict=True)
        ],
        [
            (to.data_ptr(), out.data_ptr(), to.nbytes)
            for to, out in zip(targets, outputs, strict=True)
        ],
        (inputs, sources, outputs, targets),
    )
    facts = {
        "input_bytes": sum(tensor.nbytes for tensor in inputs),
        "output_bytes": sum(tensor.nbytes for tensor in outputs),
        "input_stand_ins": foreign,
        "output_stand_ins": made,
    }
    return replace(
        prepared,
        runner=runner,
        preparation=prepared.preparation.also(transfers=facts),
        options={**prepared.options, "transfers": True},
    )


def _choose_memory(tensors: Sequence[torch.Tensor], *, own: bool) -> tuple[list[torch.Tensor], int]:
    """The memory of the tensors that are on the GPU and in one piece, and stand-ins for the others
    there; how many of those."""
    on_gpu = [tensor.detach() for tensor in tensors if tensor.is_cuda]
    kept = [own and tensor.is_contiguous() for tensor in on_gpu]
    memory = [
        tensor if keep else tensor.clone(memory_format=torch.contiguous_format)
        for tensor, keep in zip(on_gpu, kept, strict=True)
    ]
    return memory, kept.count(False)
