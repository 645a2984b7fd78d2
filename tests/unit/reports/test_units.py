"""How times are written."""

from dataclasses import replace

import pytest

from ftax.timing.measurement import format_clock, format_rounds
from ftax.timing.units import format_interval, format_time, name_interval
from support.records import make_measurement


@pytest.mark.parametrize(
    ("time_ns", "text"),
    [(0, "0 ns"), (719, "719 ns"), (-1_234, "-1.23 us"), (4_001_234, "4,001 us"),
     (24_800_000, "24.8 ms"), (8.3e9, "8,300 ms"),
     (999_600, "1,000 us"), (999_400, "999 us")],
)  # fmt: skip
def test_a_time_has_three_digits_and_its_unit(time_ns, text):
    assert format_time(time_ns) == text


@pytest.mark.parametrize(
    ("interval_ns", "text"),
    [(None, "-"), ((11_900, 12_800), "11.9 to 12.8 us"),
     ((-80_100_000, 8_312_000), "-80.1 to 8.31 ms"), ((-120, 1_500), "-0.12 to 1.5 us")],
)  # fmt: skip
def test_both_ends_of_an_interval_have_one_unit(interval_ns, text):
    assert format_interval(interval_ns) == text


def test_no_confidence_short_of_all_is_called_all():
    assert name_interval(0.95) == "95% interval"
    assert name_interval(0.57) == "57% interval"  # 100 times it is 56.99999999999999
    assert name_interval(0.9999999) == "99.99999% interval"


def test_rounds_that_do_not_count_are_told():
    measurement = make_measurement([5] * 8, checks={"disturbed_rounds": [2, 3]})
    assert format_rounds(measurement) == "8"
    assert format_rounds(replace(measurement, counted="quiet")) == "6 of 8"


@pytest.mark.parametrize(
    ("architecture", "probe", "text"),
    [
        ("x86_64", {"loop": 16_000.0}, ", host core at 4.0 GHz"),
        ("x86_64", {"loop": 23_760.0}, ", host core at 2.7 GHz"),
        ("aarch64", {"loop": 16_000.0}, ""),  # where the loop has another length
        ("x86_64", {}, ""),
    ],
)
def test_the_clock_is_that_of_a_loop_of_known_length(architecture, probe, text):
    measurement = make_measurement([5, 5], checks={"host_probe_ns": probe})
    host = replace(measurement.environment.host, architecture=architecture)
    environment = replace(measurement.environment, host=host)
    assert format_clock(replace(measurement, environment=environment)) == text
