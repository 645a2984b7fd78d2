"""Looking at alternatives on a GPU, with gates and traces made by hand."""

from dataclasses import replace

import pytest

from ftax.ladders.evidence import warn_of_evidence
from ftax.ladders.ladder import EAGER as EAGER_LADDER
from ftax.ladders.ladder import LIBRARY
from ftax.ladders.look import gate_runners, put_reference_first, trace_runners
from ftax.timing.candidate import Buffers, Candidate, Launches, Preparation
from support.evidence import EAGER, GRAPH, KERNELS, make_gate
from support.small_models import load_function
from support.traces import make_repeated_trace

LAUNCHES = Launches(
    count=7, types={"kernel": 2}, attributes={}, is_chain=True, lost_programmatic_edges=0
)
OTHER = ("onnxruntime", "cpp")


def look(monkeypatch, *, device_ns):
    """Eager, its graph, and an alternative with one kernel of its own; device busy for 100 ns."""
    asked = {}

    def trace(loaded, item, **options):
        names = ("a", "c") if item.runtime == "onnxruntime" else KERNELS
        return make_repeated_trace(*names, runtime=item.runtime, host=item.host)

    def gate(runner, *, launches, **options):
        asked[runner] = launches
        return make_gate(30, device_ns)

    monkeypatch.setattr("ftax.instruments.trace.tracer.trace_prepared", trace)
    monkeypatch.setattr("ftax.instruments.gate.measure_gate", gate)
    runners = [
        Candidate(
            runtime=place[0],
            host=place[1],
            runner=place[0],
            run=list,
            preparation=Preparation(launches=LAUNCHES),
        )
        for place in (EAGER, GRAPH, OTHER)
    ]
    loaded = load_function(lambda x: x + 1)
    found = trace_runners(loaded, runners, tuple(gate_runners(runners)))
    return [item for item, _ in found], asked


def test_an_alternative_has_evidence_and_other_kernels_are_no_warning(monkeypatch):
    found, asked = look(monkeypatch, device_ns=120)
    other = found[-1]
    assert (other.kernels, other.same_kernels, other.issue_ns) == (2, False, 30.0)
    assert other.difference
    assert warn_of_evidence(found) == []
    # The launches of the ladder say nothing of a runtime that makes its own.
    assert asked == {"eager": 7, "cuda-graph": 7, "onnxruntime": None}


@pytest.mark.parametrize(("launches", "times"), [(7, 20), (500, 10), (2_200, 5)])
def test_a_step_of_many_launches_is_traced_less_often(monkeypatch, launches, times):
    given = []

    def trace(loaded, item, *, iterations):
        given.append(iterations)
        return make_repeated_trace(*KERNELS, runtime=item.runtime, host=item.host)

    monkeypatch.setattr("ftax.instruments.trace.tracer.trace_prepared", trace)
    replay = Candidate(
        runtime="launch-replay", host="cpp", runner=None, run=list,
        preparation=Preparation(launches=replace(LAUNCHES, count=launches)),
    )  # fmt: skip
    eager = replace(replay, runtime="eager", host="python", preparation=Preparation())
    list(trace_runners(load_function(lambda x: x + 1), [eager, replay]))
    assert given == [times, times]


def test_the_rung_whose_kernels_others_have_to_run_is_traced_first():
    runners = [
        Candidate(runtime=runtime, host=host, runner=None, run=list)
        for runtime, host in (("library", "python"), EAGER, GRAPH)
    ]
    library, eager, graph = runners
    assert put_reference_first(runners, LIBRARY) == [eager, library, graph]
    assert put_reference_first([eager, graph], EAGER_LADDER) == [eager, graph]


def test_what_runs_past_the_gate_has_no_issue_time(monkeypatch):
    found, _ = look(monkeypatch, device_ns=49)
    assert [item.issue_ns for item in found] == [None] * 3
    assert "another stream" in found[-1].gate.reason
    held, _ = look(monkeypatch, device_ns=50)
    assert [item.issue_ns for item in held] == [30.0] * 3


def test_a_graph_is_held_against_the_launches_of_its_own_capture(monkeypatch):
    def trace(loaded, item, **options):
        return make_repeated_trace(*KERNELS, runtime=item.runtime, host=item.host)

    monkeypatch.setattr("ftax.instruments.trace.tracer.trace_prepared", trace)
    captured, other = (Buffers(inputs=(), outputs=(), constants=()) for _ in range(2))
    nodes = {"kernel": len(KERNELS) + 1}
    replay, graph, foreign = (
        Candidate(
            runtime=name,
            host="cpp",
            runner=None,
            run=list,
            buffers=buffers,
            preparation=Preparation(launches=launches),
        )
        for name, buffers, launches in (
            ("launch-replay", captured, replace(LAUNCHES, types=nodes)),
            ("cuda-graph", captured, None),
            ("another-graph", other, None),
        )
    )
    loaded = load_function(lambda x: x + 1)
    found = [item.problems for item, _ in trace_runners(loaded, [replay, graph, foreign])]
    assert found[0] == found[2] == ()
    assert "nodes" in found[1][0]
