"""Windows of an energy counter, by hand and for any counter that moves in steps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftax.errors import UnavailableError
from ftax.instruments.energy import CounterPoint, find_window


def make_points(energies_mj, *, every_ms=20):
    return [
        CounterPoint(at_ns=place * every_ms * 10**6, energy_mj=energy, rounds=place)
        for place, energy in enumerate(energies_mj)
    ]


def test_a_window_reaches_from_the_first_step_to_the_last():
    # Readings every 20 ms; the counter moves at 40, 80 and 120 ms.
    window = find_window(make_points([500, 500, 700, 700, 900, 900, 1100, 1100]))
    assert (window.first.rounds, window.last.rounds, window.steps) == (2, 6, 2)
    assert window.energy_j == pytest.approx(0.4)
    assert window.seconds == pytest.approx(0.08)
    assert window.power_w == pytest.approx(5.0)
    # Each end is known to one reading, 20 ms of 80.
    assert window.resolution_ratio == pytest.approx(0.25)


def test_an_end_that_was_watched_less_closely_sets_the_resolution():
    points = [
        CounterPoint(at_ns=at_ms * 10**6, energy_mj=energy)
        for at_ms, energy in ((0, 0), (10, 1), (100, 1), (150, 2))
    ]
    assert find_window(points).resolution_ratio == pytest.approx(50 / 140)


@pytest.mark.parametrize("energies", [[], [5], [5, 5, 5, 5], [5, 5, 6, 6]])
def test_a_counter_that_hardly_moves_is_too_short_and_not_zero(energies):
    with pytest.raises(UnavailableError, match=r"too short: .* moved \d time"):
        find_window(make_points(energies))


def test_a_counter_that_goes_backwards_is_refused():
    with pytest.raises(UnavailableError, match="went backwards"):
        find_window(make_points([5, 6, 3, 4]))


@given(
    power_w=st.floats(10, 1000),
    update_ms=st.integers(10, 110),
    phase_ms=st.integers(0, 109),
    every_ms=st.integers(1, 40),
)
def test_the_power_is_right_within_the_resolution(power_w, update_ms, phase_ms, every_ms):
    # A counter that is brought up to date every update_ms, of a GPU that draws power_w steadily.
    points = [
        CounterPoint(
            at_ns=at_ms * 10**6,
            energy_mj=round(power_w * ((at_ms + phase_ms) // update_ms * update_ms)),
        )
        for at_ms in range(0, 2000, every_ms)
    ]
    window = find_window(points)
    rounding_ratio = 1 / (window.energy_j * 1e3)
    assert window.power_w == pytest.approx(
        power_w, rel=window.resolution_ratio / (1 - window.resolution_ratio) + rounding_ratio
    )
