"""What a prompt, a notebook and a data frame get of a result, and that a prompt gets one line."""

import random
import sys
from dataclasses import dataclass, fields

import pytest

import ftax
from ftax import Plan, UnavailableError, compare
from ftax.records.kinds import KINDS
from ftax.records.record import Record
from ftax.records.result import Result, Shown
from ftax.reports.terminal import to_text
from ftax.runtimes.plugins.conform import Conformance, Finding
from ftax.sweeps.results import SweepResults
from ftax.timing.differences import HostComparison
from support.records import make_measurement
from support.report_results import make_environments, make_knee
from support.runs import make_run
from support.runtimes_receipt import CLOSE, ORT, make_cpu_receipt, make_gpu_receipt, make_runtime
from support.sweeps import MACHINE, make_cell, make_measured
from support.traces import make_repeated_trace


def test_printing_draws_no_random_number_of_the_user():
    receipt = make_cpu_receipt()
    before = random.getstate()
    assert str(receipt) and str(receipt.details)
    assert receipt._repr_html_() and receipt.details._repr_html_()
    assert random.getstate() == before


HOSTILE = '<script>x</script>&"'


def make_all():
    """One of every kind that shows itself, with many samples where there are samples."""
    measurement = make_measurement([100 + place % 7 for place in range(5000)])
    receipt = make_gpu_receipt(make_runtime(ORT, 800.0, outputs=CLOSE))
    cpp = make_measurement([50] * 6, host="cpp")
    return {
        "measurement": measurement,
        "receipt": receipt,
        "comparison": compare(receipt, receipt),
        "host-comparison": HostComparison(python=make_measurement([100] * 6), cpp=cpp),
        "knee": make_knee("eager", make_environments()[0], last_on=8),
        "trace": make_repeated_trace("a", "b"),
        "conformance": Conformance(
            plugin="lib.so",
            config="",
            model="mlp",
            device="cpu",
            findings=(Finding(name="loads", status="passed"),),
        ),
        "run": make_run(500),
        "sweep": SweepResults(
            cells=(make_measured(make_cell("eager")),) * 900, machines={MACHINE.id: MACHINE}
        ),
    }


ALL = make_all()
EACH = pytest.mark.parametrize("result", ALL.values(), ids=ALL)


def test_every_kind_that_is_drawn_is_tried_here():
    assert set(ALL) == {name for name, kind in KINDS.items() if kind.drawing}


@EACH
def test_a_prompt_echoes_one_line(result):
    echoed = repr(result)
    assert echoed.startswith(f"<{type(result).__name__}: ") and echoed.endswith(">")
    assert "\n" not in echoed and len(echoed) < 300
    assert result.describe() in echoed


@EACH
@pytest.mark.parametrize("width", [40, 80])
def test_no_line_is_wider_than_the_terminal(result, width):
    lines = to_text(result.details, width=width).splitlines()
    assert max(map(len, lines), default=0) <= width


@EACH
def test_a_notebook_gets_every_table_with_all_its_columns(result):
    html = result._repr_html_()
    drawn = result.draw()
    assert html.count("<table") == len(drawn.tables)
    for table in drawn.tables:
        for name in table.columns:
            assert f">{name.replace(chr(39), '&#x27;')}</th>" in html
    assert "<script" not in html and "color:" not in html.replace("border-", "")


def test_texts_of_others_are_escaped_in_a_notebook():
    measurement = make_measurement([100, 101]).with_label(HOSTILE)
    html = compare(measurement, make_measurement([100, 101]), names=(HOSTILE, "b"))._repr_html_()
    assert "<script" not in html and "&lt;script&gt;x&lt;/script&gt;&amp;&quot;" in html
    from ftax.reports.table import Printout, Rows

    table = Rows(title=HOSTILE, columns=(HOSTILE,), numeric=(), rows=((HOSTILE,),))
    drawn = Printout(tables=(table,), notes=(HOSTILE,), warnings=(HOSTILE, "\x1b[2J"))
    html = drawn._repr_html_()
    assert "<script" not in html and r"\x1b[2J" in html


class Frame:
    """In the place of a pandas.DataFrame."""

    def __init__(self, rows, columns):
        self.rows, self.columns = rows, columns


@EACH
def test_a_data_frame_has_the_numbers_that_csv_has(result, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", type(sys)("pandas"))
    sys.modules["pandas"].DataFrame = Frame
    frame = result.to_dataframe()
    header, *lines = result.draw().to_numbers().to_csv().splitlines()
    assert header == ",".join(frame.columns)
    assert len(frame.rows) == len(lines) >= 1
    assert {len(row) for row in frame.rows} == {len(frame.columns)}


def test_without_pandas_the_remedy_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(
        UnavailableError, match="pip install pandas, or save the numbers with --csv"
    ):
        make_measurement([100, 101]).to_dataframe()


def test_pandas_takes_it():
    pandas = pytest.importorskip("pandas")
    frame = make_cpu_receipt(make_runtime(ORT, 300.0)).to_dataframe()
    assert isinstance(frame, pandas.DataFrame)
    lines = frame[frame.part == "line"].set_index("name")
    assert lines.latency_ns["model glue"] == pytest.approx(100_000)
    assert frame[frame.runtime == "onnxruntime"].latency_ns.item() == pytest.approx(300_000)


def test_a_record_that_is_not_drawn_echoes_its_fields_cut_short():
    cell = make_measured(make_cell("eager"), values_ns=(1.0,) * 5000)
    assert "values_ns=(1.0, 1.0, " in repr(cell) and len(repr(cell)) < 1500
    assert repr(cell.cell).startswith("Cell(model='m', runtime='eager', host='python', ")
    assert str(cell) == repr(cell)


def test_a_class_may_say_itself_what_a_prompt_echoes():
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Own(Record):
        name: str

        def __repr__(self):
            return "own"

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Heir(Own):
        other: str

    assert repr(Own(name="x")) == repr(Heir(name="x", other="y")) == "own"


def test_a_plan_echoes_what_differs_from_its_defaults():
    assert repr(Plan()) == "Plan()"
    plan = Plan(rounds=5, cpus=(0, 1))
    assert repr(plan) == "Plan(rounds=5, cpus=(0, 1))" and eval(repr(plan)) == plan


def test_every_public_class_is_tried_here_or_is_short_by_itself():
    shown = {type(result) for result in ALL.values()}
    for name in ftax.__all__:
        thing = getattr(ftax, name)
        if isinstance(thing, type) and issubclass(thing, Shown):
            assert thing in shown
    assert issubclass(ftax.Measurement, Result) and len(fields(ftax.Measurement)) > 10
