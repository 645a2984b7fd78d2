"""Exporting a module to an ONNX file, silently.

While an exporter runs, the process's stdout and stderr are captured at the level of file
descriptors. Exporters warn, log and print, in Python and in C++, even where they succeed; all of it
belongs in the record of the export and none of it on the caller's terminal.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import importlib.util
import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TextIO

import torch
from torch import nn

from ftax.errors import UnavailableError, UnsupportedError, describe_fault

Exporter = Literal["dynamo", "torchscript"]
EXPORTERS: tuple[Exporter, ...] = ("dynamo", "torchscript")  # in the order in which they are tried

# A protobuf file ends at 2 GiB; heavier weights go into a file beside the model.
EMBEDDED_LIMIT_BYTES = 1_500_000_000
_MESSAGE_LIMIT = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxExport:
    """How a checked ONNX file came about.

    `messages` are the distinct lines that this exporter warned, logged or printed, at most 20.
    `fallback_reason` says why the one that was tried first failed; None if it did not.
    """

    exporter: Exporter
    opset: int
    messages: tuple[str, ...]
    fallback_reason: str | None


def export_onnx(module: nn.Module, inputs: Sequence[torch.Tensor], path: Path) -> OnnxExport:
    """Export `module(*inputs)`, which returns tensors only, to the file `path` with fixed shapes.

    A module with other arguments or results has to be wrapped (`compilers.flattened`). torch's
    exporter of `torch.export` programs comes first because the older one cannot export GPT-2; the
    other one is tried if the first fails. While this runs, what the process writes to stdout and
    stderr goes to the result's `messages`.

    Raises UnsupportedError, with both reasons, if neither exporter makes a valid file, and
    UnavailableError if onnx or onnxscript is not installed.
    """
    missing = [name for name in ("onnx", "onnxscript") if importlib.util.find_spec(name) is None]
    if missing:
        raise UnavailableError(f"exporting to ONNX needs `pip install {' '.join(missing)}`")
    reasons: list[str] = []
    for exporter in EXPORTERS:
        messages: list[str] = []
        try:
            with capture_output(messages), torch.no_grad():
                opset = _export(module, inputs, path, exporter)
        except Exception as error:
            _remove_export(path)
            _refuse_full_disk(error, path)
            reasons.append(f"{exporter}: {_describe_cause(error)}")
            continue
        return OnnxExport(
            exporter=exporter,
            opset=opset,
            messages=tuple(dict.fromkeys(messages))[:_MESSAGE_LIMIT],
            fallback_reason=reasons[0] if reasons else None,
        )
    raise UnsupportedError(
        f"{type(module).__name__} cannot be exported to ONNX ({'; '.join(reasons)}); choose "
        "another runtime, or export it yourself and measure the file"
    )


def _export(
    module: nn.Module, inputs: Sequence[torch.Tensor], path: Path, exporter: Exporter
) -> int:
    """Export and check the file; its opset."""
    import onnx

    weights = [*module.parameters(), *module.buffers()]
    input_names = [f"input_{index}" for index in range(len(inputs))]
    torch.onnx.export(
        module,
        tuple(inputs),
        str(path),
        dynamo=exporter == "dynamo",
        input_names=input_names,
        external_data=sum(weight.nbytes for weight in weights) > EMBEDDED_LIMIT_BYTES,
        verbose=False,
    )
    onnx.checker.check_model(str(path))
    model = onnx.load(str(path), load_external_data=False)
    found = [value.name for value in model.graph.input]
    if found != input_names:
        raise RuntimeError(f"the file has inputs {found} in place of {input_names}")
    opset: int = next(o.version for o in model.opset_import if o.domain in ("", "ai.onnx"))
    return opset


def _describe_cause(error: BaseException) -> str:
    """One line: the first error of the chain, whose wrappers only say that exporting failed."""
    while error.__cause__ is not None:
        error = error.__cause__
    return describe_fault(error)


def _refuse_full_disk(error: BaseException, path: Path) -> None:
    """That says nothing of the module, and is not to be remembered as if it did."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise UnavailableError(
                f"{path} cannot be written ({cause.strerror}); make room, or choose another folder "
                "(FTAX_CACHE for what is kept)"
            ) from error
        cause = cause.__cause__ or cause.__context__


def _remove_export(path: Path) -> None:
    for leftover in (path, path.with_name(path.name + ".data")):
        leftover.unlink(missing_ok=True)


@contextlib.contextmanager
def capture_output(messages: list[str]) -> Iterator[None]:
    """Append what the body warns, logs or prints to `messages`, line by line."""
    with tempfile.TemporaryFile("w+", errors="replace") as sink, contextlib.ExitStack() as stack:
        caught = stack.enter_context(warnings.catch_warnings(record=True))
        warnings.simplefilter("always")
        stack.enter_context(_redirect_descriptors(sink))
        stack.enter_context(contextlib.redirect_stdout(sink))
        stack.enter_context(contextlib.redirect_stderr(sink))
        stack.enter_context(_redirect_torch_log(sink))
        try:
            yield
        finally:
            stack.close()
            messages += [f"{w.category.__name__}: {w.message}".splitlines()[0] for w in caught]
            sink.seek(0)
            messages += [line.rstrip() for line in sink if line.strip()]


@contextlib.contextmanager
def _redirect_descriptors(sink: TextIO) -> Iterator[None]:
    """Send what C and C++ print to `sink`."""
    kept = {descriptor: os.dup(descriptor) for descriptor in (1, 2)}
    _flush()
    for descriptor in kept:
        os.dup2(sink.fileno(), descriptor)
    try:
        yield
    finally:
        _flush()
        for descriptor, original in kept.items():
            os.dup2(original, descriptor)
            os.close(original)


def _flush() -> None:
    """Empty the buffers of Python and of C, which would otherwise surface on the wrong side."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    ctypes.CDLL(None).fflush(None)


@contextlib.contextmanager
def _redirect_torch_log(sink: TextIO) -> Iterator[None]:
    """Send torch's log to `sink`.

    Its handlers hold the stderr that torch met when it was imported.
    """
    handlers = [h for h in logging.getLogger("torch").handlers if type(h) is logging.StreamHandler]
    kept = [(handler, handler.setStream(sink)) for handler in handlers]
    try:
        yield
    finally:
        for handler, original in kept:
            handler.setStream(original)
