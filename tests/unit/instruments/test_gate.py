"""The record of issue time and device time: medians by hand, and what it refuses."""

import json

import pytest

from ftax import _core
from ftax.errors import InvalidArgumentError, ResultsError, UnavailableError
from ftax.instruments.gate import Gated, GatedRepetition, measure_gate


def repeat(*times_ns: tuple[int, int], cut: bool = False) -> tuple[GatedRepetition, ...]:
    return tuple(
        GatedRepetition(issue_ns=issue, device_span_ns=device, drain_ns=device + 1, cut=cut)
        for issue, device in times_ns
    )


def test_medians_and_intervals_are_order_statistics():
    # Six values: the whole range has confidence 1 - 2 / 2**6, and nothing narrower reaches 95 %.
    gated = Gated(
        repetitions=repeat((10, 5), (30, 1), (20, 3), (60, 2), (50, 6), (40, 4)), watchdog_ms=100
    )
    assert not gated.cut
    assert (gated.issue_ns.median_ns, gated.issue_ns.low_ns, gated.issue_ns.high_ns) == (35, 10, 60)
    assert (gated.device_ns.median_ns, gated.device_ns.low_ns, gated.device_ns.high_ns) == (
        3.5,
        1,
        6,
    )
    assert gated.issue_ns.confidence == pytest.approx(1 - 2 / 64)


def test_few_repetitions_attain_less_confidence_and_say_so():
    gated = Gated(repetitions=repeat((10, 1), (30, 2), (20, 3)), watchdog_ms=100)
    assert gated.issue_ns.median_ns == 20
    assert gated.issue_ns.confidence == pytest.approx(1 - 2 / 8)


def test_a_cut_repetition_counts_in_no_median():
    cut = repeat((10**9, 10**9), cut=True)
    gated = Gated(
        repetitions=repeat((1, 7), (3, 7)) + cut + repeat((2, 7)), watchdog_ms=100, reason="slow"
    )
    assert not gated.cut
    assert gated.issue_ns.median_ns == 2
    assert gated.device_ns.median_ns == 7
    only_cut = Gated(repetitions=cut, watchdog_ms=100, reason="it waits")
    assert only_cut.cut
    assert only_cut.issue_ns is None and only_cut.device_ns is None


@pytest.mark.parametrize(
    ("repetitions", "reason"),
    [
        ((), None),  # nothing was measured, and nobody says why
        (repeat((1, 1), cut=True), None),
        (repeat((1, 1), cut=True), ""),
        (repeat((1, 1)), "an excuse for nothing"),
    ],
)
def test_a_reason_is_given_exactly_where_one_is_needed(repetitions, reason):
    with pytest.raises(InvalidArgumentError, match=r"Gated\.reason"):
        Gated(repetitions=repetitions, watchdog_ms=100, reason=reason)


def test_it_travels_with_its_medians_and_refuses_changed_ones():
    gated = Gated(repetitions=repeat((10, 5), (30, 1), (20, 3)), watchdog_ms=100, launches=7)
    data = json.loads(json.dumps(gated.to_dict()))
    assert data["medians"]["issue_ns"]["median_ns"] == 20
    assert Gated.from_dict(data) == gated
    data["medians"]["device_ns"]["median_ns"] = 2.0
    with pytest.raises(ResultsError, match=r"device_ns\.median_ns is 2\.0 where 3\.0"):
        Gated.from_dict(data)


def test_a_record_without_a_number_travels_too():
    gated = Gated(repetitions=(), watchdog_ms=100, launches=5000, reason="does not fit")
    data = json.loads(json.dumps(gated.to_dict()))
    assert data["medians"] == {"issue_ns": None, "device_ns": None}
    assert Gated.from_dict(data) == gated


def test_without_a_device_it_says_what_is_missing():
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a CUDA device")
    with pytest.raises(UnavailableError, match="CUDA"):
        measure_gate(_core.EmptyRunner())
