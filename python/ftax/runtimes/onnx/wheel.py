"""The files of the installed ONNX Runtime, found without importing it: importing takes a second and
loads a second copy of the library."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from ftax.errors import UnavailableError

_REMEDY = "`pip install onnxruntime`, or `pip install onnxruntime-gpu` for the CUDA provider"


def find_library() -> Path:
    """The C library of the installed onnxruntime or onnxruntime-gpu.

    Raises UnavailableError if there is none.
    """
    folders = _find_folders()
    if not folders:
        raise UnavailableError(f"onnxruntime is not installed: {_REMEDY}")
    found = [path for folder in folders for path in folder.glob("capi/libonnxruntime.so.*")]
    if not found:
        raise UnavailableError(
            f"onnxruntime in {folders[0]} has no capi/libonnxruntime.so.*, as its Linux wheels do: "
            f"{_REMEDY}"
        )
    return max(found)


def find_provider_obstacle(device: str) -> str | None:
    """Why the installed wheel cannot run on ``device``; None if it can."""
    if device == "cpu":
        return None
    if any(
        (folder / "capi/libonnxruntime_providers_cuda.so").exists() for folder in _find_folders()
    ):
        return None
    return (
        "the installed onnxruntime has no CUDA provider: `pip uninstall onnxruntime`, then "
        "`pip install onnxruntime-gpu`"
    )


def _find_folders() -> list[Path]:
    spec = importlib.util.find_spec("onnxruntime")
    return [Path(folder) for folder in (spec.submodule_search_locations if spec else None) or []]
