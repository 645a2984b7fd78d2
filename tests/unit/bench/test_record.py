"""Processes of a benchmark: those that ended count, whatever limit is set for more of them."""

import argparse
import lzma
import sys

import pytest

import record
from ftax.errors import RunnerError


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Time that passes only while a worker runs, ten seconds each."""
    now = [0.0]

    def run(command, **_options):
        now[0] += 10.0
        return {"worker": len(command)}

    monkeypatch.setattr(record.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(record, "run_json", run)
    return now


@pytest.mark.parametrize(
    ("limit", "count"), [(None, 5), (100.0, 5), (49.0, 4), (30.0, 3), (10.0, 1), (1.0, 1)]
)
def test_no_process_begins_that_would_end_after_the_limit(clock, limit, count) -> None:
    options = argparse.Namespace(processes=5, quick=False, workers_limit=limit)
    assert len(record.run_workers("bench/x.py", options)) == count


def test_the_limit_is_an_option_and_a_worker_still_is_one() -> None:
    options = record.make_parser("A figure.").parse_args(["--worker", "--workers-limit", "60"])
    assert (options.worker, options.workers_limit) == (True, 60.0)


def test_parts_are_kept_as_they_come_and_given_again(tmp_path) -> None:
    options = argparse.Namespace(
        results=tmp_path, quick=False, device="cpu", tiny=True, only="", time_limit=1e9
    )

    def fail() -> dict[str, int]:
        raise SystemExit(9)  # as a kill would end it

    with pytest.raises(SystemExit):
        record.take_parts("bench/some.py", {"one": lambda: {"n": 1}, "two": fail}, options)
    found = record.take_parts("bench/some.py", {"two": lambda: {"n": 2}}, options)
    assert found == {"one": {"n": 1}, "two": {"n": 2}}
    again = record.take_parts("bench/some.py", {"one": lambda: {"n": 3}}, options)
    assert again == {"one": {"n": 3}, "two": {"n": 2}}

    def break_now() -> dict[str, int]:
        raise RuntimeError("broken now")

    assert record.take_parts("bench/some.py", {"two": break_now}, options) == {"one": {"n": 3}}
    options.tiny = False  # another study
    assert record.take_parts("bench/some.py", {}, options) == {}
    lines = record.read_lines(tmp_path / "some_parts.jsonl")
    assert [line["part"] for line in lines] == ["one", "two", "one"]
    assert all(line["environment"]["host"] for line in lines)


@pytest.mark.parametrize(("only", "taken"), [("llama", ["llama"]), ("lla", ["llama", "llama-1b"])])
def test_a_whole_name_is_that_part_alone(tmp_path, only: str, taken: list[str]) -> None:
    options = argparse.Namespace(
        results=tmp_path, quick=False, device="cpu", tiny=True, only=only, time_limit=1e9
    )
    wanted = {name: lambda: {"n": 1} for name in ("gpt2", "llama", "llama-1b")}
    assert [*record.take_parts("bench/some.py", wanted, options)] == taken


def test_a_record_is_appended_to_the_compressed_file_where_there_is_one(tmp_path) -> None:
    path = tmp_path / "some.jsonl"
    record.append_line(path, {"n": 1})
    packed = path.with_name("some.jsonl.xz")
    packed.write_bytes(lzma.compress(path.read_bytes()))
    path.unlink()
    record.append_line(path, {"n": 2})
    assert not path.exists()
    assert record.read_lines(path) == [{"n": 1}, {"n": 2}]


def test_a_worker_out_of_time_is_named_by_its_last_line() -> None:
    code = "import sys, time; print('preparing aoti', file=sys.stderr, flush=True); time.sleep(9)"
    with pytest.raises(RunnerError, match="not done after 1 s; its last line: preparing aoti"):
        record.run_json([sys.executable, "-c", code], timeout_s=1.0)
