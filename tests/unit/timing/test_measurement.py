"""Measurements: checks, statistics by hand, and the way through JSON."""

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ftax.errors import InvalidArgumentError, ResultsError
from ftax.machines.environment import collect_environment
from ftax.machines.host import collect_condition
from ftax.records.store import read_records
from ftax.timing.cell import Cell
from ftax.timing.measurement import Measurement, ProcessRecord, make_session_id

ENVIRONMENT = collect_environment()
CELL = Cell(model="bert", runtime="eager", host="python", batch=1, sequence=128)
PROCESS = ProcessRecord(pid=7, session="0123456789abcdef", index=0)


def make_measurement(**changes):
    fields = {
        "cell": CELL,
        "mode": "latency",
        "samples_ns": ((100, 1, 2, 3), (100, 4, 6)),
        "dropped_per_round": 1,
        "seed": 1,
        "stop_reason": "precise",
        "environment": ENVIRONMENT,
        "process": PROCESS,
    }
    return Measurement(**{**fields, **changes})


def test_statistics_agree_with_those_computed_by_hand():
    measurement = make_measurement()
    assert measurement.kept_ns == ((1, 2, 3), (4, 6))
    assert measurement.values_ns == (2.0, 5.0)
    assert measurement.latency_ns == 3.5
    summary = measurement.summary  # of 1 2 3 4 6
    assert (summary.count, summary.min_ns, summary.max_ns) == (5, 1.0, 6.0)
    assert summary.mean_ns == pytest.approx(3.2)
    assert summary.p50_ns == 3.0
    assert summary.p90_ns == pytest.approx(5.2)  # 0.9 * 4 = 3.6: 4 + 0.6 * (6 - 4)
    assert summary.p99_ns == pytest.approx(5.92)
    assert summary.mad_ns == 1.0  # of 2 1 0 1 3


def test_disturbed_rounds_count_in_no_statistic_where_enough_others_are_left():
    rounds = tuple((0, 10 + place, 10 + place) for place in range(7))
    places = {"samples_ns": rounds, "checks": {"disturbed_rounds": [1, 6]}}
    quiet = make_measurement(**places, counted="quiet")
    assert quiet.counted_rounds == (0, 2, 3, 4, 5)
    assert quiet.values_ns == (10.0, 12.0, 13.0, 14.0, 15.0)
    assert quiet.all_values_ns == (10.0, 11.0, 12.0, 13.0, 14.0, 15.0, 16.0)
    assert (quiet.latency_ns, quiet.summary.count) == (12.8, 10)
    assert Measurement.from_dict(json.loads(json.dumps(quiet.to_dict()))) == quiet
    every = make_measurement(**places)  # as a record that does not say counts them
    assert every.values_ns == quiet.all_values_ns
    few = replace(quiet, checks={"disturbed_rounds": [1, 2, 6]})
    assert few.values_ns == quiet.all_values_ns  # four others are too few to go by


@pytest.mark.parametrize("disturbed", [3, ["2"], {"1": 2}])
def test_disturbed_rounds_are_numbers(disturbed):
    with pytest.raises(InvalidArgumentError, match=r"disturbed_rounds.*list of numbers of rounds"):
        make_measurement(counted="quiet", checks={"disturbed_rounds": disturbed})


def test_the_interval_is_around_the_latency_and_has_no_width_if_rounds_agree():
    low, high = make_measurement().interval_ns
    assert low < 3.5 < high
    rounds = ((9, 5, 5),) * 4
    same = make_measurement(samples_ns=rounds)
    assert same.interval_ns == (5.0, 5.0)


def test_the_interval_follows_from_the_seed_the_confidence_and_the_resamples():
    rounds = tuple((0, 100 + round * round) for round in range(12))
    fields = {"samples_ns": rounds}
    intervals = {
        make_measurement(**fields, **changes).interval_ns
        for changes in ({}, {}, {"seed": 2}, {"confidence": 0.8}, {"resamples": 400})
    }
    assert len(intervals) == 4


def test_a_single_round_has_no_interval_and_can_be_stored(tmp_path):
    measurement = make_measurement(samples_ns=((9, 5, 5),))
    assert measurement.interval_ns is None
    measurement.save(tmp_path / "r.jsonl")
    assert Measurement.load(tmp_path / "r.jsonl") == (measurement,)


def test_an_interval_that_the_core_refuses_is_an_error_of_the_file_too(tmp_path):
    path = tmp_path / "r.jsonl"
    make_measurement().save(path)
    path.write_text(path.read_text().replace('"confidence":0.95', '"confidence":0.99999'))
    with pytest.raises(ResultsError, match=r":1: measurement: resamples is 2000"):
        read_records(path)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"samples_ns": ()}, "has 0 rounds"),
        ({"samples_ns": ((1, 2), (1,))}, "the shortest of 1 samples, of which 1 are dropped"),
        ({"samples_ns": ((1, 2), (1, -5))}, r"samples_ns\[1\]\[1\] is -5; it has to be a time"),
        ({"samples_ns": ((1, 2), (1, 2**63))}, "a time in ns"),
        ({"burst": 3}, "burst is 3 in mode 'latency'"),
        ({"mode": "speed"}, "mode is 'speed'; it has to be one of 'latency', 'throughput'"),
        ({"confidence": 95}, "confidence is 95.0; it has to be a number between 0 and 1"),
        ({"stop_reason": "bored"}, "stop_reason is 'bored'"),
        ({"checks": {"difference": math.nan}}, r"checks\['difference'\] is nan"),
    ],
)
def test_a_measurement_that_cannot_be_is_refused(changes, said):
    with pytest.raises(InvalidArgumentError, match=said):
        make_measurement(**changes)


def test_a_burst_is_for_throughput():
    assert make_measurement(mode="throughput", burst=3).burst == 3


def list_places(data, place=()):
    """Every key of every object in `data`, but for what is inside lists of samples."""
    if isinstance(data, dict):
        for key, value in data.items():
            yield (*place, key)
            yield from list_places(value, (*place, key))


def change(data, place, edit):
    copy = json.loads(json.dumps(data))
    target = copy
    for key in place[:-1]:
        target = target[key]
    edit(target, place[-1])
    return copy


def test_no_key_can_be_lost_or_renamed_and_no_value_can_have_another_type():
    data = make_measurement(conditions=(collect_condition(),)).to_dict()
    free = {
        ("environment", "settings", "variables", name) for name in ENVIRONMENT.settings.variables
    }
    places = [place for place in list_places(data) if place not in free]
    assert len(places) > 70
    for place in places:
        bad = [change(data, place, lambda target, key: target.pop(key))]
        bad.append(change(data, place, lambda target, key: target.update({key: [[{}]]})))
        bad.append(change(data, place, lambda target, key: target.update({key + "x": 0})))
        for broken in bad[: 2 if place[-1] in ("checks", "preparation", "options") else 3]:
            with pytest.raises(ResultsError):
                Measurement.from_dict(broken)


def scale_by(ratio):
    return lambda target, key: target.update({key: target[key] * ratio})


def test_stored_statistics_have_to_be_those_of_the_samples():
    data = make_measurement().to_dict()
    summary = ("statistics", "summary")
    numbers = [("statistics", "latency_ns"), *list_places(data["statistics"]["summary"], summary)]
    assert len(numbers) == 9
    for place in numbers:
        if place[-1] != "count":
            rounding = change(data, place, scale_by(1 + 1e-12))
            assert Measurement.from_dict(rounding) == make_measurement()
        with pytest.raises(ResultsError, match=r"not those of the samples: .*" + place[-1]):
            Measurement.from_dict(change(data, place, scale_by(2)))
    for place, value in [
        (("statistics", "values_ns"), [2.0, 5.1]),
        (("statistics", "values_ns"), [2.0]),
        (("statistics", "interval_ns"), None),
        (("statistics", "interval_ns"), [3.4, 3.6]),
        (("samples_ns",), [[100, 1, 2, 3], [100, 4, 7]]),
        (("confidence",), 0.9),
        (("dropped_per_round",), 0),
    ]:
        broken = change(data, place, lambda target, key, value=value: target.update({key: value}))
        with pytest.raises(ResultsError, match="not those of the samples"):
            Measurement.from_dict(broken)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@st.composite
def measurements(draw):
    dropped = draw(st.integers(0, 2))
    one_round = st.lists(st.integers(0, 2**53), min_size=dropped + 1, max_size=dropped + 4)
    rounds = draw(st.lists(one_round, min_size=1, max_size=5))
    return make_measurement(
        mode="throughput",
        burst=draw(st.integers(1, 1000)),
        samples_ns=rounds,
        dropped_per_round=dropped,
        seed=draw(st.integers(0, 2**64 - 1)),
        process=ProcessRecord.current(session=make_session_id(), index=draw(st.integers(0, 9))),
        checks=draw(st.dictionaries(st.text(), json_values, max_size=3)),
        preparation=draw(st.dictionaries(st.text(), json_values, max_size=3)),
        warnings=draw(st.lists(st.text(), max_size=2)),
    )


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(measurement=measurements())
def test_a_measurement_comes_back_from_json_and_from_a_file_unchanged(
    tmp_path_factory, measurement
):
    text = json.dumps(measurement.to_dict())
    assert Measurement.from_dict(json.loads(text)) == measurement
    path = tmp_path_factory.mktemp("round-trip") / "r.jsonl"
    measurement.save(path)
    measurement.save(path)
    assert Measurement.load(path) == (measurement, measurement)


def test_importing_results_stays_light():
    heavy = {"transformers", "onnxruntime", "onnx", "typer", "rich"}
    code = f"import sys, ftax.timing; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_the_documentation_names_every_field():
    page = (Path(__file__).parents[3] / "docs" / "results.md").read_text(encoding="utf-8")
    data = make_measurement(conditions=(collect_condition(),)).to_dict()
    data["conditions"] = data["conditions"][0]
    names = {place[-1] for place in list_places(data)} - set(ENVIRONMENT.settings.variables)
    assert sorted(name for name in names if f"`{name}`" not in page) == []
