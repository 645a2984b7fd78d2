"""Rows over machines: the kind of GPU is no part of a row, nothing is merged, names differ."""

from __future__ import annotations

from ftax.sweeps.side_by_side import group_shared, line_up, mark_software, name_machines
from ftax.sweeps.sweep_records import GPU
from support.fleet import A100, H100, make_cell, make_machine


def rows_of(*cells):
    return line_up(cells, lambda cell: cell.cell, lambda cell: cell.machine)


def test_cells_for_two_kinds_of_gpu_are_one_row():
    fast, slow = make_machine(H100), make_machine(A100)
    a, b = make_cell(fast, asks=H100), make_cell(slow, asks=A100)
    (row,) = rows_of(a, b)
    assert GPU not in row.cell.options
    assert row.found == {fast.id: a, slow.id: b}


def test_what_one_machine_has_twice_is_two_rows():
    machine = make_machine()
    asked, unasked = make_cell(machine, asks=H100), make_cell(machine)
    assert [list(row.found.values()) for row in rows_of(asked, unasked)] == [[asked], [unasked]]


def test_models_that_machines_do_not_share_are_in_no_group():
    fast, slow = make_machine(H100), make_machine(A100)
    shared = [make_cell(fast), make_cell(slow), make_cell(fast, batch=2)]
    apart = [make_cell(fast, model="gpt2"), make_cell(slow, model="gpt2", batch=8)]
    (group,) = group_shared(rows_of(*shared, *apart))
    assert [(row.cell.model, row.cell.batch) for row in group] == [
        ("bert-base", 1),
        ("bert-base", 2),
    ]


def test_a_cpu_and_a_gpu_have_no_row_in_common():
    cpu, gpu = make_machine(None), make_machine(H100)
    assert group_shared(rows_of(make_cell(cpu), make_cell(gpu))) == []


def test_machines_are_named_by_their_gpu_and_told_apart_by_name_or_id():
    first, second = make_machine(H100, "one"), make_machine(H100, "two")
    other, lone = make_machine(A100), make_machine(H100)
    names = name_machines([first, second, other])
    assert list(names.values()) == ["H100 (one)", "H100 (two)", "A100"]
    assert name_machines([first, lone])[lone.id] == f"H100 ({lone.id[:6]})"
    updated = make_machine(H100, "one", torch="9.9.9")
    assert len(set(name_machines([first, updated]).values())) == 2
    cpu = make_machine(None)
    assert name_machines([cpu])[cpu.id] == (cpu.environment.host.cpu_model or "x86_64")


def test_other_software_is_marked_and_told_once():
    first, second = make_machine(H100, torch="2.11.0"), make_machine(A100, torch="2.13.0")
    known = {"H100": first.environment, "A100": second.environment}
    headings, notes = mark_software(["H100", "A100", "B200"], known)
    assert headings == {"H100": "H100", "A100": "A100 *", "B200": "B200"}
    assert notes == (
        "* not measured with the software of H100: torch is 2.11.0 for H100 and 2.13.0 for A100",
    )
    same, nothing = mark_software(["H100"], known)
    assert (same, nothing) == ({"H100": "H100"}, ())
