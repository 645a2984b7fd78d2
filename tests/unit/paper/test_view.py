"""A view: one machine, one kind of device, one form of models."""

import dataclasses
import math

import pytest

from ftax.errors import InvalidArgumentError
from ftax.paper.machine_view import Drift, find_interval, split_views
from ftax.sweeps.sweep_records import SweepMachine
from ftax.timing.cell import Cell
from support.fleet import H100, make_machine
from support.paper_results import MACHINE, make_cell, make_results

BERT = Cell(model="bert-base", runtime="eager", host="python", batch=1, sequence=128)


def with_changes(cell, **changes):
    return dataclasses.replace(cell, **changes)


def test_an_interval_is_as_wide_as_the_drift_of_the_hosts_part():
    cell = make_cell(BERT)  # half of it is the host's
    low, high = find_interval(cell, None)
    drift = Drift(sigma=0.1, within=0.1, cells=1, measurements=9)
    wide = find_interval(cell, drift)
    assert wide[0] < low < cell.latency_ns < high < wide[1]
    middle = 1.96 * 0.1 * 0.5
    assert math.log(wide[1] / cell.latency_ns) == pytest.approx(
        math.hypot(middle, math.log(high / cell.latency_ns))
    )
    busy = dataclasses.replace(cell, busy_ns=cell.latency_ns)
    assert find_interval(busy, drift) == pytest.approx((low, high))


def test_tiny_models_are_left_out_where_there_are_real_ones():
    tiny = with_changes(BERT, options={"tiny": True})
    (view,) = split_views(make_results([make_cell(tiny, latency_ms=1), make_cell(BERT)]))
    assert not view.tiny
    assert view.find("bert-base", "eager/python", "fp32", 1, 128).cell == BERT


def test_tiny_models_alone_are_shown_as_such():
    tiny = with_changes(BERT, options={"tiny": True})
    (view,) = split_views(make_results([make_cell(tiny)]))
    assert view.tiny
    assert view.label.endswith(", tiny models")  # in every legend and head of a column
    assert view.find("bert-base", "eager/python", "fp32", 1, 128).cell == tiny


def test_the_cell_with_fewest_options_is_the_one_that_is_meant():
    other = with_changes(BERT, options={"attention": "eager"})
    for cells in ([other, BERT], [BERT, other]):
        (view,) = split_views(make_results([make_cell(cell) for cell in cells]))
        assert view.find("bert-base", "eager/python", "fp32", 1, 128).cell == BERT


def test_without_a_sequence_there_has_to_be_one():
    longer = with_changes(BERT, sequence=512)
    (view,) = split_views(make_results([make_cell(BERT), make_cell(longer)]))
    with pytest.raises(InvalidArgumentError, match="say which one"):
        view.find("bert-base", "eager/python", "fp32", 1)
    (alone,) = split_views(make_results([make_cell(longer)]))
    assert alone.find("bert-base", "eager/python", "fp32", 1).cell == longer


def test_machines_and_devices_are_never_mixed():
    here = MACHINE.environment
    settings = dataclasses.replace(here.settings, num_threads=77)
    other = SweepMachine.of(dataclasses.replace(here, settings=settings))
    on_gpu = with_changes(BERT, device="cuda:1")
    results = make_results(
        [
            make_cell(BERT, latency_ms=1),
            make_cell(BERT, machine=other.id, latency_ms=2),
            make_cell(on_gpu, latency_ms=3),
        ],
        machines=(MACHINE, other),
    )
    views = split_views(results)
    found = [view.find("bert-base", "eager/python", "fp32", 1, 128).latency_ns for view in views]
    assert sorted(found) == pytest.approx([1e6, 2e6, 3e6])
    assert len({view.label for view in views}) == 3


def fleet(*latencies_ms, repetitions=0, **changes):
    """Cells of machines that are alike, each with repetitions a tenth of a percent apart."""
    machines = [make_machine(H100, f"number {place}") for place in range(len(latencies_ms))]
    cells = [
        make_cell(
            with_changes(
                BERT, device="cuda", options={"repetition": mark} if mark else {}, **changes
            ),
            machine=machine.id,
            latency_ms=latency_ms * (1 + mark / 1000),
            busy_ns=0.2e6 * latency_ms * (1 + mark / 1000),
        )
        for machine, latency_ms in zip(machines, latencies_ms, strict=True)
        for mark in range(repetitions + 1)
    ]
    return make_results(cells, machines=machines)


def test_machines_that_are_alike_are_one_view_with_what_lies_between_them():
    (view,) = split_views(fleet(1.0, 1.1, repetitions=3))
    assert (view.label, view.machines) == ("H100", 2)
    place = ("bert-base", "eager/python", "fp32", 1, 128)
    assert view.cells[place].latency_ns == pytest.approx(1e6)
    assert view.drift.apart == pytest.approx(math.log(1.1) / math.sqrt(2), rel=0.02)
    assert view.drift.sigma == pytest.approx(view.drift.apart, rel=0.01)
    assert "Between the 2 machines, which are alike, lie" in view.drift.describe()
    assert len(view.repeated[place].values_ns) == 6  # a round each time, on each
    low, high = find_interval(view.cells[place], view.drift)
    assert low < 0.95e6 and high > 1.05e6


def test_machines_without_repetitions_do_not_say_how_far_they_lie_apart():
    (view,) = split_views(fleet(1.0, 1.1))
    assert (view.machines, view.drift) == (2, None)


def test_cells_that_ask_for_a_kind_of_gpu_are_found():
    machine = make_machine(H100)
    cell = with_changes(BERT, device="cuda", options={"gpu": H100})
    (view,) = split_views(make_results([make_cell(cell, machine=machine.id)], machines=[machine]))
    assert view.find("bert-base", "eager/python", "fp32", 1, 128).cell == cell
