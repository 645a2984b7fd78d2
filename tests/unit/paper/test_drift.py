"""Drift between measuring sessions, and clocks of the host: what cells say of them, and what claims
make of that."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from ftax.paper.claims.claim import RequiredCell
from ftax.paper.claims.measured import bring_to_one_clock, list_gpus
from ftax.paper.machine_view import REPEATED, find_drift, join_repetitions
from ftax.sweeps.sweep_records import SweepCell
from support.claim_results import (
    BATCHES,
    GRAPHS,
    judge_one,
    make_cell,
    make_graph_results,
    make_results,
    make_series,
)

BASE = RequiredCell("bert-768", "eager/python", "fp16", 1, 128)
WIDE = RequiredCell("bert-1536", "eager/python", "fp16", 1, 128)
TABLE_1 = "S4.2.1-width-table1"


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
    assert judge_one(share, list(knee)).values[0].today == (pytest.approx(1.0),)
    flat = judge_one(share, [*knee, *anchors])
    assert flat.values[0].high[0] < 1.05
    models = [
        *make_series(lambda _: 5.0, framework="eager/python", busy_ns=1e5),
        *make_series(lambda _: 2.9, model="distilbert", busy_ns=1e5),
    ]
    ratio = judge_one("S4.2.1-depth-distilbert", [*models, *anchors]).values[0]
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
    assert judge_one(TABLE_1, apart).values[0].today == pytest.approx((0.72,))
    together = [
        *repeat(BASE, [5.0, *drift]),
        *repeat(WIDE, [3.6, *(1.02 * latency for latency in drift)]),
    ]
    verdict = judge_one(TABLE_1, together)
    assert verdict.today == "holds"
    (value,) = verdict.values
    assert value.today == pytest.approx((1.02,))
    assert value.low[0] == pytest.approx(1.02, abs=2e-3) and value.high[0] < 1.025


def test_cells_that_were_not_repeated_together_are_no_pair():
    drift = drift_of(0.1, 9)
    cells = [*repeat(BASE, [5.0, *drift[:8]]), *repeat(WIDE, [3.6, *drift])[:9]]
    assert judge_one(TABLE_1, cells).values[0].today[0] == pytest.approx(1.0)
    lacking = [
        cell for cell in repeat(WIDE, [3.6, *drift]) if cell.cell.options.get("repetition") != 4
    ]
    apart = judge_one(TABLE_1, [*repeat(BASE, [5.0, *drift[:8]]), *lacking])
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
    assert judge_one(GRAPHS, make(False)).today == "holds"
    assert judge_one(GRAPHS, [*make(False), *anchors]).today == "not resolved"
    assert judge_one(GRAPHS, [*make(True), *anchors]).today == "holds"


def test_one_clock_takes_its_part_out_of_the_drift():
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


def at(clock_ghz, cells, *, busy_ms):
    """The same cells, timed at a clock."""
    return [
        replace(cell, busy_ns=1e6 * busy_ms, facts={**cell.facts, "core_hz": 1e9 * clock_ghz})
        for cell in cells
    ]


def time_at(eager_ghz, graph_ghz, *, cut_pct, busy_ms=1.0):
    """Eager BERT at one clock, and its CUDA graphs at another."""
    cells = make_graph_results(cut_pct)
    eager = [cell for cell in cells if cell.cell.runtime == "eager"]
    graphs = [cell for cell in cells if cell.cell.runtime != "eager"]
    return [*at(eager_ghz, eager, busy_ms=busy_ms), *at(graph_ghz, graphs, busy_ms=busy_ms)]


def time_two():
    """Eager at 10 ms and 2 GHz, its graph at 2 ms and 4 GHz."""
    first: dict[str, SweepCell] = {}
    for cell in time_at(2.0, 4.0, cut_pct=80.0):
        first.setdefault(cell.cell.runtime, cell)
    return first["eager"], first["cuda-graph"]


def test_a_verdict_that_only_the_clock_makes_is_not_resolved():
    # The claim is a cut of more than 40 %, which graphs at a higher clock have and at one have not.
    verdict = judge_one(GRAPHS, time_at(3.0, 3.6, cut_pct=45.0, busy_ms=0.5))
    assert verdict.today == "not resolved"
    assert verdict.reason.startswith("the host's core ran at 3.00 to 3.60 GHz: holds as measured, ")
    assert "changed at one clock" in verdict.reason
    (cut,) = {value.today[0] for value in verdict.values if value.name == "cut_b1"}
    assert cut == pytest.approx(45.0)  # as measured
    assert "cut_b1 is 3" in verdict.reason


def test_a_verdict_that_stays_has_a_note_of_numbers_that_do_not():
    verdict = judge_one(GRAPHS, time_at(3.0, 3.6, cut_pct=60.0, busy_ms=0.5))
    assert verdict.today == "holds"
    (note,) = [note for note in verdict.notes if "GHz" in note]
    assert note.startswith("the host's core ran at 3.00 to 3.60 GHz; at one clock cut_b1 is 5")
    steady = judge_one(GRAPHS, time_at(3.0, 3.15, cut_pct=80.0))
    assert steady.today == "holds"
    assert not [note for note in steady.notes if "GHz" in note]  # 5 % change nothing much


def test_one_clock_or_none_that_is_known_changes_nothing():
    plain = judge_one(GRAPHS, make_graph_results(45.0))
    same = judge_one(GRAPHS, time_at(3.0, 3.05, cut_pct=45.0))
    assert plain.today == same.today == "holds"
    assert not [note for note in (*plain.notes, *same.notes) if "GHz" in note]


def test_only_the_time_in_which_the_device_idles_goes_with_the_clock():
    (gpu,) = list_gpus(make_results(time_two()))
    at_3_ghz = {cell.cell.runtime: cell for cell in bring_to_one_clock(gpu).cells.values()}
    assert at_3_ghz["eager"].latency_ns == pytest.approx(1e6 * (1 + 9 * 2 / 3), rel=0.01)
    assert at_3_ghz["cuda-graph"].latency_ns == pytest.approx(1e6 * (1 + 1 * 4 / 3), rel=0.01)


def test_cells_without_a_clock_or_busy_time_stay_as_they_are():
    known, other = time_two()
    cells = [known, replace(other, busy_ns=None)]
    (gpu,) = list_gpus(make_results(cells))
    steady = {cell.cell.runtime: cell for cell in bring_to_one_clock(gpu).cells.values()}
    assert steady["cuda-graph"].values_ns == other.values_ns
    assert steady["eager"].values_ns != known.values_ns
    (unknown,) = list_gpus(make_results(make_graph_results(45.0)))
    assert bring_to_one_clock(unknown) is unknown
