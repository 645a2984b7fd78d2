"""Evidence from traces made by hand, and the lines that it splits, names, or refuses."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ftax.instruments.gate import Gated
from ftax.ladders.evidence import RungEvidence, compare_work, warn_of_evidence
from ftax.ladders.ladder import LIBRARY
from ftax.ladders.lines import compute_lines
from ftax.ladders.receipt import Receipt
from support.evidence import (
    EAGER,
    FLAT,
    GRAPH,
    KERNELS,
    LADDER,
    LAUNCHES,
    NO_READS,
    TAPE,
    make_all_evidence,
    make_evidence,
    make_gate,
    make_rungs,
)
from support.records import make_measurement
from support.traces import make_kernel, make_memcpy, make_trace, make_window

LATENCIES = (1000, 700, 500, 300, 200)


def name_lines(rungs):
    return [line.name for line in compute_lines(make_rungs([1000] * len(rungs), rungs))]


# --- what evidence is made of ------------------------------------------------------------------


def test_numbers_of_a_trace_by_hand():
    memcpys = tuple(make_memcpy(at + 500, at + 540) for at in (1000, 2000, 3000))
    item, kernels = make_evidence(EAGER, "a", "b", "a", memcpys=memcpys)
    assert (item.kernels, item.copies, item.fills) == (3, 1, 0)
    assert item.kernel_ns == (150, 150, 150)
    assert item.busy_ns == (190, 190, 190)
    assert item.same_kernels and item.duration_ratio is None
    assert [(cost.count, cost.total_ns) for cost in item.top] == [(2, 100.0), (1, 50.0)]
    assert item.top[0].kernel.startswith("a [grid 2x1x1")
    assert kernels.sums_ns == (150, 150, 150)


def test_an_unreliable_trace_gives_reasons_and_no_numbers():
    item, kernels = make_evidence(EAGER, dropped_records=1)
    assert kernels is None
    assert "dropped 1 records" in item.problems[0]
    assert (item.busy_ns, item.same_kernels, item.timeline) == ((), None, None)


def test_other_kernels_are_named():
    _, reference = make_evidence(EAGER, "a", "b")
    item, _ = make_evidence(TAPE, "a", "c", reference=reference)
    assert item.same_kernels is False
    assert "ran other kernels than mlp eager/python" in item.difference
    assert warn_of_evidence([item]) == [item.difference]


def test_the_same_kernels_that_took_longer_are_named():
    window = (make_window(1000, 90_000),)
    plain = make_trace(iterations=window, kernels=(make_kernel(2000, 12_000, "a"),))
    slow = make_trace(iterations=window, kernels=(make_kernel(2000, 14_400, "a"),))
    _, reference = RungEvidence.of(plain, reference=None)
    item, _ = RungEvidence.of(slow, reference=reference)
    assert item.same_kernels
    assert item.duration_ratio == pytest.approx(1.24)
    assert item.slower == ("a [grid 2x1x1, block 32x1x1]: 1.24 times as long",)
    assert "took other times" in warn_of_evidence([item])[0]


def test_nodes_that_a_graph_has_must_all_be_seen():
    trace = make_trace(kernels=(make_kernel(1100, 1200, graph_id=9, graph_node_id=1),))
    seen, _ = RungEvidence.of(trace, reference=None, expected_nodes={"kernel": 1})
    missed, _ = RungEvidence.of(trace, reference=None, expected_nodes={"kernel": 2})
    assert (seen.problems, bool(missed.problems)) == ((), True)


def test_busy_time_is_a_mean_with_an_interval():
    item = RungEvidence(runtime="cuda-graph", host="cpp", busy_ns=(100, 120, 110))
    mean_ns, (low_ns, high_ns) = item.compute_busy()
    assert mean_ns == pytest.approx(110.0)
    assert low_ns < 110 < high_ns
    single = RungEvidence(runtime="cuda-graph", host="cpp", busy_ns=(100,))
    assert single.compute_busy() == (100.0, (100.0, 100.0))


def test_a_gate_that_did_not_hold_has_no_times_and_its_reason_is_told_once():
    gate = Gated(repetitions=(), watchdog_ms=2000, reason="waits for the device")
    items = [make_evidence(rung, gate=gate)[0] for rung in (EAGER, FLAT)]
    assert (items[0].issue_ns, items[0].device_ns) == (None, None)
    assert warn_of_evidence(items) == [
        "no issue time of eager/python, flat/python: waits for the device"
    ]
    held = make_evidence(EAGER, gate=make_gate(70, 90))[0]
    assert (held.issue_ns, held.device_ns) == (70.0, 90.0)


def test_evidence_survives_json():
    for item in (*make_all_evidence(issue_ns=[5] * 5), make_evidence(EAGER, dropped_records=1)[0]):
        assert RungEvidence.from_dict(json.loads(json.dumps(item.to_dict()))) == item


def test_a_receipt_with_evidence_survives_json():
    evidence = tuple(make_all_evidence(issue_ns=[5] * 5, other=LAUNCHES))
    receipt = Receipt(rungs=tuple(make_rungs(LATENCIES)), evidence=evidence)
    loaded = Receipt.from_dict(json.loads(json.dumps(receipt.to_dict())))
    assert loaded == receipt
    assert loaded.lines == receipt.lines


# --- the lines of a ladder with evidence ---------------------------------------------------------


def test_busy_time_splits_the_last_rung_and_the_sum_is_exact():
    lines = compute_lines(make_rungs(LATENCIES), make_all_evidence())
    assert [(line.name, line.time_ns) for line in lines] == [
        ("model glue", 300.0),
        ("interpreter and bindings", 200.0),
        ("dispatch", 200.0),
        ("launch", 100.0),
        ("graph", 100.0),
        ("kernels", 100.0),
    ]
    assert (lines[-2].lower, lines[-1].upper, lines[-1].lower) == ("busy", "busy", None)
    assert sum(line.time_ns for line in lines) == 1000.0
    assert all(line.resolved and not line.problem for line in lines)


def test_the_error_of_the_trace_widens_the_gaps_of_the_graph():
    rungs = make_rungs(LATENCIES)
    evidence = RungEvidence(runtime="cuda-graph", host="cpp", busy_ns=(80, 120, 100, 90, 110))
    gaps, kernels = compute_lines(rungs, [evidence])[-2:]
    assert kernels.interval_ns[0] < 100 < kernels.interval_ns[1]
    # The rounds have no error here, so that of the gaps is the trace's, turned around.
    assert gaps.interval_ns[0] == pytest.approx(200 - kernels.interval_ns[1])
    assert gaps.interval_ns[1] == pytest.approx(200 - kernels.interval_ns[0])


def test_steps_to_and_from_other_kernels_are_no_tax():
    lines = compute_lines(make_rungs(LATENCIES), make_all_evidence(other=LAUNCHES))
    problems = {line.name: line.problem for line in lines if line.problem}
    assert set(problems) == {"dispatch", "launch"}
    assert "launch-replay ran other kernels" in problems["dispatch"]
    assert [line.resolved for line in lines] == [True, True, False, False, True, True]
    assert sum(line.time_ns for line in lines) == 1000.0


def test_what_a_library_runs_besides_is_part_of_its_line_and_below_it_kernels_are_the_loops():
    generate = ("library", "python")
    rungs = make_rungs((1200, *LATENCIES), (generate, *LADDER))
    _, reference = make_evidence(EAGER)
    library, _ = make_evidence(generate, *KERNELS, "stop", reference=reference)
    below = make_all_evidence()
    lines = compute_lines(rungs, [library, *below], ladder=LIBRARY)
    assert (lines[0].name, lines[0].time_ns) == ("library loop", 200)
    assert [line.problem for line in lines] == [""] * 7
    assert all(line.resolved for line in lines)
    (note,) = warn_of_evidence([library, *below], LIBRARY)
    assert note == (
        "library/python ran 3 kernels, the bare loop 2 (device busy 150 ns to 100 ns): the "
        "difference belongs to the line library loop"
    )
    other = make_all_evidence(other=LAUNCHES)
    problems = {
        line.name: line.problem
        for line in compute_lines(rungs, [library, *other], ladder=LIBRARY)
        if line.problem
    }
    assert set(problems) == {"dispatch", "launch"}
    assert problems["launch"].endswith("other kernels than the bare loop")
    assert len(warn_of_evidence([library, *other], LIBRARY)) == 2


def test_a_library_that_runs_other_kernels_in_place_of_the_loops_is_no_tax():
    generate = ("library", "python")
    rungs = make_rungs((1200, *LATENCIES), (generate, *LADDER))
    _, reference = make_evidence(EAGER)
    library, _ = make_evidence(generate, KERNELS[0], "other", "stop", reference=reference)
    assert library.lacking_ratio == 0.5
    below = make_all_evidence()
    lines = compute_lines(rungs, [library, *below], ladder=LIBRARY)
    assert lines[0].problem == "library ran, for 50% of the time, other kernels than the bare loop"
    assert not lines[0].resolved and all(line.resolved for line in lines[1:])
    assert warn_of_evidence([library, *below], LIBRARY) == [library.difference]
    # A few short ones are how it picks a token.
    few = replace(library, lacking_ratio=0.01)
    assert compute_lines(rungs, [few, *below], ladder=LIBRARY)[0].resolved


def test_where_the_loop_was_not_traced_kernels_are_those_of_the_library():
    generate = ("library", "python")
    rungs = make_rungs((1200, *LATENCIES), (generate, *LADDER))
    library, reference = make_evidence(generate, *KERNELS, "stop")
    below = [make_evidence(place, reference=reference)[0] for place in LADDER[1:]]
    lines = compute_lines(rungs, [library, *below], ladder=LIBRARY)
    assert lines[2].problem.endswith("ran other kernels than the library's own loop")
    notes = warn_of_evidence([library, *below], LIBRARY)
    assert notes == [item.difference for item in below]


def test_two_rungs_that_both_left_eagers_kernels_are_not_compared():
    upper, lower = (
        RungEvidence(runtime=runtime, host="cpp", same_kernels=False)
        for runtime in ("launch-replay", "cuda-graph")
    )
    same = RungEvidence(runtime="eager", host="cpp", same_kernels=True)
    unknown = RungEvidence(runtime="eager", host="cpp")
    assert compare_work(upper, lower, "Python eager").startswith("cuda-graph ran other kernels")
    assert compare_work(upper, same, "Python eager").startswith("launch-replay ran other kernels")
    assert [
        compare_work(*pair, "Python eager")
        for pair in ((None, lower), (same, unknown), (same, same))
    ] == [""] * 3


@pytest.mark.parametrize(
    ("latency_ns", "changes"),
    [
        (200, {"dropped_records": 1}),  # unreliable
        (99, {}),  # the device cannot be busy for longer than the request takes
    ],
)
def test_busy_time_that_cannot_be_believed_splits_nothing(latency_ns, changes):
    evidence = [*make_all_evidence()[:-1], make_evidence(GRAPH, **changes)[0]]
    rungs = make_rungs((*LATENCIES[:-1], latency_ns))
    line = compute_lines(rungs, evidence)[-1]
    assert (line.name, line.time_ns) == ("graph and kernels", float(latency_ns))
    assert sum(line.time_ns for line in compute_lines(rungs, evidence)) == 1000.0


def test_only_the_lowest_rung_is_split():
    (*_, last) = compute_lines(make_rungs(LATENCIES), make_all_evidence(LADDER[:-1]))
    assert (last.name, last.lower) == ("graph and kernels", None)


def test_the_host_column_is_a_difference_of_issue_times_and_no_part_of_the_sum():
    evidence = make_all_evidence(issue_ns=(900, 650, 400, 150, 20))
    lines = compute_lines(make_rungs(LATENCIES), evidence)
    assert [line.host_ns for line in lines] == [250.0, 250.0, 250.0, 130.0, 20.0, None]
    ungated = make_evidence(FLAT)[0]
    lines = compute_lines(make_rungs(LATENCIES), [evidence[0], ungated, *evidence[2:]])
    assert [line.host_ns for line in lines[:3]] == [None, None, 250.0]


@pytest.mark.parametrize(
    ("rungs", "names"),
    [
        ((EAGER, TAPE, GRAPH), ["Python", "dispatch + launch", "graph and kernels"]),
        ((EAGER, FLAT, GRAPH), ["model glue", "interpreter and bindings + dispatch + launch",
                                "graph and kernels"]),
        ((EAGER, LAUNCHES), ["model glue + interpreter and bindings + dispatch",
                             "launches and kernels"]),
        ((TAPE, NO_READS, LAUNCHES, GRAPH), ["host reads", "dispatch", "launch",
                                             "graph and kernels"]),
        ((TAPE, NO_READS, GRAPH), ["host reads", "dispatch + launch", "graph and kernels"]),
        ((TAPE, NO_READS), ["host reads", "operators"]),
        ((EAGER, FLAT), ["model glue", "operators and bindings"]),
    ],
)  # fmt: skip
def test_a_step_over_missing_rungs_is_named_after_all_that_it_removes(rungs, names):
    assert name_lines(rungs) == names


@pytest.mark.parametrize(
    ("rung", "name"),
    [
        (EAGER, "Python, dispatch and gaps"),
        (FLAT, "bindings, dispatch and gaps"),
        (TAPE, "dispatch, launch and gaps"),
        (NO_READS, "dispatch, launch and gaps"),
        (LAUNCHES, "launch and graph"),
        (GRAPH, "graph"),
    ],
)
def test_what_lies_between_kernels_is_named_after_the_rung_that_was_traced(rung, name):
    lines = compute_lines(make_rungs([400], [rung]), [make_evidence(rung)[0]])
    assert [(line.name, line.time_ns) for line in lines] == [(name, 300.0), ("kernels", 100.0)]


values = st.integers(1000, 10**6)
cases = st.tuples(
    st.sets(st.integers(1, 4)).map(sorted),  # the rungs below Python eager
    st.integers(2, 6).flatmap(
        lambda rounds: st.lists(
            st.lists(values, min_size=rounds, max_size=rounds), min_size=5, max_size=5
        )
    ),
    st.lists(st.integers(0, 10**6), min_size=1, max_size=5),
    st.lists(st.sampled_from([True, False, None]), min_size=5, max_size=5),
)


@given(cases)
@settings(max_examples=30, deadline=None)
def test_lines_always_sum_to_the_first_latency(case):
    below, columns, busy_ns, same = case
    chosen = [0, *below]
    rungs = [make_measurement(columns[i], runtime=LADDER[i][0], host=LADDER[i][1]) for i in chosen]
    evidence = [
        RungEvidence(
            runtime=LADDER[i][0], host=LADDER[i][1], same_kernels=same[i], busy_ns=tuple(busy_ns)
        )
        for i in chosen
    ]
    lines = compute_lines(rungs, evidence)
    assert sum(line.time_ns for line in lines) == pytest.approx(rungs[0].latency_ns, rel=1e-9)
    assert sum(line.share_ratio for line in lines) == pytest.approx(1.0)
    assert not any(line.resolved for line in lines if line.problem)
