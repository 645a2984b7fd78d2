"""Is the difference real: which unit and which test are taken, and what they answer."""

from dataclasses import replace

import pytest

from ftax import InvalidArgumentError, compare
from ftax.records.store import append_record, read_records
from support.records import make_measurement

NOISE = [0, 7, -5, 3, -8, 6, 2, -4, 5, -6, 1, -1]


def side(level, processes=1, session="0123456789abcdef"):
    return [
        make_measurement([level + 10 * n for n in NOISE], index=i, pid=i + 1, session=session)
        for i in range(processes)
    ]


def test_rounds_of_the_same_session_are_paired():
    a = make_measurement([10_000 + 100 * n for n in NOISE])
    b = make_measurement([11_000 + 100 * n for n in NOISE], host="cpp")
    result = compare(a, b)
    assert result.verdict == "slower"
    assert result.unit == "round"
    assert "paired" in result.method.lower()
    assert result.ratio == pytest.approx(1.10, abs=0.001)


def test_rounds_of_different_processes_are_not_paired():
    a = make_measurement([10_000 + n for n in NOISE], pid=1)
    b = make_measurement([10_000 - n for n in NOISE], pid=2, session="f" * 16)
    result = compare(a, b)
    assert "welch" in result.method.lower()
    assert result.verdict == "cannot-tell"  # two processes of the same code differ by more
    assert "not measured by turns" in " ".join(result.warnings)


def test_several_processes_are_the_unit_and_hide_no_difference_between_them():
    a = [
        make_measurement([level] * 4, index=i, pid=i + 1) for i, level in enumerate((90, 100, 110))
    ]
    b = [
        make_measurement([level] * 4, index=i, pid=i + 9, session="e" * 16)
        for i, level in enumerate((95, 105, 112))
    ]
    result = compare(a, b)
    assert result.unit == "process" and result.describe().endswith(" processes")
    assert result.units_a == result.units_b == 3
    assert result.verdict == "cannot-tell"


DRIFT = [100 + 7 * place for place in range(20)]  # of the host, in % of what it was at first


def take_turns(level, luck, *, rounds_a_turn=5, first_pid=1, loops_ns=(20_000, 22_000, 21_000)):
    """Three processes whose latency is ``level`` times that of the host; ``luck`` is their own, and
    ``loops_ns`` is what a loop of known length took beside them."""
    return [
        make_measurement(
            [round(level * own * share) for share in DRIFT],
            index=place,
            pid=first_pid + place,
            checks={"rounds_a_turn": rounds_a_turn, "host_probe_ns": {"loop": loops_ns[place]}},
        )
        for place, own in enumerate(luck)
    ]


def test_processes_that_took_turns_are_pairs_without_the_drift_of_the_host():
    a, b = take_turns(10, (1.0, 1.3, 0.8)), take_turns(10.1, (1.0, 1.31, 0.79), first_pid=9)
    result = compare(a, list(reversed(b)), confidence=0.9)
    assert (result.unit, result.verdict) == ("pair", "equal")
    assert "paired" in result.method.lower()
    assert result.ratio == pytest.approx(1.01, abs=0.01)
    assert result.describe().endswith("from 3 pairs of processes by turns")
    slow = take_turns(10.6, (1.0, 1.301, 0.799), first_pid=9)
    assert compare(a, slow, confidence=0.9).verdict == "slower"


def test_processes_that_took_no_turns_are_not_pairs():
    a, b = (take_turns(10, (1.0, 1.3, 0.8), first_pid=pid, rounds_a_turn=0) for pid in (1, 9))
    result = compare(a, b)
    assert "welch" in result.method.lower()
    assert (result.unit, result.verdict) == ("process", "cannot-tell")


@pytest.mark.parametrize(
    ("change", "margin", "verdict"),
    [
        (1.007, 0.05, "equal"),  # less than matters
        (1.02, 0.05, "slower"),
        (0.98, 0.05, "faster"),
        (1.007, 0.005, "slower"),  # what matters is the user's to say
    ],
)
def test_what_pairs_differ_by_has_to_matter(change, margin, verdict):
    a = take_turns(1000, (1.0, 1.1, 0.9))
    b = take_turns(1000 * change, (1.0, 1.1, 0.9), first_pid=9)
    assert compare(a, b, margin=margin).verdict == verdict


def test_a_neighbour_beside_most_rounds_of_one_side_is_not_its_cost():
    """It slows whole rounds, in each process others."""
    assert_pairs_are_equal(lambda side, own, at: 1500 if side and (at + own) % 5 < 4 else 1000)


def test_a_host_with_two_speeds_is_not_a_sides_cost():
    """It has both for both sides, and the quick one sometimes while only one of them measures."""

    def compute_ns(side, own, at):
        turn = at // 5
        return 600 if turn < own or (turn == 10 and side == own % 2) else 1000

    assert_pairs_are_equal(compute_ns)


def assert_pairs_are_equal(compute_ns):
    """Five pairs of 16 turns, whose round ``at`` of pair ``own`` takes so long."""
    a, b = (
        [
            make_measurement(
                [compute_ns(side, own, at) + at % 3 for at in range(80)],
                index=own, pid=own + first, checks={"rounds_a_turn": 5},
            )
            for own in range(5)
        ]
        for side, first in ((0, 1), (1, 99))
    )  # fmt: skip
    result = compare(a, b)
    assert (result.unit, result.verdict) == ("pair", "equal")
    assert result.ratio == pytest.approx(1.0, abs=0.002)


def test_a_number_lies_in_its_own_interval():
    """One fast round in three, of one side: the mean was far from the interval of the medians."""
    a = make_measurement([1000, 990, 1010] * 4)
    b = make_measurement([1000, 100, 1010] * 4, session="f" * 16)
    for result in (compare(a, b), compare(b, a)):
        low, high = result.ratio_interval
        assert low <= result.ratio <= high
        assert result.latency_b_ns / result.latency_a_ns == pytest.approx(result.ratio)


def test_where_calls_are_rarely_slow_the_mean_decides():
    """A cost in every tenth call is in no median."""
    a, b = (
        [
            make_measurement(
                [0], index=place, pid=place + first,
                samples_ns=((0, *[1000] * 9, last),) * 6,
                checks={"rounds_a_turn": 5},
            )
            for place in range(3)
        ]
        for first, last in ((1, 1000), (9, 3000))
    )  # fmt: skip
    result = compare(a, b)
    assert (result.verdict, result.unit) == ("slower", "pair")
    assert result.ratio == pytest.approx(1.2)
    assert any("mean of all calls" in text for text in result.warnings)
    waited = [
        replace(item, checks={"rounds_a_turn": 5, "waited_ns": [2000] * 6}) for item in b
    ]  # by a neighbour, which is no cost of the call
    assert compare(a, waited).verdict == "equal"


def test_turns_are_compared_while_both_measured():
    """b went on after a was precise, while the host got slower."""
    a, b = take_turns(10, (1.0, 1.1, 1.2)), take_turns(10, (1.0, 1.1, 1.2), first_pid=9)
    early = [
        make_measurement(
            [samples[-1] for samples in item.samples_ns[:10]],
            index=place,
            pid=place + 1,
            checks=item.checks,
        )
        for place, item in enumerate(a)
    ]
    assert compare(early, b).ratio == pytest.approx(1.0, abs=1e-9)


def test_a_disturbed_round_does_not_move_a_process():
    quiet = [make_measurement([100] * 9, index=i, pid=i + 1) for i in range(5)]
    noisy = [
        make_measurement([100] * 8 + [175], index=i, pid=i + 9, session="e" * 16) for i in range(5)
    ]
    assert compare(quiet, noisy).ratio == 1.0


def test_a_faster_b_has_a_ratio_below_one():
    result = compare(side(1000)[0], side(800, session="e" * 16)[0])
    assert result.verdict == "faster"
    assert result.ratio == pytest.approx(0.8, rel=0.01)
    assert result.describe() == (
        "b against a: faster, -20.1% (99% interval -25.1% to -14.7%): 799 ns instead of 999 ns, "
        "from 12 and 12 rounds"
    )


def test_swapping_the_sides_inverts_the_ratio():
    a, b = side(1000)[0], side(1300, session="e" * 16)[0]
    assert compare(a, b).ratio * compare(b, a).ratio == pytest.approx(1.0)


def test_latency_is_not_compared_with_throughput():
    a = make_measurement([100, 100])
    b = make_measurement([100, 100], mode="throughput", burst=4)
    with pytest.raises(InvalidArgumentError, match="throughput"):
        compare(a, b)


def test_an_empty_side_is_refused():
    with pytest.raises(InvalidArgumentError, match="no measurement"):
        compare([], side(100))


def test_rounds_beside_a_busy_neighbour_do_not_count():
    # Six rounds of ten were disturbed in one process: its median is the neighbour's.
    quiet = [make_measurement([100] * 10, index=i, pid=i + 1) for i in range(5)]
    shared = make_measurement([100] * 4 + [190] * 6, index=0, pid=9, session="e" * 16)
    shared = replace(shared, counted="quiet", checks={"disturbed_rounds": list(range(5, 10))})
    assert shared.values_ns == (100, 100, 100, 100, 190)
    others = [make_measurement([100] * 10, index=i, pid=i + 9, session="e" * 16) for i in (1, 2)]
    assert compare(quiet, [shared, *others]).ratio == 1.0


@pytest.mark.parametrize(("loop_ns", "told"), [(16_400.0, False), (23_880.0, True)])
def test_clocks_of_hosts_that_differ_are_told(loop_ns, told, tmp_path):
    a, b = (
        [
            make_measurement(
                [100] * 4, index=i, pid=i + 1, session=mark * 16,
                checks={"host_probe_ns": {"loop": probe}},
            )
            for i in range(2)
        ]
        for mark, probe in (("a", 16_000.0), ("b", loop_ns))
    )  # fmt: skip
    result = compare(a, b)
    assert result.core_hz_a == 4e9
    message = "ran at 4.00 GHz for a and at 2.68 GHz for b: CPU work takes 1.49 times"
    assert any(message in text for text in result.warnings) == told
    append_record(tmp_path / "r.jsonl", result)
    assert read_records(tmp_path / "r.jsonl").records == (result,)


def test_a_single_run_that_was_disturbed_cannot_tell() -> None:
    text = "the host was disturbed in 2 of 5 rounds (steal time), too many to leave out"
    a, b = make_measurement([100] * 5), make_measurement([150] * 5, pid=2, warnings=(text,))
    found = compare(a, b)
    assert (found.verdict, found.doubt) == ("cannot-tell", f"b: {text}")
    together = make_measurement([150] * 5, warnings=(text,))
    assert compare(a, together).verdict == "slower"  # in the same rounds, which disturbed both
