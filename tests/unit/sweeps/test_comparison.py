"""Sweeps cell by cell: which machine is compared with which, what is said, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ftax.errors import InvalidArgumentError
from ftax.records.fields import FrozenMap
from ftax.sweeps.comparison import compare_machines, compare_sweeps
from support.fleet import A100, H100, make_cell, make_machine, make_results

EAST, WEST = make_machine(H100, "east"), make_machine(H100, "west")
OLD = make_machine(A100)


def verdicts_of(found):
    return [change.result.verdict for change in found.changes]


def test_each_cell_that_both_have_has_a_verdict():
    before = make_results([make_cell(EAST, 100.0, batch=b) for b in (1, 2, 4, 8)], EAST)
    after = make_results(
        [
            make_cell(EAST, 150.0, batch=1),
            make_cell(EAST, 50.0, batch=2),
            make_cell(EAST, 100.0, batch=4),
            make_cell(EAST, 1.0, batch=64),
        ],
        EAST,
    )
    found = compare_sweeps(before, after, names=("x", "y"))
    assert verdicts_of(found) == ["slower", "faster", "cannot-tell"]
    assert found.changes[0].result.ratio == pytest.approx(1.5)
    assert found.describe() == "y against x: 3 cells, 1 faster, 1 slower, 0 equal, 1 cannot tell"
    assert found.differences == ()
    assert [text.partition(",")[0] for text in found.left_out] == [
        "1 cell is measured in x alone", "1 cell is measured in y alone",
        "1 compared cell of one run on both sides: it differs from itself in nothing",
    ]  # fmt: skip


def test_what_was_repeated_on_both_sides_is_compared_between_runs():
    def make(latencies):
        runs = [make_cell(EAST, us, repetition=place) for place, us in enumerate(latencies)]
        return make_results(runs, EAST)

    found = compare_sweeps(make([100.0, 120.0, 90.0]), make([101.0, 119.0, 91.0]))
    (change,) = found.changes
    assert (change.result.unit, change.result.units_a) == ("process", 3)
    assert change.result.verdict == "cannot-tell"  # although rounds differ by a tenth of a percent
    once = compare_sweeps(make([100.0]), make([101.0, 119.0, 91.0])).changes[0].result
    assert (once.unit, once.verdict) == ("round", "cannot-tell")  # 1 %, as runs may differ


def test_machines_of_a_fleet_are_compared_each_with_itself():
    before = make_results([make_cell(EAST, 100.0), make_cell(WEST, 200.0)], EAST, WEST)
    after = make_results([make_cell(WEST, 200.0), make_cell(EAST, 50.0)], WEST, EAST)
    found = compare_sweeps(before, after)
    assert [(change.machine, change.result.verdict) for change in found.changes] == [
        ("H100 (east)", "faster"), ("H100 (west)", "cannot-tell"),
    ]  # fmt: skip


def test_a_fleet_with_another_torch_is_refused_or_told():
    newer = [make_machine(H100, name, torch="9.9.9") for name in ("east", "west")]
    before = make_results([make_cell(EAST), make_cell(WEST)], EAST, WEST)
    after = make_results(map(make_cell, newer), *newer)
    with pytest.raises(InvalidArgumentError, match=r"torch is .* for a and 9\.9\.9 for b.*allow"):
        compare_sweeps(before, after)
    found = compare_sweeps(before, after, allow_different=True)
    assert verdicts_of(found) == ["cannot-tell", "cannot-tell"]
    assert len(found.differences) == 1 and "9.9.9 for b" in found.differences[0]


def test_two_kinds_of_gpu_are_one_row_and_never_only_the_code():
    fast = make_results([make_cell(EAST, 100.0, asks=H100)], EAST)
    slow = make_results([make_cell(OLD, 300.0, asks=A100)], OLD)
    with pytest.raises(InvalidArgumentError, match="the GPU is NVIDIA H100 for a and NVIDIA A100"):
        compare_sweeps(fast, slow)
    found = compare_sweeps(fast, slow, allow_different=True)
    assert verdicts_of(found) == ["slower"]
    assert any("the GPU is" in text for text in found.differences)


def test_which_of_several_machines_is_meant_is_not_guessed():
    before = make_results([make_cell(EAST), make_cell(WEST)], EAST, WEST)
    after = make_results([make_cell(OLD)], OLD)
    with pytest.raises(InvalidArgumentError, match="several machines of a side, none of which"):
        compare_sweeps(before, after, allow_different=True)


def test_other_software_without_weight_is_told_and_not_refused():
    newer = make_machine(H100, "east", transformers="99.0")
    found = compare_sweeps(
        make_results([make_cell(EAST)], EAST), make_results([make_cell(newer)], newer)
    )
    (told,) = found.differences
    assert told.startswith("transformers is ") and "99.0 for b" in told


def test_sweeps_without_a_common_cell_are_refused():
    before = make_results([make_cell(EAST)], EAST)
    after = make_results([make_cell(EAST, batch=2)], EAST)
    with pytest.raises(InvalidArgumentError, match=r"x and y have no cell .*bert-base .*same grid"):
        compare_sweeps(before, after, names=("x", "y"))
    lone = make_results([make_cell(EAST, values=[100.0])], EAST)
    with pytest.raises(InvalidArgumentError, match="1 cells have a single round"):
        compare_sweeps(lone, lone)


def test_doubts_clocks_and_wrong_outputs_are_kept():
    wild = make_cell(EAST, values=[100.0, 100.0, 900.0])
    (change,) = compare_sweeps(
        make_results([make_cell(EAST)], EAST), make_results([wild], EAST)
    ).changes
    assert change.result.verdict == "cannot-tell" and change.result.doubt.startswith("b: the mean")
    facts = [
        FrozenMap({"core_hz": 4e9}),
        FrozenMap({"core_hz": 3e9, "outputs_equal": False, "outputs": "1e-2 off"}),
    ]
    sides = [make_results([replace(make_cell(EAST), facts=each)], EAST) for each in facts]
    (change,) = compare_sweeps(*sides).changes
    assert change.is_clock_other and change.result.core_hz_a == 4e9
    assert change.result.problems[0].endswith("gives other outputs than eager: 1e-2 off")


def test_machines_of_one_sweep_are_compared_with_the_first():
    cpu = make_machine(None)
    cells = [make_cell(EAST, 100.0), make_cell(OLD, 300.0), make_cell(cpu), make_cell(WEST, 100.0)]
    found = compare_machines(make_results(cells, EAST, OLD, cpu, WEST))
    assert [item.describe().partition(":")[0] for item in found] == [
        "A100 against H100 (east)", "H100 (west) against H100 (east)",
    ]  # fmt: skip
    assert [verdicts_of(item) for item in found] == [["slower"], ["cannot-tell"]]
    assert any("the GPU is" in text for text in found[0].differences)
    with pytest.raises(InvalidArgumentError, match="no two machines have a cell in common"):
        compare_machines(make_results(cells[:1], EAST))
