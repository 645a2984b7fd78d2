"""A ladder is a table: what it says of its rungs, and another one, measured by the same code."""

import pytest

import ftax
from ftax import InvalidArgumentError, ResultsError
from ftax.ladders.choice import TaxOptions
from ftax.ladders.ladder import EAGER, LADDERS, Ladder, Rung, find_ladder
from ftax.ladders.measure_receipt import run_tax
from ftax.reports.tables.receipt_table import make_receipt_tables
from ftax.runtimes.catalogue import list_runtimes
from ftax.runtimes.workspace import Workspace
from ftax.timing.candidate import Place
from ftax.timing.plan import Plan
from support.small_models import load_function

QUICK = Plan(rounds=3, warmup=2, round_ms=1.0)
SCRIPTED = Ladder(
    name="scripted",
    top="the scripted service",
    rungs=(
        Rung(
            runtime="eager",
            host="python",
            rest=("all of it", "nothing was taken away"),
            gaps=("all but kernels", "nothing was taken away"),
        ),
        Rung(
            runtime="flat",
            host="python",
            removes=("modules", "the modules' Python"),
            rest=("calls", "operator calls"),
            gaps=("calls without kernels", "operator calls"),
        ),
        Rung(
            runtime="torchscript",
            host="cpp",
            removes=("calls from Python", "what each call costs"),
            rest=("the interpreter of scripts", "and what it calls"),
            gaps=("the interpreter without kernels", "and what it calls"),
        ),
    ),
    joined={("modules", "calls from Python"): ("everything in Python", "for lack of flat")},
    stand_ins={Place("torchscript", "cpp"): "the script"},
)


@pytest.fixture
def scripted(monkeypatch):
    monkeypatch.setitem(LADDERS, SCRIPTED.name, SCRIPTED)


def measure(**options):
    workspace = Workspace(load_function(lambda x: (x + 1).exp().sum()))
    found = run_tax(workspace, TaxOptions(ladder="scripted", **options), QUICK, None)
    return found[0]


def test_another_ladder_is_measured_stored_and_printed_as_a_table(scripted, tmp_path):
    receipt = measure(runtimes=["torchscript", "torchscript-frozen"])
    assert receipt.ladder is SCRIPTED
    assert [rung.place for rung in receipt.rungs] == [*SCRIPTED.places]
    # Of the two hosts of torchscript the one under C++ is a rung here, and no alternative.
    assert {str(item.place) for item in receipt.others} == {
        "torchscript/python", "torchscript-frozen/python", "torchscript-frozen/cpp"
    }  # fmt: skip
    assert [line.name for line in receipt.lines] == [
        "modules", "calls from Python", "the interpreter of scripts"
    ]  # fmt: skip
    assert sum(line.time_ns for line in receipt.lines) == pytest.approx(receipt.latency_ns)
    assert receipt.python_tax_ns[0] == pytest.approx(
        receipt.latency_ns - receipt.rungs[-1].latency_ns
    )
    receipt.save(tmp_path / "r.jsonl")
    (loaded,) = ftax.Receipt.load(tmp_path / "r.jsonl")
    assert loaded == receipt and loaded.ladder is SCRIPTED
    assert make_receipt_tables(loaded)[0].rows[-1][0] == "= eager, called from Python"
    text = " ".join(str(loaded.details).split())
    for words in ("modules", "calls from Python", "the interpreter of scripts", "the reference"):
        assert words in text


def test_a_rung_that_is_missing_joins_the_lines_around_it(scripted, monkeypatch):
    def fail(workspace, host):
        raise ftax.UnsupportedError("no flat program")

    monkeypatch.setattr("ftax.runtimes.eager.eager.prepare_flat", fail)
    receipt = measure(runtimes="none")
    assert receipt.lines[0].name == "everything in Python"
    assert [item.reason for item in receipt.unavailable] == ["no flat program"]


def test_a_first_rung_that_fails_is_called_as_its_ladder_says(scripted):
    calls = []

    def fail_late(x):
        calls.append(None)
        if len(calls) > 40:
            raise RuntimeError("enough")
        return x + 1

    workspace = Workspace(load_function(fail_late))
    options = TaxOptions(ladder="scripted", runtimes="none")
    with pytest.raises(ftax.RunnerError, match="the scripted service could not be measured"):
        run_tax(workspace, options, Plan(rounds=50), None)


def test_a_ladder_that_there_is_not_is_refused_by_its_name(scripted, monkeypatch, tmp_path):
    with pytest.raises(
        InvalidArgumentError, match=r"no ladder 'strict'; there is .*scripted, or the one"
    ):
        find_ladder("strict")
    measure(runtimes="none").save(tmp_path / "r.jsonl")
    monkeypatch.delitem(LADDERS, "scripted")
    with pytest.raises(ResultsError, match="no ladder 'scripted'"):
        ftax.Receipt.load(tmp_path / "r.jsonl")


def test_rungs_and_instruments_of_the_usual_ladder_are_in_the_catalogue():
    specs = {spec.name: spec for spec in list_runtimes()}
    for rung in EAGER.rungs:
        spec = specs[rung.runtime]
        assert rung.host in spec.hosts and set(rung.devices) <= set(spec.devices)
        deployed = any(place.runtime == rung.runtime for place in EAGER.stand_ins)
        assert spec.instrument is not deployed
    assert EAGER.list_places("cpu") == [*EAGER.places[:3]]
    assert EAGER.list_places("cuda:1") == [*EAGER.places]
    assert EAGER.without_python == ("eager", "cpp")


EAGER_PY, FLAT, TAPE, NO_READS, LAUNCH, GRAPH = EAGER.places


@pytest.mark.parametrize(
    ("upper", "lower", "name"),
    [
        (EAGER_PY, FLAT, "model glue"),
        (EAGER_PY, TAPE, "Python"),
        (FLAT, TAPE, "interpreter and bindings"),
        (TAPE, NO_READS, "host reads"),
        (NO_READS, LAUNCH, "dispatch"),
        (TAPE, LAUNCH, "dispatch"),  # a model that reads nothing back has no line for it
        (TAPE, GRAPH, "dispatch + launch"),
        (EAGER_PY, GRAPH, "model glue + interpreter and bindings + dispatch + launch"),
    ],
)
def test_a_step_is_called_by_all_that_it_removes(upper, lower, name):
    assert EAGER.name_step(upper, lower)[0] == name
