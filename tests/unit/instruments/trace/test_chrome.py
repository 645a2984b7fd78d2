"""The trace file for viewers: slices where they belong, and arrows that both ends agree on."""

import gzip
import json

import pytest

from ftax import InvalidArgumentError
from ftax.instruments.trace.activities import Overhead
from ftax.instruments.trace.chrome import make_chrome_events, write_chrome_trace
from support.traces import make_call, make_kernel, make_memcpy, make_memset, make_trace

TRACE = make_trace(
    api_calls=(make_call(1010, 1050, 1),),
    kernels=(make_kernel(1100, 1350, "_Z1av", correlation_id=1),),
    memcpys=(make_memcpy(1400, 1410, stream_id=8),),
    memsets=(make_memset(1500, 1510, graph_id=3, graph_node_id=4),),
    overheads=(Overhead(overhead_kind="buffer flush", start_ns=1600, end_ns=1700),),
)


def find(events, **wanted):
    return [e for e in events if all(e.get(key) == value for key, value in wanted.items())]


def test_slices_are_in_microseconds_from_the_first_begin():
    events = make_chrome_events([TRACE])
    (kernel,) = find(events, ph="X", name="a")
    assert (kernel["ts"], kernel["dur"]) == (0.1, 0.25)
    assert kernel["args"]["kernel"] == "a()"
    assert kernel["args"]["grid"] == [2, 1, 1]
    (call,) = find(events, name="cudaLaunchKernel")
    assert (call["ts"], call["dur"]) == (0.01, 0.04)
    (fill,) = find(events, name="memset")
    assert (fill["args"]["graph"], fill["args"]["node"]) == (3, 4)
    assert len(find(events, name="iteration 0")) == 1
    assert len(find(events, name="buffer flush")) == 1


def test_each_stream_and_thread_has_a_row_with_a_name():
    events = make_chrome_events([TRACE])
    names = {e["tid"]: e["args"]["name"] for e in find(events, name="thread_name")}
    assert set(names.values()) == {
        "iterations",
        "profiler overhead",
        "API calls, thread 42",
        "device 0, stream 7",
        "device 0, stream 8",
    }
    assert {e["tid"] for e in find(events, ph="X")} == set(names)
    (kernel,) = find(events, ph="X", name="a")
    assert names[kernel["tid"]] == "device 0, stream 7"


def test_an_arrow_leads_from_the_call_to_its_kernel():
    events = make_chrome_events([TRACE])
    (start,), (end,) = find(events, ph="s"), find(events, ph="f")
    (call,), (kernel,) = find(events, name="cudaLaunchKernel"), find(events, ph="X", name="a")
    assert start["id"] == end["id"]
    assert (start["tid"], start["ts"]) == (call["tid"], call["ts"])
    assert (end["tid"], end["ts"]) == (kernel["tid"], kernel["ts"])


def test_each_rung_is_a_process_and_arrows_do_not_cross():
    events = make_chrome_events([TRACE, TRACE])
    assert [e["pid"] for e in find(events, name="process_name")] == [1, 2]
    assert {e["pid"] for e in events} == {1, 2}
    ids = [e["id"] for e in find(events, ph="s")]
    assert len(set(ids)) == 2


@pytest.mark.parametrize(("name", "read"), [("t.json", bytes), ("t.json.gz", gzip.decompress)])
def test_the_file_is_json_and_gzipped_by_its_name(tmp_path, name, read):
    write_chrome_trace([TRACE], tmp_path / name)
    content = json.loads(read((tmp_path / name).read_bytes()))
    assert content["traceEvents"] == make_chrome_events([TRACE])


def test_no_time_of_writing_is_in_the_file(tmp_path):
    write_chrome_trace([TRACE], tmp_path / "t.json.gz")
    assert (tmp_path / "t.json.gz").read_bytes()[4:8] == bytes(4)  # MTIME of RFC 1952


def test_no_traces_are_refused(tmp_path):
    with pytest.raises(InvalidArgumentError, match="at least one"):
        write_chrome_trace([], tmp_path / "t.json")
