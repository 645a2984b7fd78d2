"""The search for the knee, played against curves whose knee is known."""

import pytest

from ftax.sweeps.knee_record import choose_size, find_ends


def play(low, high, resolution, answer, limit=200):
    """All sizes probed, with what `answer` says of each."""
    answers = {}
    while (size := choose_size(low, high, resolution, answers)) is not None:
        assert size not in answers, f"{size} is probed twice"
        assert low < size <= high
        answers[size] = answer(size)
        assert len(answers) < limit
    return answers


@pytest.mark.parametrize("knee", [1, 2, 3, 7, 8, 9, 31, 64, 100, 1000, 1023])
def test_a_step_is_found_exactly_when_the_ends_have_to_be_neighbours(knee):
    answers = play(1, 1024, 1e-9, lambda size: "on" if size <= knee else "off")
    assert find_ends(1, answers) == (knee, knee + 1)
    assert len(answers) <= 20


@pytest.mark.parametrize("knee", [37, 100, 700])
def test_the_ends_come_within_the_resolution(knee):
    answers = play(1, 1024, 0.1, lambda size: "on" if size <= knee else "off")
    last_on, first_off = find_ends(1, answers)
    assert last_on <= knee < first_off
    assert first_off - last_on <= 0.1 * last_on


def test_sizes_are_doubled_before_they_are_halved():
    answers = play(1, 100, 1e-9, lambda size: "on" if size <= 20 else "off")
    assert list(answers)[:5] == [2, 4, 8, 16, 32]
    assert max(answers) == 32


def test_a_plateau_without_an_end_is_probed_up_to_the_largest_size_and_no_further():
    answers = play(1, 100, 0.1, lambda size: "on")
    assert list(answers) == [2, 4, 8, 16, 32, 64, 100]
    assert find_ends(1, answers) == (100, None)


def test_a_curve_that_leaves_at_once_needs_one_probe():
    assert play(1, 1024, 0.1, lambda size: "off") == {2: "off"}


def test_a_larger_smallest_size_is_searched_down_to_its_neighbour():
    answers = play(8, 1024, 1e-9, lambda size: "off")
    assert find_ends(8, answers) == (8, 9)


def test_unsure_sizes_are_kept_between_the_ends():
    def answer(size):
        return "on" if size <= 40 else ("unsure" if size < 50 else "off")

    last_on, first_off = find_ends(1, play(1, 1024, 1e-9, answer))
    assert (last_on, first_off) == (40, 50)


def test_a_curve_that_is_never_clear_ends():
    answers = play(1, 64, 1e-9, lambda size: "unsure")
    assert find_ends(1, answers) == (1, None)
    assert max(answers) == 64


def test_unsure_up_to_the_largest_size_still_finds_the_last_certain_one():
    answers = play(1, 64, 1e-9, lambda size: "on" if size <= 21 else "unsure")
    assert find_ends(1, answers) == (21, None)


def test_a_size_that_cannot_be_run_is_an_upper_end():
    answers = play(1, 1024, 1e-9, lambda size: "on" if size <= 90 else "limit")
    assert find_ends(1, answers) == (90, 91)
    assert max(answers) == 128


def test_answers_above_the_first_off_do_not_count():
    assert find_ends(1, {2: "on", 4: "off", 8: "on"}) == (2, 4)
