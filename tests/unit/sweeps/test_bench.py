"""The public functions, used as a user would."""

import warnings
from dataclasses import dataclass

import pytest
import torch
from torch import nn

import ftax
from ftax.ladders.tax import tax_with_traces
from ftax.timing.plan import Plan

QUICK = Plan(rounds=4, warmup=2, round_ms=1.0)


def make_mlp():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))


INPUT = torch.ones(2, 8)


@pytest.mark.parametrize("host", ["python", "cpp"])
def test_bench_times_a_module_of_the_user(host):
    bench = ftax.cpp_bench if host == "cpp" else ftax.py_bench
    measurement = bench(make_mlp(), INPUT, plan=QUICK)
    assert measurement.cell.host == host
    assert measurement.cell.batch == 2
    assert len(measurement.values_ns) == 4
    assert measurement.latency_ns > 0
    assert measurement.checks["outputs"]["bitwise"]


@pytest.mark.parametrize("bench", [ftax.cpp_bench, ftax.py_bench, ftax.tax])
def test_a_result_has_the_label_that_it_is_given(bench):
    alone = {"runtimes": "none"} if bench is ftax.tax else {}
    found = bench(make_mlp(), INPUT, plan=QUICK, label="before", **alone)
    assert found.label == "before"
    assert ftax.compare(found, found.with_label("after")).name_b == "after"


def test_ctrl_c_is_said_and_what_was_measured_is_returned(capsys):
    def interrupt(phase, done, total):
        if phase == "round" and done == 2:
            raise KeyboardInterrupt

    plan = Plan(rounds=50, warmup=2, round_ms=1.0)
    assert len(ftax.py_bench(make_mlp(), INPUT, plan=plan, progress=interrupt).samples_ns) == 2
    assert capsys.readouterr().err == ""  # a callback's owner tells it


def test_throughput_times_bursts():
    measurement = ftax.cpp_bench(
        make_mlp(), INPUT, plan=Plan(mode="throughput", rounds=3, warmup=2)
    )
    assert measurement.mode == "throughput"
    assert measurement.burst > 1


def test_compare_hosts_shares_rounds():
    python, cpp = ftax.compare_hosts(make_mlp(), INPUT, plan=QUICK)
    assert (python.cell.host, cpp.cell.host) == ("python", "cpp")
    assert "paired" in ftax.compare(python, cpp).method.lower()


def test_tax_of_a_module_has_the_whole_ladder():
    receipt = ftax.tax(make_mlp(), INPUT, plan=QUICK, runtimes="none")
    assert [line.name for line in receipt.lines] == [
        "model glue",
        "interpreter and bindings",
        "operators",
    ]
    assert sum(line.time_ns for line in receipt.lines) == pytest.approx(receipt.latency_ns)
    assert [cost.operator for cost in receipt.operator_costs] == [
        "aten::linear",
        "aten::relu",
        "aten::linear",
    ]
    assert receipt.operator_costs[2].module == "2"


class Branching(nn.Module):
    def forward(self, x):
        return x + 1 if float(x.sum()) > 0 else x * 2


def test_rounds_are_handed_over_before_anything_looks_closer(monkeypatch):
    kept = []

    def fault(**_):
        assert kept, "the rounds are not safe yet"
        raise KeyError("a fault that nobody expected")

    monkeypatch.setattr("ftax.ladders.after.measure_floors", fault)
    with pytest.raises(KeyError):
        tax_with_traces(make_mlp(), INPUT, plan=QUICK, runtimes="none", keep=kept.append)
    (receipt,) = kept
    assert [len(rung.values_ns) for rung in receipt.rungs] == [4, 4, 4]
    assert receipt.evidence == ()


def test_a_model_that_cannot_be_taped_still_has_a_receipt():
    receipt = ftax.tax(
        Branching(), torch.ones(3), check_inputs=-torch.ones(3), plan=QUICK, runtimes="none"
    )
    assert [line.name for line in receipt.lines] == ["everything"]
    reasons = {(u.runtime, u.host): u.reason for u in receipt.unavailable}
    assert "control flow depends on the data" in reasons["eager", "cpp"]


@dataclass
class Result:
    logits: torch.Tensor
    extra: dict


class Nested(nn.Module):
    def forward(self, x):
        return Result(logits=x + 1, extra={"both": (x * 2, [x - 1])})


def test_outputs_may_be_nested_containers():
    measurement = ftax.cpp_bench(Nested(), torch.ones(3), plan=QUICK)
    assert measurement.checks["outputs"]["bitwise"]


class Raising(nn.Module):
    def forward(self, x):
        raise ValueError("the cat sat on it")


def test_a_model_that_raises_is_named_with_its_error():
    with pytest.raises((ftax.RunnerError, ValueError), match="the cat sat on it"):
        ftax.tax(Raising(), torch.ones(3), plan=QUICK)


class Failing(nn.Module):
    """Fails after some calls, as a model with a leak or a counter does."""

    def __init__(self, after):
        super().__init__()
        self.left = after

    def forward(self, x):
        self.left -= 1
        if self.left < 0:
            raise RuntimeError("worn out")
        return x + 1


def test_a_model_that_fails_while_measured_raises_a_runner_error():
    with pytest.raises(ftax.RunnerError, match="worn out"):
        ftax.py_bench(Failing(30), torch.ones(3), plan=Plan(rounds=50, warmup=2))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"runtime": "torchskript"}, "did you mean 'torchscript'"),
        ({"threads": 0}, "threads is 0"),
        ({"dtyp": "fp32"}, "unknown option 'dtyp'"),
        ({"runtime": "flat"}, "flat is Python by definition"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ftax.FtaxError, match=message):
        ftax.cpp_bench(make_mlp(), INPUT, plan=QUICK, **arguments)


def test_an_unknown_model_is_answered_with_the_nearest():
    with pytest.raises(ftax.InvalidArgumentError, match="bert-base"):
        ftax.cpp_bench("bert-bass")


def test_nan_outputs_are_warned_about():
    class Nan(nn.Module):
        def forward(self, x):
            return x * float("nan")

    measurement = ftax.cpp_bench(Nan(), torch.ones(3), plan=QUICK)
    assert any("NaN" in warning for warning in measurement.warnings)


def test_threads_are_restored():
    before = torch.get_num_threads()
    ftax.cpp_bench(make_mlp(), INPUT, plan=QUICK, threads=1)
    assert torch.get_num_threads() == before


def save_torchscript(path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # that it is deprecated is not tested
        torch.jit.save(torch.jit.trace(make_mlp().eval(), INPUT), str(path))


def test_a_torchscript_file_runs_under_both_hosts(tmp_path):
    path = tmp_path / "model.pt"
    save_torchscript(path)
    python, cpp = ftax.compare_hosts(path, INPUT, plan=QUICK)
    assert {python.cell.runtime, cpp.cell.runtime} == {"torchscript"}


def test_a_file_without_inputs_says_what_to_pass(tmp_path):
    path = tmp_path / "model.pt"
    save_torchscript(path)
    with pytest.raises(ftax.InvalidArgumentError, match="needs inputs"):
        ftax.cpp_bench(path)
    with pytest.raises(ftax.InvalidArgumentError, match="takes 1 inputs, 3 were given"):
        ftax.cpp_bench(path, (INPUT, INPUT, INPUT), plan=QUICK)
