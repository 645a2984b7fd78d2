"""Reading what sweeps left: the last line counts, and machines and other versions stay apart."""

from __future__ import annotations

import lzma
from dataclasses import replace

import pytest

from ftax.errors import InvalidArgumentError, ResultsError
from ftax.machines.environment import collect_environment
from ftax.records.store import append_record
from ftax.sweeps.results import CELLS_FILE, SweepResults, is_cells_file
from ftax.sweeps.store import read_known
from ftax.sweeps.sweep_records import SweepMachine
from support.sweeps import MACHINE, make_cell, make_failed, make_measured

A, B = make_cell("a"), make_cell("b", batch=2)


def write(folder, *records):
    for record in records:
        append_record(folder / CELLS_FILE, record)
    return SweepResults.load(folder)


@pytest.mark.parametrize("value", [0.0, -1.0, 1e-320, 1e300])
def test_a_time_that_no_clock_gives_is_no_result(value):
    with pytest.raises(InvalidArgumentError, match=r"values_ns.* a time in ns, 0\.001 to"):
        make_measured(make_cell(), values_ns=(1.0, value))


def test_the_last_line_of_a_cell_counts(tmp_path):
    later = make_measured(A, busy_ns=1.0)
    results = write(tmp_path, MACHINE, make_measured(A), make_measured(B), later)
    assert results.cells == (later, make_measured(B))
    assert list(results.machines) == [MACHINE.id]


def test_a_failure_gives_way_to_rounds_of_another_machine(tmp_path):
    results = write(tmp_path, make_failed(A), make_measured(A, machine="other"))
    assert [cell.machine for cell in results.cells] == ["other"]


def test_machines_are_never_mixed(tmp_path):
    results = write(tmp_path, make_measured(A), make_measured(A, machine="other"))
    with pytest.raises(InvalidArgumentError, match=r"is 2 cells: m a/python.* of machine other"):
        results.find(model="m")
    parts = results.split_by_machine()
    assert [(name, len(part.cells)) for name, part in parts.items()] == [
        (MACHINE.id, 1),
        ("other", 1),
    ]
    assert results.find(model="m", machine="other").machine == "other"


def test_cells_are_selected_by_value_or_by_several(tmp_path):
    results = write(tmp_path, make_measured(A), make_measured(B), make_failed(make_cell("c")))
    assert len(results.select(batch=[1, 2], runtime=("a", "b")).cells) == 2
    assert results.find(runtime="b").cell == B
    assert results.find(runtime="none") is None
    assert [cell.cell.runtime for cell in results.select(status="failed").cells] == ["c"]
    assert len(results.select(options={}).cells) == 3
    with pytest.raises(InvalidArgumentError, match="no field 'size'; there are model"):
        results.select(size=1)


def test_a_torn_line_is_left_out_and_told(tmp_path):
    write(tmp_path, make_measured(A))
    with (tmp_path / CELLS_FILE).open("a") as file:
        file.write('{"ftax_schema":6,"kind":"sweep-ce')
    results = write(tmp_path, make_measured(B))
    assert len(results.cells) == 2 and "writer was stopped" in results.problems[0]


def test_compressed_cells_are_those_of_the_folder_and_no_more_are_added(tmp_path):
    results = write(tmp_path, MACHINE, make_measured(A))
    path = tmp_path / CELLS_FILE
    packed = path.with_name(f"{CELLS_FILE}.xz")
    packed.write_bytes(lzma.compress(path.read_bytes()))
    path.unlink()
    assert SweepResults.load(tmp_path) == SweepResults.load(packed) == results
    assert is_cells_file(packed) and read_known(tmp_path, resume=True) == results
    with pytest.raises(ResultsError, match=r"cells\.jsonl\.xz holds records.*unpack it"):
        write(tmp_path, make_measured(B))


def test_other_versions_and_other_files_are_refused(tmp_path):
    path = tmp_path / CELLS_FILE
    with pytest.raises(ResultsError, match="is no folder of a sweep"):
        SweepResults.load(tmp_path)
    write(tmp_path, make_measured(A))
    path.write_text(path.read_text().replace('"ftax_schema":6', '"ftax_schema":99'))
    with pytest.raises(ResultsError, match="schema version 99, while this ftax reads 6"):
        SweepResults.load(path)
    with pytest.raises(InvalidArgumentError, match="there is no path"):
        SweepResults.load()


def test_what_passes_does_not_make_another_machine():
    environment = collect_environment()
    busy = replace(
        environment, condition=replace(environment.condition, load_average=(9.0, 9.0, 9.0))
    )
    newer = replace(environment, software=replace(environment.software, torch="9.9"))
    assert SweepMachine.of(busy).id == SweepMachine.of(environment).id
    assert SweepMachine.of(newer).id != SweepMachine.of(environment).id


def test_a_summary_counts_what_there_is():
    sure = make_measured(make_cell("a"), values_ns=(5.0, 5.1, 5.2))
    unsure = make_measured(make_cell("b"), values_ns=(1.0, 90.0))
    told = {
        (sure, make_failed(make_cell())): "1 measured, 1 failed",
        (sure, unsure): "2 measured (1 not resolved)",
    }
    for cells, text in told.items():
        assert SweepResults(cells=cells, machines={}).describe() == text
    assert SweepResults(cells=(), machines={}).describe() == "no cell yet"
