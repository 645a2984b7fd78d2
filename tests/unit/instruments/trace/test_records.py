"""The trace as a record: what belongs to which iteration, and that it survives a file."""

import dataclasses
import json
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftax import InvalidArgumentError, ResultsError
from ftax.instruments.trace.activities import Kernel, Overhead
from ftax.instruments.trace.records import Trace
from ftax.machines.environment import collect_environment
from ftax.records.store import read_records
from support.traces import (
    make_call,
    make_kernel,
    make_memcpy,
    make_memset,
    make_repeated_trace,
    make_trace,
    make_window,
)


def make_full_trace(**changes):
    fields = {
        "iterations": (make_window(1000, 2000), make_window(2000, 3000)),
        "kernels": (
            make_kernel(1100, 1200, "_Z1av", correlation_id=1, graph_id=5, graph_node_id=2**63),
            make_kernel(2100, 2200, "_Z1av", correlation_id=2, grid=(1, 2, 3)),
        ),
        "memcpys": (make_memcpy(1300, 1400), make_memcpy(2300, 2400, copy_kind="DtoH")),
        "memsets": (make_memset(1500, 1600, value=255),),
        "api_calls": (make_call(1010, 1020, 1), make_call(2010, 2020, 2, domain="driver")),
        "overheads": (Overhead(overhead_kind="buffer flush", start_ns=1700, end_ns=1800),),
        "dropped_records": 3,
        "buffers": 2,
        "cupti_file": "libcupti.so.13",
        "cupti_version": 130000,
        "problems": ("a problem",),
    }
    return make_trace(**{**fields, **changes})


def make_raw(**changes):
    kernel = make_kernel(1100, 1200, "_Z1av", correlation_id=1)
    fields = {
        "iterations": [(1000, 1500, 2000)],
        "kernels": [SimpleNamespace(**{f: getattr(kernel, f) for f in list_fields(Kernel)})],
        "memcpys": [make_memcpy(1300, 1400)],
        "memsets": [],
        "api_calls": [make_call(1010, 1020, 1)],
        "overheads": [],
        "dropped_records": 0,
        "buffers": 1,
        "cupti_file": "/somewhere/libcupti.so.13",
        "cupti_version": 130000,
        "problems": [],
    }
    return SimpleNamespace(**{**fields, **changes})


def list_fields(kind):
    return [field.name for field in dataclasses.fields(kind)]


def from_raw(**changes):
    return Trace.from_raw(
        make_raw(**changes), model="mlp", runtime="eager", host="cpp", device="cuda"
    )


def test_a_raw_trace_becomes_records():
    trace = from_raw()
    assert trace.kernels == (make_kernel(1100, 1200, "_Z1av", correlation_id=1),)
    assert trace.iterations[0].issued_ns == 1500
    assert trace.label == "mlp eager/cpp cuda"


def test_no_path_of_the_machine_is_kept():
    assert from_raw().cupti_file == "libcupti.so.13"


def test_lists_of_sizes_are_taken_as_a_binding_gives_them():
    kernel = SimpleNamespace(
        **{f: getattr(make_kernel(1, 2), f) for f in list_fields(Kernel) if f != "grid"},
        grid=[4, 5, 6],
    )
    assert from_raw(kernels=[kernel]).kernels[0].grid == (4, 5, 6)


@pytest.mark.parametrize("environment", [None, collect_environment()])
def test_a_trace_survives_a_file(tmp_path, environment):
    trace = make_full_trace(environment=environment)
    trace.save(tmp_path / "traces.jsonl")
    assert Trace.load(tmp_path / "traces.jsonl") == (trace,)


@given(
    times=st.lists(
        st.tuples(st.integers(-(2**40), 2**62), st.integers(-(2**40), 2**62)), max_size=4
    ),
    sizes=st.tuples(*[st.integers(0, 2**32)] * 3),
)
def test_any_trace_survives_its_dict_however_wrong_its_times(times, sizes):
    trace = make_trace(
        kernels=tuple(make_kernel(*pair, "a", grid=sizes) for pair in times),
        memsets=tuple(make_memset(*pair) for pair in times),
        api_calls=tuple(make_call(*pair, 1) for pair in times),
    )
    assert Trace.from_dict(json.loads(json.dumps(trace.to_dict()))) == trace


def test_a_trace_of_15000_rows_stays_small():
    names = [f"_Z{'kernel' * 20}{number}" for number in range(40)]
    trace = make_repeated_trace(*names * 9, iterations=20)
    assert len(trace.kernels) + len(trace.api_calls) == 14_400
    assert len(json.dumps(trace.to_dict(), separators=(",", ":"))) < 800_000


def test_a_truncated_file_is_refused(tmp_path):
    path = tmp_path / "traces.jsonl"
    make_full_trace().save(path)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(ResultsError, match="not a whole line of JSON"):
        Trace.load(path)
    assert read_records(path, skip_bad=True).records == ()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda rows: rows["kernels"][0].pop(), r"kernels\[0\] has 7 columns; it has to have 8"),
        (lambda rows: rows["kernels"][1].__setitem__(0, 9), "there is no shape 9; the table has 2"),
        (lambda rows: rows["shapes"][0].__setitem__(0, -1), "there is no name -1"),
        (lambda rows: rows["shapes"][0].pop(), r"shape 0 has 9 columns"),
        (lambda rows: rows["names"].clear(), "the table has 0"),
        (lambda rows: rows["api_calls"][0].__setitem__(0, 0), "ApiCall.domain"),
        (lambda rows: rows["memsets"][0].__setitem__(1, -5), "Memset.bytes is -5"),
        (lambda rows: rows["iterations"][0].__setitem__(1, -5), "in this order"),
        (lambda rows: rows.pop("overheads"), "lacks 'overheads'"),
    ],
)
def test_damaged_rows_are_refused_with_their_place(damage, message):
    data = json.loads(json.dumps(make_full_trace().to_dict()))
    damage(data["rows"])
    with pytest.raises(ResultsError, match=message):
        Trace.from_dict(data)


def test_a_trace_without_rows_is_refused():
    data = make_full_trace().to_dict()
    del data["rows"]
    with pytest.raises(ResultsError, match=r"Trace\.rows is None"):
        Trace.from_dict(data)


def test_a_record_belongs_to_the_iteration_in_which_it_starts():
    late = make_kernel(1990, 2010, "late")
    trace = make_full_trace(kernels=(late, make_kernel(1100, 1200, "early")))
    first, second = trace.split()
    assert [kernel.name for kernel in first.kernels] == ["early", "late"]
    assert second.kernels == ()
    assert [call.correlation_id for call in second.api_calls] == [2]


def test_activities_of_an_iteration_come_in_the_order_of_their_start():
    part = make_full_trace().split()[0]
    assert [item.start_ns for item in part.activities] == [1100, 1300, 1500]


def test_what_lies_between_iterations_belongs_to_none():
    windows = (make_window(1000, 2000), make_window(3000, 4000))
    stray = make_kernel(2500, 2600)
    trace = make_trace(iterations=windows, kernels=(stray, make_kernel(2000, 2001)))
    assert trace.find_outside() == (stray,)
    assert len(trace.split()[0].kernels) == 1


def test_all_iterations_are_split_as_one_is_found():
    edges = [1000, 1500, 1500, 1500, 2500, 3000, 3500, 4000]  # windows touch, one has no length
    windows = tuple(make_window(*edges[at : at + 2]) for at in (0, 2, 3, 6))
    kernels = [make_kernel(start, start + 700, str(start)) for start in range(900, 4200, 50)]
    trace = make_trace(iterations=windows, kernels=tuple(reversed(kernels)))
    edges_of_begin = [*(window.begin_ns for window in windows), 10_000]
    for index, part in enumerate(trace.split()):
        following = edges_of_begin[index + 1]
        own = [item for item in kernels if windows[index].begin_ns <= item.start_ns < following
               and item.start_ns <= windows[index].end_ns]  # fmt: skip
        assert list(part.kernels) == own
    assert [len(part.kernels) for part in trace.split()] == [10, 0, 21, 11]


def test_overlapping_iterations_are_refused():
    with pytest.raises(InvalidArgumentError, match="they have to be in order"):
        make_trace(iterations=(make_window(1000, 2000), make_window(1500, 2500)))


@pytest.mark.parametrize("times", [(2000, 1500, 1000), (1000, 2500, 2000), (-1, 0, 1)])
def test_an_iteration_in_which_time_runs_backwards_is_refused(times):
    with pytest.raises(InvalidArgumentError, match="in this order"):
        from_raw(iterations=[times])
