"""The lines of a receipt, against numbers worked out by hand."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ftax.ladders.lines import compute_lines
from ftax.ladders.skew import CollectiveTime
from support.records import make_measurement

EAGER, FLAT, TAPE = ("eager", "python"), ("flat", "python"), ("eager", "cpp")


def make_rungs(*columns, rungs=(EAGER, FLAT, TAPE)):
    return [
        make_measurement(values, runtime=runtime, host=host)
        for values, (runtime, host) in zip(columns, rungs, strict=True)
    ]


def test_lines_are_differences_of_mean_latencies():
    rungs = make_rungs([1000, 1200], [700, 900], [400, 400])
    glue, bindings, operators = compute_lines(rungs)
    assert (glue.name, glue.time_ns) == ("model glue", 300.0)
    assert (bindings.name, bindings.time_ns) == ("interpreter and bindings", 400.0)
    assert (operators.name, operators.time_ns) == ("operators", 400.0)
    assert operators.share_ratio == pytest.approx(400 / 1100)


def test_a_drift_that_all_rungs_feel_does_not_widen_a_tax():
    drift = [0, 500, 1000, 1500, 2000, 2500, 3000, 3500]
    rungs = make_rungs(
        [9000 + d for d in drift], [8000 + d for d in drift], [5000 + d for d in drift]
    )
    glue, bindings, operators = compute_lines(rungs)
    assert glue.interval_ns == pytest.approx((1000, 1000))
    assert bindings.interval_ns == pytest.approx((3000, 3000))
    assert operators.interval_ns[1] - operators.interval_ns[0] > 500
    assert glue.resolved and bindings.resolved


def test_a_difference_smaller_than_its_noise_is_not_resolved():
    rungs = make_rungs(
        [1000, 1100, 1000, 1100, 1050, 1020],
        [1100, 1000, 1105, 1001, 1020, 1040],
        [500, 500, 500, 500, 500, 500],
    )
    glue = compute_lines(rungs)[0]
    assert not glue.resolved
    assert glue.interval_ns[0] <= 0 <= glue.interval_ns[1]
    assert glue.rounds_needed > 6


def test_without_a_flat_rung_python_is_one_line():
    python, operators = compute_lines(make_rungs([900, 900], [300, 300], rungs=(EAGER, TAPE)))
    assert (python.name, python.time_ns) == ("Python", 600.0)
    assert operators.time_ns == 300.0


def test_a_single_rung_is_one_line_without_a_lower():
    (line,) = compute_lines(make_rungs([900, 900], rungs=(EAGER,)))
    assert (line.name, line.lower, line.share_ratio) == ("everything", None, 1.0)


columns = st.integers(2, 8).flatmap(
    lambda rounds: st.lists(
        st.lists(st.integers(1, 10**9), min_size=rounds, max_size=rounds), min_size=3, max_size=3
    )
)


@given(columns)
@settings(max_examples=30, deadline=None)
def test_lines_sum_to_the_latency_of_the_first_rung(values):
    rungs = make_rungs(*values)
    total = sum(line.time_ns for line in compute_lines(rungs))
    assert total == pytest.approx(rungs[0].latency_ns, rel=1e-9)


def test_python_outside_of_torch_is_a_line_of_the_first_step_down():
    rungs = make_rungs([1000] * 6, [600] * 6, [400] * 6)
    outside, glue, bindings, operators = compute_lines(rungs, outside_ns=(240.0, 260.0, 250.0))
    assert (outside.name, outside.time_ns) == ("Python outside of torch", 250.0)
    low, high = outside.interval_ns
    assert outside.resolved and 0 < low < 250 < high
    assert (glue.name, glue.time_ns) == ("model glue", 150.0)
    assert glue.interval_ns == pytest.approx((400 - high, 400 - low))  # the rungs have no noise
    assert (bindings.time_ns, operators.time_ns) == (200.0, 400.0)
    assert len(compute_lines(make_rungs([900, 900], rungs=(EAGER,)), outside_ns=(1.0, 1.0))) == 1


def make_times(exposed, aligned, rungs=(EAGER, FLAT, TAPE)):
    return [
        CollectiveTime(
            runtime=runtime,
            host=host,
            calls=1,
            exposed_ns=(own,) * 3,
            aligned_ns=(together,) * 3,
        )
        for (runtime, host), own, together in zip(rungs, exposed, aligned, strict=True)
    ]


def test_waiting_for_other_ranks_is_a_line_and_no_part_of_others():
    rungs = make_rungs([1000] * 6, [600] * 6, [500] * 6)
    found = make_times((450.0, 160.0, 130.0), (100.0, 110.0, 90.0))
    lines = compute_lines(rungs, collectives=found)
    assert [(line.name, line.time_ns) for line in lines] == [
        ("model glue", 1000 - 600 - (450 - 160)),
        ("interpreter and bindings", 600 - 500 - (160 - 130)),
        ("waiting for other ranks", 450 - 90),
        ("communication", 90.0),
        ("operators", 500 - 130),
    ]
    assert sum(line.time_ns for line in lines) == rungs[0].latency_ns


def test_communication_that_other_work_hides_is_no_part_of_a_line():
    found = make_times((70.0, 60.0), (110.0, 90.0), rungs=(EAGER, TAPE))
    rungs = make_rungs([1000] * 6, [500] * 6, rungs=(EAGER, TAPE))
    lines = compute_lines(rungs, collectives=found)
    assert [line.time_ns for line in lines] == [500 - 10, 0.0, 70.0, 440.0]
    assert (lines[1].resolved, lines[1].problem, lines[1].interval_ns) == (False, "", (0.0, 0.0))


def test_errors_of_rounds_and_of_collectives_add_as_squares():
    rungs = make_rungs([1000] * 6, [400] * 6, rungs=(EAGER, TAPE))
    (eager, tape) = make_times((450.0, 130.0), (100.0, 90.0), rungs=(EAGER, TAPE))
    noisy = dataclasses.replace(eager, exposed_ns=(430.0, 450.0, 470.0))
    python, waiting, *_ = compute_lines(rungs, collectives=(noisy, tape))
    low, high = waiting.interval_ns
    assert waiting.resolved and low < 360 < high
    own = 600 + 130 - 90  # without what is waited for
    assert python.interval_ns == pytest.approx((own - high, own - low))


def test_without_the_collectives_of_each_rung_nothing_is_split():
    rungs = make_rungs([1000] * 6, [600] * 6, [500] * 6)
    known = make_times((450.0, 160.0, 130.0), (100.0, 110.0, 90.0))[:2]
    assert compute_lines(rungs, collectives=known) == compute_lines(rungs)
