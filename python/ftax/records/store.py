"""Results files: one record a line, appended so that no crash and no second writer can harm them.

A line goes out in a single write, under a lock, to a descriptor that appends. A crash can then only
leave a piece of the last line, and the next writer starts a new line behind that piece: it is
never repaired, since nobody knows what it was, and never merged with what follows. A last line that
lacks nothing but its line feed is whole, and read as such. A writer that fails leaves the file as
it was, and none where there was none.
"""

import contextlib
import fcntl
import json
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Protocol

from ftax.errors import FtaxError, ResultsError, describe_value, shorten
from ftax.records.kinds import KINDS, find

# A change that another ftax would misread, or that makes ftax compute other statistics from the
# same samples, needs a new number. No other version is read.
SCHEMA_VERSION = 6

COMPRESSED = (".gz", ".xz")  # endings of files that are read as they are, and not appended to

_PREFIX = b'{"ftax_schema":'
_GZIP, _XZ = b"\x1f\x8b", b"\xfd7zXZ\0"  # how these files begin
MEND = "delete the line, or read the rest in Python: ftax.read_records(path, skip_bad=True)"
_ELSEWHERE = "choose another path"
_MOST_CHARACTERS = 1000  # of what is wrong with a line


class Storable(Protocol):
    """What a results file can hold, if `KINDS` has its kind."""

    @property
    def kind(self) -> str:
        """The name under which the record is registered."""

    def to_dict(self) -> dict[str, object]:
        """Return plain dicts, lists and scalars."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadResult:
    """A file's records in the order of its lines, and what could not be read, one text each.

    `lines` has the number of each record's line, from 1.
    """

    records: tuple[Any, ...]
    lines: tuple[int, ...]
    problems: tuple[str, ...]


def append_record(path: str | Path, record: Storable) -> None:
    """Append one record to the results file `path`, which is created where it is missing.

    Returns when the line is on the disk. Safe beside other writers and readers.

    Raises:
        ResultsError: the record could not be read back, `path` is compressed or no results file, or
            the disk refuses; the file is then as it was.
    """
    line = make_line(record).encode("ascii") + b"\n"
    _check_alone(path)
    try:
        with _locked(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, fcntl.LOCK_EX) as descriptor:
            _append_line(path, descriptor, line)
    except OSError as error:
        _refuse_file(path, error, "choose a path that can be written")


def check_appendable(path: str | Path) -> None:
    """Raise ResultsError if nothing could be appended to `path`; ask before minutes of measuring.

    Nothing is written. A disk may still be full later.
    """
    _check_alone(path)
    try:
        if os.path.lexists(path):
            with _locked(path, os.O_RDWR | os.O_APPEND, fcntl.LOCK_SH) as descriptor:
                _check_prefix(path, descriptor)
        elif not os.access(folder := Path(path).absolute().parent, os.W_OK | os.X_OK):
            why = "may not be written to" if folder.is_dir() else "does not exist"
            raise ResultsError(f"{path}: its folder {why}; choose a path that can be written")
    except OSError as error:
        _refuse_file(path, error, "choose a path that can be written")


def read_records(path: str | Path, *, skip_bad: bool = False) -> ReadResult:
    """Read a results file, checking every field of every record.

    Empty lines are passed over. With `skip_bad`, lines that cannot be read are listed as problems.
    A file that gzip or xz compressed is read as it is.

    Raises:
        ResultsError: the file cannot be read at all; or, without `skip_bad`, one of its lines
            cannot, or it is empty. The message has the file, the line, what was found, and the
            remedy.
    """
    try:
        with (
            _locked(path, os.O_RDONLY, fcntl.LOCK_SH) as descriptor,
            open(descriptor, "rb", closefd=False) as file,
        ):
            content = _unpack(path, file.read())
    except OSError as error:
        _refuse_file(path, error, "choose a results file")
    records, lines, problems = [], [], []
    for number, line in enumerate(content.split(b"\n"), start=1):
        try:
            if line.strip():
                records.append(_parse_line(line))
                lines.append(number)
        except ResultsError as error:
            problems.append(f"{path}:{number}: {error}")
    if not records and not problems:
        problems.append(f"{path}:1: the file is empty; write a measurement to it first")
    if problems and not skip_bad:
        if not records and content.strip() and not content.lstrip().startswith(_PREFIX):
            raise ResultsError(
                f"{path} is no results file of ftax (it begins with {content.strip()[:20]!r}): "
                "give one that --json or -o wrote"
            )
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise ResultsError(problems[0] + more)
    return ReadResult(records=tuple(records), lines=tuple(lines), problems=tuple(problems))


def find_results(path: str | Path) -> Path | None:
    """The file `path`, else the one that is compressed (`cells.jsonl.xz`); None without either."""
    places = [Path(path), *(Path(f"{path}{ending}") for ending in COMPRESSED)]
    return next((place for place in places if place.exists()), None)


def make_line(record: Storable) -> str:
    """The record as the line of a results file, without its line feed.

    Raises ResultsError if it could not be read back.
    """
    fields = {"ftax_schema": SCHEMA_VERSION, "kind": record.kind, "record": record.to_dict()}
    line = json.dumps(fields, allow_nan=False, separators=(",", ":"))
    _parse_line(line.encode("ascii"))  # what cannot be read must not be written
    return line


@contextlib.contextmanager
def _locked(path: str | Path, flags: int, operation: int) -> Iterator[int]:
    # Not blocking: to open a named pipe would wait for its other end. Regular files ignore it.
    flags |= os.O_CLOEXEC | os.O_NONBLOCK
    while True:
        descriptor, is_new = _open(path, flags)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ResultsError(f"{path} is no regular file; choose a results file")
            fcntl.flock(descriptor, operation)
            try:
                if not _is_at(path, descriptor):
                    continue  # who made it could not write, and has removed it meanwhile
                yield descriptor
                return
            except BaseException:
                if is_new and os.fstat(descriptor).st_size == 0:
                    os.unlink(os.path.realpath(path))
                raise
            finally:
                # Closing would not unlock while a forked child still has the descriptor.
                fcntl.flock(descriptor, fcntl.LOCK_UN)
        finally:
            os.close(descriptor)


def _open(path: str | Path, flags: int) -> tuple[int, bool]:
    """The descriptor of a file, and whether it was made for it."""
    if flags & os.O_CREAT:
        with contextlib.suppress(FileExistsError):
            return os.open(os.path.realpath(path), flags | os.O_EXCL, 0o666), True
    return os.open(path, flags, 0o666), False


def _is_at(path: str | Path, descriptor: int) -> bool:
    """Whether the file is still the one that is found at ``path``."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _append_line(path: str | Path, descriptor: int, line: bytes) -> None:
    size = os.fstat(descriptor).st_size
    _check_prefix(path, descriptor)
    if size > 0 and os.pread(descriptor, 1, size - 1) != b"\n":
        line = b"\n" + line  # a writer was stopped in the middle of a line: leave it behind
    try:
        written = os.write(descriptor, line)
        if written != len(line):
            raise OSError(f"only {written} of {len(line)} bytes were written; is the disk full?")
        os.fsync(descriptor)
        if size == 0:
            _sync_directory(path)
    except BaseException:  # Ctrl-C too
        os.ftruncate(descriptor, size)
        raise


def _check_alone(path: str | Path) -> None:
    """Raise ResultsError where `path` would hide the compressed file of its name."""
    found = find_results(path)
    if found is not None and found != Path(path):
        raise ResultsError(
            f"{found} holds records and can only be read; unpack it, or {_ELSEWHERE}"
        )


def _check_prefix(path: str | Path, descriptor: int) -> None:
    start = os.pread(descriptor, len(_PREFIX), 0)
    if start.startswith((_GZIP, _XZ)):
        raise ResultsError(f"{path} is compressed and can only be read; unpack it, or {_ELSEWHERE}")
    if start != _PREFIX[: len(start)]:
        raise ResultsError(
            f"{path}:1: starts with {start!r} and not with {_PREFIX!r}, so it is no results file; "
            f"{_ELSEWHERE}"
        )


def _unpack(path: str | Path, content: bytes) -> bytes:
    """What was compressed, by the bytes that it begins with; all else as it is."""
    if not content.startswith((_GZIP, _XZ)):
        return content
    import gzip  # here, for a Python that was built without them
    import lzma
    import zlib

    try:
        return gzip.decompress(content) if content.startswith(_GZIP) else lzma.decompress(content)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise ResultsError(
            f"{path}: cannot be unpacked ({type(error).__name__}: {error}); restore the file"
        ) from error


def _sync_directory(path: str | Path) -> None:
    # A new file's name is data of its directory, and survives a crash only if that is synced too.
    descriptor = os.open(Path(path).absolute().parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _parse_line(line: bytes) -> Any:
    try:
        return _read_line(line)
    except ResultsError as error:
        if len(str(error)) <= _MOST_CHARACTERS:
            raise
        # What is wrong, and the remedy; between them stands what the line brought along.
        raise ResultsError(shorten(str(error), _MOST_CHARACTERS)) from error


def _read_line(line: bytes) -> Any:
    try:
        fields = json.loads(
            line.decode("utf-8"), object_pairs_hook=_make_object, parse_constant=_refuse_constant
        )
    except (ValueError, RecursionError, MemoryError) as error:
        raise ResultsError(
            f"not a whole line of JSON ({type(error).__name__}: {error}): its writer was stopped "
            f"in the middle of it, or the file is damaged; {MEND}"
        ) from error
    if not isinstance(fields, dict) or "ftax_schema" not in fields:
        raise ResultsError(f"JSON, but no record of ftax: it has no 'ftax_schema'; {MEND}")
    version = fields.pop("ftax_schema")
    if type(version) is not int or version != SCHEMA_VERSION:
        raise ResultsError(
            f"has schema version {describe_value(version)}, while this ftax reads "
            f"{SCHEMA_VERSION}; measure again, or {MEND}"
        )
    if set(fields) != {"kind", "record"} or not isinstance(fields["record"], dict):
        raise ResultsError(
            f"has {sorted(fields)} beside the schema version, where 'kind' and an object 'record' "
            f"belong; {MEND}"
        )
    kind = fields["kind"]
    known = {name: found.record for name, found in KINDS.items() if found.record}
    if not isinstance(kind, str) or kind not in known:
        raise ResultsError(
            f"kind {describe_value(kind)} is unknown, while this ftax knows {sorted(known)}; "
            f"install a newer ftax, or {MEND}"
        )
    reader = find(known[kind])
    try:
        return reader.from_dict(fields["record"])
    except FtaxError as error:
        raise ResultsError(f"{kind}: {error}; {MEND}") from error
    except Exception as error:  # a record of another program stumbles anywhere, and is just as bad
        raise ResultsError(
            f"{kind}: cannot be read ({type(error).__name__}: {error}); {MEND}"
        ) from error


def _make_object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("an object has the same key twice")
    return fields


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _refuse_file(path: str | Path, error: OSError, remedy: str) -> NoReturn:
    raise ResultsError(f"{path}: {error.strerror or error}; {remedy}") from error
