"""Tells what a file or folder holds by looking inside it.

Names and endings are ignored, but for Python's. A checkpoint called model.onnx is a checkpoint, and
the error says so.
"""

import json
import os
import zipfile
from pathlib import Path
from typing import BinaryIO, Literal

from ftax.errors import InvalidArgumentError, UnsupportedError

PathKind = Literal["torchscript", "onnx", "hf_folder"]

# The protobuf wire type of each field of an ONNX ModelProto (onnx/onnx.proto). Integers: ir_version
# and model_version. The others: producer name and version, domain, doc string, graph, opsets,
# metadata, training info, functions, device configuration.
_VARINT, _LENGTH_DELIMITED = 0, 2
_ONNX_WIRES = dict.fromkeys((1, 5), _VARINT) | dict.fromkeys(
    (2, 3, 4, 6, 7, 8, 14, 20, 25, 26), _LENGTH_DELIMITED
)
_ONNX_GRAPH = 7


def describe_path(path: str | os.PathLike[str]) -> PathKind:
    """What `path` holds: a TorchScript archive, an ONNX model or a Hugging Face folder.

    Raises InvalidArgumentError if there is nothing there or it is damaged, and UnsupportedError,
    with the way out, for a format that ftax does not run.
    """
    path = Path(path)
    if path.is_dir():
        return _describe_folder(path)
    if not path.is_file():
        raise InvalidArgumentError(f"there is no file or folder {str(path)!r}: check the path")
    if path.suffix == ".py":
        raise InvalidArgumentError(
            f"{path} is Python: name a function or a module in it, as in {path}:make"
        )
    try:
        with path.open("rb") as file:
            return _describe_file(path, file)
    except OSError as error:
        raise InvalidArgumentError(
            f"{path} cannot be read ({error}): check its permissions"
        ) from error


def _describe_folder(path: Path) -> PathKind:
    config = path / "config.json"
    if not config.is_file():
        raise InvalidArgumentError(
            f"the folder {path} has no config.json: give a folder written by save_pretrained"
        )
    try:
        settings = json.loads(config.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidArgumentError(
            f"{config} cannot be read ({error}): check its permissions"
        ) from error
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError(
            f"{config} is not JSON ({error}): save the model again with save_pretrained"
        ) from error
    if not isinstance(settings, dict) or not settings.get("model_type"):
        raise UnsupportedError(
            f"{config} names no model_type, so it is not a transformers model: "
            "build the module yourself and pass it with inputs="
        )
    return "hf_folder"


def _describe_file(path: Path, file: BinaryIO) -> PathKind:
    head = file.read(16)
    if not head:
        raise InvalidArgumentError(f"{path} is empty: export the model again")
    if head.startswith(b"PK"):
        return _describe_zip(path)
    if head.startswith(b"\x80"):
        raise _checkpoint_error(path)
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") < path.stat().st_size:
        raise UnsupportedError(
            f"{path} is a safetensors file, which holds weights and no model: give the folder that "
            "has it beside a config.json"
        )
    file.seek(0)
    fields = _read_onnx_fields(file, path.stat().st_size)
    if not fields:
        raise UnsupportedError(
            f"{path} is neither a TorchScript archive nor an ONNX model (it starts with "
            f"{head[:8]!r}): export it with torch.jit.save or torch.onnx.export"
        )
    if _ONNX_GRAPH not in fields:
        raise InvalidArgumentError(
            f"{path} starts like an ONNX model but is cut short or damaged: export or copy it again"
        )
    return "onnx"


def _describe_zip(path: Path) -> PathKind:
    try:
        with zipfile.ZipFile(path) as archive:
            names = {name.split("/", 1)[-1] for name in archive.namelist()}
    except zipfile.BadZipFile as error:
        raise InvalidArgumentError(
            f"{path} starts like a zip archive but is cut short or damaged ({error}): "
            "export or copy it again"
        ) from error
    if "constants.pkl" in names:
        return "torchscript"
    if "archive_format" in names:
        raise UnsupportedError(
            f"{path} is an archive of torch.export or AOTInductor, not TorchScript: "
            "load it in Python and pass the module with inputs="
        )
    if "data.pkl" in names:
        raise _checkpoint_error(path)
    raise UnsupportedError(
        f"{path} is a zip archive without constants.pkl, so it is not TorchScript: "
        "save the model with torch.jit.save"
    )


def _checkpoint_error(path: Path) -> UnsupportedError:
    return UnsupportedError(
        f"{path} was written by torch.save, so it holds weights or pickled objects: load it into a "
        "module in Python and pass that with inputs="
    )


def _read_onnx_fields(file: BinaryIO, size_bytes: int) -> set[int]:
    """The top-level fields of an ONNX file.

    Empty if the first field already is none of ONNX's; without the graph if a later byte is wrong.
    Contents are skipped, not read, so the size of the model does not matter.
    """
    fields: set[int] = set()
    while file.tell() < size_bytes:
        tag = _read_varint(file)
        value = _read_varint(file)
        if tag is None or value is None or _ONNX_WIRES.get(tag >> 3) != tag & 7:
            return fields - {_ONNX_GRAPH}
        if tag & 7 == _LENGTH_DELIMITED:
            if file.tell() + value > size_bytes:
                return (fields | {tag >> 3}) - {_ONNX_GRAPH}
            file.seek(value, os.SEEK_CUR)
        fields.add(tag >> 3)
    return fields


def _read_varint(file: BinaryIO) -> int | None:
    """A base-128 integer, or None at the end of the file or after 64 bits."""
    value = 0
    for shift in range(0, 64, 7):
        byte = file.read(1)
        if not byte:
            return None
        value |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return value
    return None
