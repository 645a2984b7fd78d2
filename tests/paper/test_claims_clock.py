"""Claims on cells that were timed while the host's core ran at several clocks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ftax.paper.claims.measured import bring_to_one_clock, list_gpus
from ftax.sweeps.sweep_records import SweepCell
from support.claim_results import GRAPHS, judge_one, make_graph_results, make_results


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
