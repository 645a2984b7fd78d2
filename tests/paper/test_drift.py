"""Drift between measuring sessions: what repeated cells say of it, and what claims make of it."""

from __future__ import annotations

import math
import random

import pytest

from ftax.paper.claims.claim import RequiredCell
from ftax.paper.claims.measured import list_gpus
from ftax.paper.machine_view import REPEATED, find_drift, join_repetitions
from support.claim_results import BATCHES, make_cell, make_results, make_series
from support.claim_results import judge_one as judge

BASE = RequiredCell("bert-768", "eager/python", "fp16", 1, 128)
WIDE = RequiredCell("bert-1536", "eager/python", "fp16", 1, 128)
TABLE_1 = "S4.2.1-width-table1"
GRAPHS = "S4.1-cudagraphs-small"


def repeat(place, latencies_ms, *, busy_ms=1.0):
    """The first is the cell itself, the others are its repetitions."""
    return [
        make_cell(
            place,
            latency_ms,
            noise=1e-4,
            options={"repetition": mark} if mark else None,
            busy_ns=1e6 * busy_ms,
            facts={"session": f"{place} {mark}"},
        )
        for mark, latency_ms in enumerate(latencies_ms)
    ]


def drift_of(sigma, count=200):
    """Latencies of a host that takes 4 ms beside a device that takes 1."""
    generator = random.Random(3)
    return [1.0 + 4.0 * math.exp(generator.gauss(0, sigma)) for _ in range(count)]


def test_the_drift_is_that_of_the_hosts_part():
    found = find_drift(repeat(BASE, drift_of(0.08)))
    assert found.sigma == pytest.approx(0.08, rel=0.12)
    assert (found.cells, found.measurements) == (1, 200)
    assert "moved by" in found.describe() and "200 measurements of 1 cells" in found.describe()
    # 4 of 5 ms are the host's.
    (cell,) = repeat(BASE, [5.0])
    assert found.widen(cell) == pytest.approx(0.8 * found.sigma)


def test_what_cells_of_one_worker_share_is_told_from_what_they_do_not():
    generator = random.Random(5)
    workers = [generator.gauss(0, 0.1) for _ in range(80)]

    def make(place, own):
        return repeat(place, [5.0, *(math.exp(w + generator.gauss(0, own)) for w in workers)],
                      busy_ms=0.0)  # fmt: skip

    places = [BASE, WIDE, BASE._replace(batch=4)]
    shared = find_drift([cell for place in places for cell in make(place, 0.0)])
    assert shared.within < 0.01 < shared.between
    apart = find_drift([cell for place in places for cell in make(place, 0.05)])
    assert apart.within == pytest.approx(0.05, rel=0.15)
    assert apart.sigma > 0.09
    alone = find_drift(make(BASE, 0.05))
    assert (alone.within, alone.between) == (alone.sigma, 0.0)  # nothing says what is shared


def test_what_a_worker_moves_moves_all_cells_of_a_model():
    """A knee is one model's: a slow worker does not shift it. A ratio of two models is not."""
    drift = drift_of(0.1, 12)
    anchors = [*repeat(BASE, [5.0, *drift]), *repeat(WIDE, [5.0, *drift])]
    knee = make_series(lambda batch: 5.0 if batch < 64 else 12.0, busy_ns=1e5)
    share = "S3.2-fewer-flops-no-faster"
    assert judge(share, list(knee)).values[0].today == (pytest.approx(1.0),)
    flat = judge(share, [*knee, *anchors])
    assert flat.values[0].high[0] < 1.05
    models = [
        *make_series(lambda _: 5.0, framework="eager/python", busy_ns=1e5),
        *make_series(lambda _: 2.9, model="distilbert", busy_ns=1e5),
    ]
    ratio = judge("S4.2.1-depth-distilbert", [*models, *anchors]).values[0]
    assert ratio.high[0] - ratio.low[0] > 0.2


def test_cells_that_the_device_bounds_and_those_measured_twice_say_nothing():
    assert find_drift(repeat(BASE, [2.0, 2.5, 3.0], busy_ms=1.9)) is None
    assert find_drift(repeat(BASE, [2.0, 2.5])) is None
    assert find_drift([*repeat(BASE, [2.0]), *repeat(WIDE, [2.5])]) is None


def test_repetitions_are_the_rounds_of_one_cell_in_their_order():
    cells = repeat(BASE, [9.0, *(float(mark) for mark in range(1, 12))], busy_ms=0.1)
    ((cell, joined),) = join_repetitions(reversed(cells)).items()
    assert cell == joined.cell == cells[0].cell
    assert joined.values_ns == pytest.approx([1e6 * mark for mark in range(1, 12)])
    assert joined.facts["session"] == f"{REPEATED} 1 2 3 4 5 6 7 8 9 10 11"
    assert find_drift(cells).widen(joined) == 0.0  # its rounds have it already


def test_two_cells_that_were_repeated_together_are_compared_without_their_drift():
    """Cells of different hours said the wide model was a quarter faster; by turns it is slower."""
    drift = drift_of(0.1, 9)
    apart = [*repeat(BASE, [5.0]), *repeat(WIDE, [3.6])]
    assert judge(TABLE_1, apart).values[0].today == pytest.approx((0.72,))
    together = [
        *repeat(BASE, [5.0, *drift]),
        *repeat(WIDE, [3.6, *(1.02 * latency for latency in drift)]),
    ]
    verdict = judge(TABLE_1, together)
    assert verdict.today == "holds"
    (value,) = verdict.values
    assert value.today == pytest.approx((1.02,))
    assert value.low[0] == pytest.approx(1.02, abs=2e-3) and value.high[0] < 1.025


def test_cells_that_were_not_repeated_together_are_no_pair():
    drift = drift_of(0.1, 9)
    cells = [*repeat(BASE, [5.0, *drift[:8]]), *repeat(WIDE, [3.6, *drift])[:9]]
    assert judge(TABLE_1, cells).values[0].today[0] == pytest.approx(1.0)
    lacking = [
        cell for cell in repeat(WIDE, [3.6, *drift]) if cell.cell.options.get("repetition") != 4
    ]
    apart = judge(TABLE_1, [*repeat(BASE, [5.0, *drift[:8]]), *lacking])
    assert apart.values[0].today[0] == pytest.approx(0.72)  # as measured once


def test_a_verdict_near_its_threshold_does_not_outlive_the_drift():
    """46 % against a threshold of 40: sure by its rounds, not where sessions differ by a tenth."""

    def make(same_session):
        sessions = ("a", "a") if same_session else ("a", "b")
        series = [
            make_series(
                lambda _, latency_ms=latency_ms: latency_ms,
                framework=framework,
                busy_ns=1e5,
                facts={"session": session},
            )
            for session, framework, latency_ms in zip(
                sessions, ("eager/python", "cuda-graph/python"), (10.0, 5.5)
            )
        ]
        return [cell for part in series for cell in part]

    assert len(make(True)) == 2 * len(BATCHES)
    anchors = repeat(BASE, drift_of(0.1, 12))
    assert judge(GRAPHS, make(False)).today == "holds"
    assert judge(GRAPHS, [*make(False), *anchors]).today == "not resolved"
    assert judge(GRAPHS, [*make(True), *anchors]).today == "holds"


def test_one_clock_takes_its_part_out_of_the_drift():
    from ftax.paper.claims.measured import bring_to_one_clock

    cells = [
        make_cell(
            BASE,
            1.0 + 4.0 * 3e9 / clock,
            noise=1e-5,
            options={"repetition": mark},
            busy_ns=1e6,
            facts={"core_hz": clock},
        )
        for mark, clock in enumerate((2.5e9, 3.0e9, 3.5e9, 3.2e9), start=1)
    ]
    (gpu,) = list_gpus(make_results(cells))
    assert gpu.view.drift.sigma > 0.1
    assert bring_to_one_clock(gpu).view.drift.sigma < 0.01
