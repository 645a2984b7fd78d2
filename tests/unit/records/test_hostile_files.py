"""Lines that are JSON and no records: each is refused by name, skipped and counted, and none stops
the reader or fills the terminal."""

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from ftax.errors import InvalidArgumentError, ResultsError
from ftax.ladders.verdict import compare
from ftax.records.store import MEND, SCHEMA_VERSION, append_record, read_records
from ftax.reports.html.page import write_report
from ftax.timing.cell import Cell
from ftax.timing.differences import HostComparison
from support import traces
from support.records import make_measurement
from support.report_results import make_environments, make_knee

MOST_CHARACTERS = 1200


def nest(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


def make_line(kind: object, record: object, version: object = SCHEMA_VERSION) -> bytes:
    fields = {"ftax_schema": version, "kind": kind, "record": record}
    return json.dumps(fields).encode()


def measure(**changes: object) -> dict[str, object]:
    return {**make_measurement([100, 101]).to_dict(), **changes}


HOSTILE = {
    "checks that are nested deep": make_line("measurement", measure(checks={"a": nest(400)})),
    "a record nested deep": make_line("measurement", {"samples_ns": nest(400)}),
    "a receipt of nothing": make_line("receipt", {"unavailable": None}),
    "a kind that is nested deep": make_line(nest(400), {}),
    "a kind of a megabyte": make_line("k" * 1_000_000, {}),
    "a version of a megabyte": make_line("measurement", {}, "4" * 1_000_000),
    "a field name of a megabyte": make_line("measurement", {"k" * 1_000_000: 1}),
    "many fields": make_line("measurement", {f"field{i}": i for i in range(20_000)}),
    "a long list for a record": make_line("measurement", [1] * 1_000_000),
    "a long text for a number": make_line("measurement", measure(warmup_count="x" * 1_000_000)),
    "a sample of 64 bits": make_line("measurement", measure(samples_ns=[2**63])),
    "a sample of many digits": make_line("measurement", measure()).replace(b"100", b"9" * 5000),
    "a number too large for a float": make_line("measurement", measure()).replace(b"100", b"1e999"),
    "infinity": make_line("measurement", measure(checks={"a": float("inf")})),
    "the same field twice": make_line("measurement", measure())[:-1] + b',"kind":"x"}',
    "zero bytes": b"\0" * 1_000_000,
    "another encoding": make_line("measurement", measure()).decode().encode("utf-16"),
    "a byte order mark": b"\xef\xbb\xbf" + make_line("measurement", measure()),
    "brackets": b"[" * 1_000_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_line_is_skipped_and_told_in_brief(tmp_path, name):
    path = tmp_path / "results.jsonl"
    good = make_line("measurement", measure())
    path.write_bytes(b"\n".join([good, HOSTILE[name].replace(b"\n", b" "), good]))
    result = read_records(path, skip_bad=True)
    assert (result.lines, len(result.problems)) == ((1, 3), 1)
    with pytest.raises(ResultsError) as caught:
        read_records(path)
    for text in (result.problems[0], str(caught.value)):
        assert text.startswith(f"{path}:2: ") and text.endswith(MEND)
        assert len(text) < MOST_CHARACTERS


def list_places(value: object, place: tuple[object, ...] = ()) -> Iterator[tuple[object, ...]]:
    yield place
    if isinstance(value, dict):
        for key, item in value.items():
            yield from list_places(item, (*place, key))
    elif isinstance(value, list):
        for index, item in enumerate(value[:2]):
            yield from list_places(item, (*place, index))


def put(line: bytes, place: tuple[object, ...], value: object) -> bytes:
    fields = json.loads(line)
    parent = fields
    for key in place[:-1]:
        parent = parent[key]
    if place:
        parent[place[-1]] = value
    return json.dumps(fields if place else value).encode()


VALUES = (None, True, -1, 0, 2**62, 2**63, 10**30, 1e308, "", "\ud800\0", [], {}, [[]], nest(400))


def make_records() -> list[object]:
    a, b = make_measurement([100, 101, 99, 100]), make_measurement([120, 121, 119, 120], host="cpp")
    return [
        a,
        compare([a], [b]),
        HostComparison(
            python=make_measurement([100, 101]), cpp=make_measurement([9, 8], host="cpp")
        ),
        make_knee("eager", make_environments()[0], last_on=4),
        traces.make_trace(),
    ]


@pytest.mark.parametrize("index", range(5))
def test_no_value_in_any_field_of_a_record_stops_the_reader(tmp_path, index):
    path = tmp_path / "results.jsonl"
    append_record(path, make_records()[index])
    (line,) = path.read_bytes().splitlines()
    lines = [put(line, place, value) for place in list_places(json.loads(line)) for value in VALUES]
    path.write_bytes(b"\n".join(lines))
    result = read_records(path, skip_bad=True)
    assert len(result.records) + len(result.problems) == len(lines)
    assert len(result.problems) > len(lines) / 2
    assert max(map(len, result.problems)) < MOST_CHARACTERS


def test_a_name_that_is_no_unicode_can_be_stored_read_and_put_on_a_page(tmp_path):
    """A path that is not UTF-8 has lone surrogates in Python."""
    path, page = tmp_path / "results.jsonl", tmp_path / "page.html"
    measurement = make_measurement([100, 101])
    name = "m\udcff</script>\u202e"
    append_record(path, replace(measurement, cell=replace(measurement.cell, model=name)))
    assert read_records(path).records[0].cell.model == name
    write_report([path], page)
    content = page.read_bytes()
    assert b"m\\udcff" in content and b"m\\udcff</script>" not in content
    assert rb"\u202e" in content and "\u202e".encode() not in content


def test_a_record_tells_of_a_value_that_cannot_be_written_out():
    for value in (10**5000, nest(10_000), "x" * 10_000_000):
        with pytest.raises(InvalidArgumentError, match=r"Cell\.batch.*") as caught:
            Cell(**{**make_measurement([1, 2]).cell.to_dict(), "batch": value})
        assert len(str(caught.value)) < MOST_CHARACTERS
