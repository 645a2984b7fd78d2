"""How times are written."""

import pytest

from ftax.report.units import format_interval, format_time


@pytest.mark.parametrize(
    ("time_ns", "text"),
    [(0, "0 ns"), (719, "719 ns"), (-1_234, "-1.23 us"), (4_001_234, "4,001 us"),
     (24_800_000, "24.8 ms"), (8.3e9, "8,300 ms")],
)  # fmt: skip
def test_a_time_has_three_digits_and_its_unit(time_ns, text):
    assert format_time(time_ns) == text


@pytest.mark.parametrize(
    ("interval_ns", "text"),
    [(None, "-"), ((11_900, 12_800), "11.9 us to 12.8 us"),
     ((-80_100_000, 8_312_000), "-80.1 ms to 8.31 ms"), ((-120, 1_500), "-0.12 us to 1.5 us")],
)  # fmt: skip
def test_both_ends_of_an_interval_have_one_unit(interval_ns, text):
    assert format_interval(interval_ns) == text
