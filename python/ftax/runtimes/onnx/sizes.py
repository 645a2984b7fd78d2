"""One export to ONNX for all sizes of a model, and files of it with one size written in.

An export takes seconds and a sweep has dozens of sizes. The surprising choice: the free dimensions
are filled in before a session sees the file. ONNX Runtime then folds what computes with them, and
ends with the graph that it makes of an export of that size alone. An exporter may write a size into
the graph without a word (it unrolls a recurrent layer), so the export has to run at another size.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from ftax.errors import InvalidArgumentError, UnsupportedError
from ftax.runtimes.cache import Artefact
from ftax.runtimes.compilers.flattened import Flattened
from ftax.runtimes.onnx.export import export_onnx
from ftax.runtimes.workspace import Workspace
from ftax.steps.loaded import LoadedModel

# What is wrong with a file of one size for a model's inputs; None if it gives eager's outputs.
FindFault = Callable[[Path, LoadedModel], str | None]

_FILE = "all-sizes.onnx"
# Of the example that is exported, and of another that tells which dimensions depend on the size.
# None of 1, which torch.export takes for a constant.
_BATCHES = (2, 3)
_SEQUENCES = (16, 24)


def export_all_sizes(loaded: LoadedModel, find_fault: FindFault) -> Artefact:
    """An export of the model whose batch and sequence are free, made once and kept.

    Raises UnsupportedError if the model has no other sizes, cannot be exported with free ones, or
    has them written into the exported program, as a file of another size than the example's tells
    ``find_fault``. A refusal is kept too: it took as long; what ``find_fault`` raises is not.
    """
    example, other = (
        _resize(loaded, batch, sequence)
        for batch, sequence in zip(_BATCHES, _SEQUENCES, strict=True)
    )
    free = find_free(example.flat_inputs(), other.flat_inputs())

    def make(folder: Path) -> Mapping[str, object]:
        try:
            facts = _export(example, free, folder)
        except UnsupportedError as error:
            return {"refused": str(error)}
        with TemporaryDirectory(prefix="ftax-onnx-") as trial:
            file = Path(trial) / "model.onnx"
            write_size(folder, other.flat_inputs(), file)
            fault = find_fault(file, other)
        return {"refused": f"exported for all sizes, at another one {fault}"} if fault else facts

    artefact = Workspace(example).artefact("onnx-all-sizes", {}, make)
    if refused := artefact.facts.get("refused"):
        raise UnsupportedError(str(refused))
    return artefact


def _export(
    example: LoadedModel, free: Sequence[Sequence[int]], folder: Path
) -> Mapping[str, object]:
    export = export_onnx(Flattened(example), example.flat_inputs(), folder / _FILE, free=free)
    return {
        "exporter": export.exporter,
        "opset": export.opset,
        "exporter_messages": len(export.messages),
    }


def find_free(
    some: Sequence[torch.Tensor], others: Sequence[torch.Tensor]
) -> tuple[tuple[int, ...], ...]:
    """Of each input the dimensions in which the same input of another size differs."""
    return tuple(
        tuple(place for place, sizes in enumerate(zip(a.shape, b.shape, strict=True))
              if sizes[0] != sizes[1])
        for a, b in zip(some, others, strict=True)
    )  # fmt: skip


def write_size(folder: Path, inputs: Sequence[torch.Tensor], path: Path) -> None:
    """Write the export in ``folder`` with the shapes of ``inputs`` to ``path``; the weights' file
    is shared."""
    import onnx

    model = onnx.load(str(folder / _FILE), load_external_data=False)
    for value, tensor in zip(model.graph.input, inputs, strict=True):
        for dimension, size in zip(value.type.tensor_type.shape.dim, tensor.shape, strict=True):
            dimension.dim_value = size  # it had a name, or the same number
    del model.graph.value_info[:]  # shapes in terms of the names
    for value in model.graph.output:
        for dimension in value.type.tensor_type.shape.dim:
            dimension.Clear()
    onnx.save(model, str(path))
    for file in folder.glob("*.data"):
        _share(file, path.parent / file.name)


def _share(file: Path, target: Path) -> None:
    try:
        os.link(file, target)
    except OSError:  # a file system without links
        shutil.copyfile(file, target)


def _resize(loaded: LoadedModel, batch: int, sequence: int) -> LoadedModel:
    try:
        return loaded.with_size(batch=batch, sequence=None if loaded.sequence is None else sequence)
    except InvalidArgumentError as error:
        raise UnsupportedError(f"{loaded.name} has no other sizes: {error}") from error
