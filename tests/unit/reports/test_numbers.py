"""Numbers for programs: headers that never change, plain values, and the page that lists them."""

import csv
import io
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from ftax import compare
from ftax.ladders.receipt import Unavailable
from ftax.reports.columns import Column, Numbers, choose, for_programs, split_alike
from ftax.reports.table import Printout, Rows
from ftax.reports.tables.comparison_table import draw_comparisons
from ftax.reports.tables.knee_table import draw_knees
from ftax.reports.tables.measurement_table import draw_measurements
from ftax.reports.tables.models_table import draw_models
from ftax.reports.tables.operator_table import draw_operators
from ftax.reports.tables.receipt_table import draw_receipt
from ftax.reports.tables.sweep_table import draw_sweep
from ftax.reports.tables.trace_table import draw_trace
from ftax.sweeps.results import SweepResults
from support.records import make_measurement
from support.report_results import make_environments, make_knee
from support.runtimes_receipt import CLOSE, ORT, make_cpu_receipt, make_gpu_receipt, make_runtime
from support.sweeps import MACHINE, make_cell, make_failed, make_measured
from support.traces import make_repeated_trace

PAGE = Path(__file__).parents[3] / "docs" / "results.md"


def read(printout):
    return list(csv.DictReader(io.StringIO(printout.to_numbers().to_csv())))


def make_printouts():
    receipt = make_cpu_receipt(make_runtime(ORT, 300.0))
    sweep = SweepResults(cells=(make_measured(make_cell()),), machines={MACHINE.id: MACHINE})
    return {
        "bench": draw_measurements(make_measurement([100, 101])),
        "tax": draw_receipt(receipt),
        "ops": draw_operators(receipt, limit=1, by_kind=True),
        "compare": draw_comparisons(compare(receipt, receipt)),
        "knee": draw_knees(make_knee("eager", make_environments()[0], last_on=8)),
        "sweep": draw_sweep(sweep),
        "trace": draw_trace(make_repeated_trace("a", "b")),
        "models": draw_models(full=False),
    }


@pytest.mark.parametrize("command", make_printouts())
def test_the_header_of_a_command_is_the_one_that_the_page_shows(command):
    text = PAGE.read_text("utf-8")
    shown = dict(re.findall(r"`ftax (\w+)`: a row is [^\n]+\n\n```csv\n(.*?)```", text, re.DOTALL))
    header = make_printouts()[command].to_numbers().to_csv().splitlines()[0]
    assert "".join(shown[command].split()) == header


def test_a_header_is_there_without_a_row():
    empty = draw_sweep(SweepResults(cells=(), machines={})).to_numbers()
    assert empty.rows == () and empty.to_csv().startswith("label,model,runtime,host,")
    broken = draw_trace(make_repeated_trace("a", "b", dropped_records=3))
    assert broken.to_numbers().rows == () and "unreliable" in broken.warnings[0]


def test_a_measurement_is_numbers_in_ns_with_its_ends():
    measurement = make_measurement([100, 102, 98, 100]).with_label("before")
    (row,) = read(draw_measurements(measurement))
    assert (row["label"], row["runtime"], row["host"]) == ("before", "eager", "python")
    assert float(row["latency_ns"]) == measurement.latency_ns == 100.0
    assert (float(row["low_ns"]), float(row["high_ns"])) == measurement.interval_ns
    assert float(row["p99_ns"]) == measurement.summary.p99_ns
    assert (row["rounds"], row["sequence"], row["core_hz"]) == ("4", "", "")


def test_lines_and_runtimes_of_a_receipt_are_rows_of_two_parts():
    lost = Unavailable(runtime="jax", host="python", reason="no jax", error="")
    receipt = replace(
        make_cpu_receipt(make_runtime(ORT, 300.0, outputs=CLOSE)), unavailable=(lost,)
    )
    rows = read(draw_receipt(receipt))
    lines = [row for row in rows if row["part"] == "line"]
    assert [row["name"] for row in lines] == [line.name for line in receipt.lines]
    assert sum(float(row["latency_ns"]) for row in lines) == pytest.approx(receipt.latency_ns)
    assert {row["resolved"] for row in lines} <= {"true", "false"}
    assert {row["runtime"] for row in lines} == {""}
    runtimes = [row for row in rows if row["part"] == "runtime"]
    assert [row["name"] for row in runtimes] == [row.label for row in receipt.runtimes]
    first = runtimes[0]
    assert (first["name"], first["outputs_equal"]) == ("onnxruntime/cpp", "true")
    assert float(first["speedup_ratio"]) == pytest.approx(1000 / 300, rel=1e-3)
    assert float(first["tolerance"]) == 1e-2 and first["kernels"] == ""
    assert [row["why"] for row in rows if row["part"] == "unavailable"] == ["no jax"]


def test_a_gpu_receipt_has_its_evidence_in_the_rows_of_its_runtimes():
    rows = read(draw_receipt(make_gpu_receipt()))
    eager = next(row for row in rows if row["name"] == "eager/python")
    assert (eager["kernels"], eager["same_kernels"], eager["copies"]) == ("100", "true", "0")
    assert float(eager["busy_ns"]) == 640_000


def test_a_comparison_has_ratios_of_runtimes_and_differences_of_lines():
    before, after = make_cpu_receipt(), make_cpu_receipt(eager_us=2000.0)
    rows = read(draw_comparisons(compare(before, after, names=("x", "y"))))
    assert {(row["a"], row["b"]) for row in rows} == {("x", "y")}
    whole = rows[0]
    assert (whole["part"], whole["name"], whole["verdict"]) == ("runtime", "eager/python", "slower")
    assert float(whole["ratio"]) == pytest.approx(2.0) and whole["difference_ns"] == ""
    glue = next(row for row in rows if row["name"] == "model glue")
    assert float(glue["difference_ns"]) == pytest.approx(100_000)
    assert float(glue["difference_low_ns"]) < 100_000 < float(glue["difference_high_ns"])


def test_cells_of_a_sweep_are_rows_whether_measured_or_not():
    cells = (make_measured(make_cell(), values_ns=(100.0, 102.0)), make_failed(make_cell("flat")))
    results = SweepResults(cells=cells * 40, machines={MACHINE.id: MACHINE})
    rows = read(draw_sweep(results))
    assert len(rows) == 80  # a terminal gets a count of so many
    assert (rows[0]["status"], float(rows[0]["latency_ns"])) == ("measured", 101.0)
    assert (rows[1]["status"], rows[1]["why"], rows[1]["latency_ns"]) == ("failed", "it broke", "")


def test_a_knee_is_a_row_a_size():
    knee = make_knee("eager", make_environments()[0], last_on=8)
    rows = read(draw_knees(knee))
    assert [int(row["size"]) for row in rows] == [1, *sorted(p.size for p in knee.points)]
    assert rows[0]["ratio"] == "1.0" and {row["last_on"] for row in rows} == {str(knee.last_on)}
    assert rows[-1]["answer"] == "off"


def test_a_trace_is_a_row_a_kernel_and_one_of_its_time():
    rows = read(draw_trace(make_repeated_trace("a", "b", "a")))
    assert [row["part"] for row in rows] == ["timeline", "kernel", "kernel"]
    assert (rows[1]["kernel"], rows[1]["count"], rows[1]["grid"]) == ("a", "2", "2x1x1")
    assert float(rows[0]["wall_ns"]) > float(rows[0]["device_busy_ns"]) > 0


def test_a_table_of_text_is_its_own_numbers():
    table = Rows(title="t", columns=("a", "b"), numeric=(), rows=(("x", "=HYPERLINK(1)"),))
    assert read(Printout(tables=(table,))) == [{"a": "x", "b": "'=HYPERLINK(1)"}]


def test_a_value_without_a_column_is_refused_and_one_that_lacks_is_empty():
    with pytest.raises(KeyError, match="'c'"):
        Numbers.join(("a", "b"), [{"a": 1, "c": 2}])
    numbers = Numbers.join(("a", "b", "c", "d"), [{"a": None, "b": True, "c": -1.5e-7}])
    assert numbers.to_csv() == "a,b,c,d\n,true,-1.5e-07,\n"


def test_a_column_is_declared_once_for_people_and_for_programs():
    columns = [
        Column("latency", ("time_ns", "{:.0f} ns".format), "latency_ns"),
        Column("interval", ("ends", str), ("low_ns", "high_ns")),
        Column("runtime", "name", "runtime", is_text=True),
        *for_programs("rounds", first="ends.0"),
        Column("remark", lambda item: item.name.upper()),
    ]
    known = SimpleNamespace(time_ns=1.4, ends=(1.0, 2.0), name="eager", rounds=3)
    lacking = SimpleNamespace(time_ns=None, ends=None, name="flat", rounds=3)
    numbers = Numbers.of([known, lacking], columns)
    assert numbers.columns == ("latency_ns", "low_ns", "high_ns", "runtime", "rounds", "first")
    assert numbers.rows == ((1.4, 1.0, 2.0, "eager", 3, 1.0), (None, None, None, "flat", 3, None))
    table = Rows.of_columns("t", [known, lacking], columns)
    assert (table.columns, table.numeric) == (
        ("latency", "interval", "runtime", "remark"), ("latency", "interval", "remark"),
    )  # fmt: skip
    assert table.rows == (("1 ns", "(1.0, 2.0)", "eager", "EAGER"), ("-", "-", "flat", "FLAT"))
    chosen = Rows.of_columns("t", [known], choose(columns, "runtime", "latency"))
    assert chosen.rows == (("eager", "1 ns"),)


def test_what_is_the_same_of_all_items_is_told_apart_from_what_differs():
    columns = [Column("dtype", "dtype"), Column("batch", "batch"), Column("length", "length")]
    items = [SimpleNamespace(dtype="fp16", batch=batch, length=None) for batch in (1, 2)]
    assert split_alike(items, columns) == ([columns[1]], ["dtype fp16"])


def test_names_of_others_are_no_formulas_in_csv():
    text = draw_measurements(make_measurement([1, 2]).with_label("=1+cmd|'/C calc'!A0"))
    assert text.to_numbers().to_csv().splitlines()[1].startswith("'=1+cmd")
