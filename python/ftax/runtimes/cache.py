"""Artefacts that are dear to make (exports, traces), kept on disk by what they were made from.

The key of an artefact is the content that determines it: the recipe of a zoo model, or, for a
module that exists only in memory, a digest of its recorded operator calls and of every weight. An
artefact is written beside its place and renamed into it, so a process that dies leaves no half of
one. A digest of each file is stored with it and looked at once a process: what does not match, or
is no artefact at all, is made again. That is SHA-256, which processors compute: 1.2 GB/s where
BLAKE2b, which is only software, did 0.5; a gigabyte of weights takes about as long to load.
"""

from __future__ import annotations

import atexit
import errno
import hashlib
import io
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch
from torch import nn

from ftax import _core
from ftax.errors import UnavailableError
from ftax.steps.loaded import LoadedModel
from ftax.steps.tensors import list_dense
from ftax.timing.candidate import Preparation

_MANIFEST = "manifest.json"
_DIGEST = "sha256"
_PACKAGES = ("torch", "transformers", "onnx", "onnxscript", "onnxruntime")


@dataclass(frozen=True, slots=True, kw_only=True)
class Artefact:
    """A folder of files and what was written down when it was made (``facts``, JSON-able)."""

    folder: Path
    facts: Mapping[str, object]
    from_cache: bool

    def to_preparation(self, **details: object) -> Preparation:
        """Of what was made with it."""
        return Preparation.of({**self.facts, **details, "from_cache": self.from_cache})


def cache_root() -> Path:
    """``$FTAX_CACHE``, or ``ftax`` in the user's cache folder."""
    if chosen := os.environ.get("FTAX_CACHE"):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "ftax"


def make_key(
    kind: str, loaded: LoadedModel, options: Mapping[str, object], program: Sequence[str]
) -> str:
    """Digest of everything that decides what the artefact is, as 32 hexadecimal digits.

    ``program`` is the recorded operator calls, in words: two modules of the same class and weights
    may differ in their code.
    """
    digest = hashlib.blake2b(digest_size=16)
    recipe = loaded.identity()
    identity = {
        "kind": kind,
        "options": dict(options),
        "recipe": recipe,
        "device": loaded.device,
        "program": list(program),
        "versions": {name: _version(name) for name in _PACKAGES},
    }
    digest.update(json.dumps(identity, sort_keys=True, default=str).encode())
    if recipe is None:
        _digest_module(digest, loaded.module)
        for tensor in loaded.flat_inputs():
            digest.update(f"{tuple(tensor.shape)} {tensor.dtype}".encode())
    return digest.hexdigest()


def describe_program(tape: _core.Tape, module: nn.Module) -> list[str]:
    """The calls of ``tape`` in words: its constants by name if ``module`` has them, by digest
    otherwise, because ``x * 2`` and ``x * 3`` are the same calls."""
    names = {id(tensor): name for name, tensor in _named_tensors(module)}
    lines = [f"inputs {tape.input_slots}, outputs {tape.output_slots}"]
    for slot, tensor in tape.constants:
        lines.append(f"slot {slot} is {names.get(id(tensor)) or _digest_tensor(tensor)}")
    for call in tape.calls:
        content = "" if call["fill"] is None else _digest_tensor(call["fill"])
        lines.append(f"{call['operator']}{content} {call['arguments']} -> {call['outputs']}")
    return lines


def get_or_make(
    key: str, kind: str, make: Callable[[Path], Mapping[str, object]], *, keep: bool = True
) -> Artefact:
    """Return the artefact of ``key``, calling ``make(folder)`` if there is no sound one.

    ``make`` fills the folder and returns facts to keep with it. ``keep=False`` makes it anew in a
    temporary place that lives as long as the process; so does what is in the way and cannot be
    removed. Raises UnavailableError if the cache cannot be written to.
    """
    root = cache_root() / kind if keep else _make_temporary()
    folder = root / key
    if (facts := _read_manifest(folder)) is not None:
        return Artefact(folder=folder, facts=facts, from_cache=True)
    try:
        root.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=f".{key}-", dir=root))
    except OSError as error:
        raise UnavailableError(
            f"cannot write to the cache {root} ({error.strerror}); set FTAX_CACHE to another folder"
        ) from error
    try:
        facts = dict(make(fresh))
        _write_manifest(fresh, facts)
        place = _publish(fresh, folder)
    except BaseException as error:
        shutil.rmtree(fresh, ignore_errors=True)
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise UnavailableError(
                f"{root}: {error.strerror}; make room, or set FTAX_CACHE to another folder"
            ) from error
        raise
    return Artefact(folder=place, facts=facts, from_cache=False)


def write_through_memory(path: Path, save: Callable[[io.BytesIO], object]) -> None:
    """Write what ``save`` writes into a buffer to ``path``. torch is not given the path: where the
    disk is full its C++ writer throws while it is being destroyed, which ends the process.

    Raises UnavailableError, with how much is needed and how much is free, if it does not fit or
    cannot be written; nothing is left at ``path`` then.
    """
    buffer = io.BytesIO()
    save(buffer)
    content = buffer.getbuffer()
    try:
        with path.open("wb") as file:
            file.write(content)
    except OSError as error:
        with suppress(OSError):
            path.unlink()
        raise UnavailableError(
            f"{path} cannot be written ({error.strerror or error}): it takes {content.nbytes:,} "
            f"bytes, and {_find_free(path.parent)} are free there; make room, or choose another "
            "folder (FTAX_CACHE for what is kept, TMPDIR for what is not)"
        ) from error


def _make_temporary() -> Path:
    root = tempfile.mkdtemp(prefix="ftax-")
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    return Path(root)


def _publish(fresh: Path, folder: Path) -> Path:
    """Rename into place; where the artefact is then. Another process may have been faster: its
    artefact is as good as ours."""
    try:
        fresh.rename(folder)
    except OSError:  # something is in the way
        if _read_manifest(folder) is not None:
            shutil.rmtree(fresh, ignore_errors=True)
            return folder
        _remove(folder)
        try:
            fresh.rename(folder)
        except OSError:  # it stays: another's, or a mount
            atexit.register(shutil.rmtree, fresh, ignore_errors=True)
            return fresh
    return folder


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def _write_manifest(folder: Path, facts: Mapping[str, object]) -> None:
    # Files only: a folder in it is a cache that its owner goes on filling.
    digests = {path.name: _digest_file(path) for path in folder.iterdir() if path.is_file()}
    body = json.dumps({"facts": facts, "digests": digests}, indent=1).encode()
    seal = hashlib.new(_DIGEST, body).hexdigest().encode()
    (folder / _MANIFEST).write_bytes(seal + b"\n" + body)


def _read_manifest(folder: Path) -> dict[str, object] | None:
    """The facts of a sound artefact; None if it is missing, damaged or not ours."""
    try:
        file = folder / _MANIFEST
        if not file.is_file():  # to open a named pipe would wait for its other end
            return None
        seal, _, body = file.read_bytes().partition(b"\n")
        if hashlib.new(_DIGEST, body).hexdigest().encode() != seal:
            return None
        manifest = json.loads(body)
        sound = all(
            (folder / name).is_file() and _digest_file(folder / name) == digest
            for name, digest in manifest["digests"].items()
        )
        return dict(manifest["facts"]) if sound else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


_digests: dict[tuple[int, int, int, int], str] = {}  # of files that this process has read


def _digest_file(path: Path) -> str:
    """Digest of a file; of one that has not been written to since, without reading it again."""
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        key = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        if key not in _digests:
            _digests[key] = hashlib.file_digest(file, _DIGEST).hexdigest()
        return _digests[key]


def _named_tensors(module: nn.Module) -> list[tuple[str, torch.Tensor]]:
    return [*module.named_parameters(), *module.named_buffers()]


def _digest_module(digest: hashlib.blake2b, module: nn.Module) -> None:
    digest.update(repr(module).encode())
    digest.update(f"{type(module).__module__}.{type(module).__qualname__}".encode())
    for name, tensor in _named_tensors(module):
        digest.update(f"{name} {_digest_tensor(tensor)}".encode())


def _digest_tensor(tensor: torch.Tensor) -> str:
    kind = f"{tuple(tensor.shape)} {tensor.dtype} {tensor.layout}"
    digest = hashlib.blake2b(kind.encode(), digest_size=16)
    for part in list_dense(tensor) or (tensor.to_dense(),):
        digest.update(part.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _find_free(folder: Path) -> str:
    try:
        return f"{shutil.disk_usage(folder).free:,}"
    except OSError:
        return "an unknown number"
