"""Results files: what a line looks like, and what becomes of one that is cut or damaged."""

import gzip
import json
import lzma
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ftax.errors import ResultsError
from ftax.records.kinds import KINDS, Kind
from ftax.records.record import Count, Record
from ftax.records.store import (
    SCHEMA_VERSION,
    append_record,
    check_appendable,
    find_results,
    read_records,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Note(Record):
    """The smallest thing that can be stored."""

    kind: ClassVar[str] = "test-note"

    number: Count
    text: str = ""


KINDS[Note.kind] = Kind(record=f"{__name__}:Note")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "results.jsonl"


def test_a_line_looks_as_documented(path):
    append_record(path, Note(number=1, text="µs"))
    assert path.read_bytes() == (
        b'{"ftax_schema":6,"kind":"test-note","record":{"number":1,"text":"\\u00b5s"}}\n'
    )


def test_records_come_back_in_the_order_of_their_lines(path):
    notes = tuple(Note(number=number) for number in range(5))
    for note in notes:
        append_record(path, note)
    assert read_records(path).records == notes
    assert read_records(path).problems == ()


def test_a_file_cut_at_any_byte_loses_only_its_last_record(path):
    for number in range(2):
        append_record(path, Note(number=number, text="some text"))
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for cut in range(first, len(whole) + 1):
        path.write_bytes(whole[:cut])
        lost = first < cut < len(whole) - 1
        if lost:
            with pytest.raises(
                ResultsError, match=rf"{path}:2: not a whole line of JSON .*skip_bad"
            ):
                read_records(path)
        append_record(path, Note(number=9))
        result = read_records(path, skip_bad=True)
        numbers = [note.number for note in result.records]
        assert numbers == ([0, 9] if lost or cut == first else [0, 1, 9])
        assert len(result.problems) == lost
        assert path.read_bytes().startswith(whole[:cut])


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=40).filter(lambda junk: b"\n" not in junk and junk.strip()))
def test_no_content_of_a_line_reaches_its_neighbours(tmp_path_factory, junk):
    path = tmp_path_factory.mktemp("junk") / "r.jsonl"
    append_record(path, Note(number=0))
    with path.open("ab") as file:
        file.write(junk)
    append_record(path, Note(number=1))
    result = read_records(path, skip_bad=True)
    assert result.records == (Note(number=0), Note(number=1))
    assert len(result.problems) == 1


def make_line(**changes):
    fields = {
        "ftax_schema": SCHEMA_VERSION,
        "kind": "test-note",
        "record": Note(number=3).to_dict(),
    }
    return json.dumps({**fields, **changes})


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (make_line(ftax_schema=0), r"schema version 0, while this ftax reads 6"),
        (make_line(ftax_schema=5), "has schema version 5, while"),
        (make_line(ftax_schema=7), "schema version 7"),
        (make_line(ftax_schema="1"), "schema version '1'"),
        (make_line(ftax_schema=True), "schema version True"),
        (make_line(ftax_schema=1.0), r"schema version 1\.0"),
        (make_line(kind="poem"), r"kind 'poem' is unknown, while this ftax knows \["),
        (make_line(kind=["test-note"]), "is unknown"),
        (make_line(record=[1]), "an object 'record'"),
        (make_line(more=1), "has .*'more'"),
        (make_line(record={"number": -1, "text": ""}), r"test-note: Note\.number is -1"),
        (make_line(record={"number": 1}), "test-note: Note lacks 'text'"),
        (make_line(record={"number": 1, "text": "", "x": 0}), "has the unknown 'x'"),
        (make_line(record={"number": float("nan"), "text": ""}), "NaN is not JSON"),
        (make_line()[:-1] + ',"kind":"test-note"}', "the same key twice"),
        ('{"name": "somebody else"}', "JSON, but no record of ftax"),
        ("[1, 2]", "JSON, but no record of ftax"),
        ("null", "JSON, but no record of ftax"),
        ('"text"', "JSON, but no record of ftax"),
        ("42", "JSON, but no record of ftax"),
        ("[" * 100_000, "RecursionError"),
        ("plain text", "not a whole line of JSON"),
        ("\0" * 30, "not a whole line of JSON"),
        (b"\x1f\x8b\x08\xff\xfe", "UnicodeDecodeError"),
    ],
)
def test_a_bad_line_is_named_with_file_line_finding_and_remedy(path, line, said):
    good = make_line().encode()
    bad = line if isinstance(line, bytes) else line.encode()
    path.write_bytes(good + b"\n" + bad + b"\n" + good + b"\n")
    with pytest.raises(ResultsError, match=rf"{path}:2: .*{said}.*; "):
        read_records(path)
    result = read_records(path, skip_bad=True)
    assert result.records == (Note(number=3), Note(number=3))
    assert len(result.problems) == 1


@pytest.mark.parametrize("text", ["import torch\n", '{"some": "json"}\n', "<html>\n\n", "\0\0"])
def test_a_file_that_is_no_results_file_is_told_so(path, text):
    path.write_text(text)
    with pytest.raises(ResultsError, match=rf"^{path} is no results file of ftax \(it begins with"):
        read_records(path)
    assert len(read_records(path, skip_bad=True).problems) == 1


def test_the_first_of_several_problems_is_told_and_the_rest_counted(path):
    path.write_text(f"{make_line()}\nx\ny\nz\n")
    with pytest.raises(ResultsError, match=r":2: .*\(and 2 more\)"):
        read_records(path)


def test_empty_lines_are_passed_over(path):
    path.write_text(f"\n{make_line()}\n\n  \n")
    assert read_records(path).records == (Note(number=3),)


def test_an_empty_file_is_an_error(path):
    path.touch()
    with pytest.raises(ResultsError, match=rf"{path}:1: the file is empty"):
        read_records(path)
    assert len(read_records(path, skip_bad=True).problems) == 1


def test_what_is_no_file_cannot_be_read_or_written(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(ResultsError, match=rf"{place}.*choose a"):
            read_records(place, skip_bad=True)
        with pytest.raises(ResultsError, match=rf"{place}.*choose a"):
            append_record(place, Note(number=0))
    with pytest.raises(ResultsError, match="No such file"):
        read_records(tmp_path / "missing.jsonl")
    with pytest.raises(ResultsError, match="No such file"):
        append_record(tmp_path / "missing" / "r.jsonl", Note(number=0))


@pytest.mark.parametrize("content", [b"# A page\n", b'{"name": 1}\n', b"\x89PNG\r\n", b"\n"])
def test_a_file_of_somebody_else_is_never_written_to(path, content):
    path.write_bytes(content)
    with pytest.raises(ResultsError, match="no results file; choose another path"):
        append_record(path, Note(number=0))
    assert path.read_bytes() == content


@pytest.mark.parametrize(("ending", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress)])
def test_a_compressed_file_is_read_and_never_written_to(path, ending, pack):
    notes = (Note(number=1), Note(number=2, text="more"))
    for note in notes:
        append_record(path, note)
    packed = path.with_name(f"{path.name}{ending}")
    packed.write_bytes(pack(path.read_bytes()))
    assert find_results(path) == path
    path.unlink()
    assert find_results(path) == packed
    assert read_records(packed).records == notes
    for place in (path, packed):  # a new file would hide what the compressed one holds
        with pytest.raises(ResultsError, match=rf"^{packed} .*can only be read; unpack it"):
            append_record(place, notes[0])
        with pytest.raises(ResultsError, match="can only be read; unpack it"):
            check_appendable(place)
    content = packed.read_bytes()
    packed.write_bytes(content[: len(content) // 2])
    with pytest.raises(ResultsError, match=rf"^{packed}: cannot be unpacked \(.*restore the file"):
        read_records(packed, skip_bad=True)
    packed.unlink()
    assert find_results(path) is None


def test_a_record_that_could_not_be_read_back_is_not_written(path):
    class Stranger:
        kind = "test-stranger"

        def to_dict(self):
            return {}

    with pytest.raises(ResultsError, match="kind 'test-stranger' is unknown"):
        append_record(path, Stranger())
    assert not path.exists()


def test_a_fresh_process_knows_every_kind_that_ftax_writes(path):
    kinds = sorted(name for name, kind in KINDS.items() if kind.record.startswith("ftax."))
    path.write_text("".join(make_line(kind=kind, record={}) + "\n" for kind in kinds))
    code = (
        "import ftax, sys\n"
        "print(*ftax.read_records(sys.argv[1], skip_bad=True).problems, sep='\\n')"
    )
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True)
    said = done.stdout.splitlines()
    assert len(said) == len(kinds) > 10, done.stderr
    for number, (kind, problem) in enumerate(zip(kinds, said, strict=True), start=1):
        # Read as what it is, by its own class, which finds it empty.
        assert problem.startswith(f"{path}:{number}: {kind}: ")
