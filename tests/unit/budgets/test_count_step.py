"""What one call does, counted: against numbers that are known by hand."""

import random
import sys
import threading
from pathlib import Path

import pytest
import torch
from torch import nn

import ftax
from ftax.budgets.count_step import count
from ftax.errors import RunnerError, UnsupportedError
from ftax.steps.setting import Setting

ROOT = Path(__file__).parents[3]
HERE = "tests/unit/budgets/test_count_step.py"


def count_here(step, inputs=None):
    return count(step, inputs, Setting(), ROOT)


def totals(counts):
    return {kind: tally.total for kind, tally in counts.tallies.items()}


def facts(counts, kind):
    return {fact.key: fact.count for fact in counts.tallies[kind].facts}


def find_line(text):
    """Where this file has it."""
    lines = Path(__file__).read_text().splitlines()
    (number,) = [place for place, line in enumerate(lines, start=1) if line.strip() == text]
    return f"{HERE}:{number}"


class TwoLayers(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.second = nn.Linear(8, 3)

    def forward(self, x):
        hidden = self.first(x).relu()
        return self.second(hidden)


def test_a_forward_pass():
    found = count_here(TwoLayers(), torch.randn(2, 4))
    where = f"at {HERE} in TwoLayers.forward"
    assert facts(found, "operators") == {
        f"aten::linear in first {where}: hidden = self.first(x).relu()": 1,
        f"aten::relu {where}: hidden = self.first(x).relu()": 1,
        f"aten::linear in second {where}: return self.second(hidden)": 1,
    }
    counted = totals(found)
    assert counted["host_reads"] == counted["copies"] == 0
    assert counted["allocations"] == 3
    assert counted["allocated_bytes"] == 4 * (2 * 8 + 2 * 8 + 2 * 3)
    assert not any(tally.problem for tally in found.tallies.values())


def test_python_calls_are_those_of_the_step_alone():
    def add_one(x):
        return x + 1

    def step(x):
        return add_one(add_one(x))

    found = count_here(step, torch.ones(2))
    names = {
        fact.what.rpartition(".")[2]: fact.count for fact in found.tallies["python_calls"].facts
    }
    assert names == {"step": 1, "add_one": 2}


def test_equal_layers_are_one_fact():
    model = nn.Sequential(*(TwoLayers() for _ in range(1)), nn.Linear(3, 4), TwoLayers())
    found = facts(count_here(model, torch.randn(2, 4)), "operators")
    assert (
        found[f"aten::relu in * at {HERE} in TwoLayers.forward: hidden = self.first(x).relu()"] == 2
    )
    assert found["aten::linear in *"] == 1


def reads(x):
    if x.sum() > 0:
        x = x + 1
    number = float(x.max())
    listed = x.tolist()
    return x * number * listed[0]


def test_host_reads_have_their_lines():
    found = count_here(ftax.step(reads, torch.ones(3))).tallies["host_reads"]
    assert {(fact.what, fact.lines) for fact in found.facts} == {
        ("aten::_local_scalar_dense", (find_line("number = float(x.max())"),)),
        ("aten::is_nonzero", (find_line("if x.sum() > 0:"),)),
        ("Tensor.tolist", (find_line("listed = x.tolist()"),)),
    } or {fact.lines for fact in found.facts} == {
        (find_line("number = float(x.max())"),),
        (find_line("if x.sum() > 0:"),),
        (find_line("listed = x.tolist()"),),
    }


def reads_elsewhere(x):
    print(x)
    f"got {x}"
    if torch.allclose(x, x + 1):
        return x
    chosen = torch.tensor([x[0], [x[1], x[2]][0], 3.0])
    other = x.new_tensor(data=(x[0],))
    f"{x[0].item():.1f}"
    torch.tensor([1.0, 2.0])
    return x * chosen + other


def test_host_reads_beside_operators_have_their_lines(capsys):
    found = count_here(ftax.step(reads_elsewhere, torch.ones(3))).tallies["host_reads"]
    assert {(fact.what, fact.lines[0], fact.count) for fact in found.facts} == {
        ("Tensor.__repr__", find_line("print(x)"), 1),
        ("Tensor.__format__", find_line('f"got {x}"'), 1),
        ("aten::allclose", find_line("if torch.allclose(x, x + 1):"), 1),
        ("tensor of tensors in a list",
         find_line("chosen = torch.tensor([x[0], [x[1], x[2]][0], 3.0])"), 2),
        ("new_tensor of tensors in a list", find_line("other = x.new_tensor(data=(x[0],))"), 1),
        ("aten::_local_scalar_dense", find_line('f"{x[0].item():.1f}"'), 1),
    }  # fmt: skip


def test_copies_between_devices_have_their_lines():
    def step(x):
        away = (x + 1).to("meta")
        return x * 2, away.shape

    found = count_here(step, torch.ones(3)).tallies["copies"]
    assert [fact.lines for fact in found.facts] == [(find_line('away = (x + 1).to("meta")'),)]
    assert "cpu to meta" in found.facts[0].what


def make_training():
    model = TwoLayers()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return model, ftax.step(step, torch.randn(2, 4))


def test_a_training_step_is_counted_below_autograd_and_left_as_it_was():
    model, step = make_training()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = count_here(step)
    names = [fact.what for fact in found.tallies["operators"].facts for _ in range(fact.count)]
    assert names.count("aten::addmm") == 2
    assert any("loss.backward()" in key for key in facts(found, "operators"))
    assert not any(tally.problem for tally in found.tallies.values())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize(
    "make", [lambda: (TwoLayers(), torch.randn(2, 4)), lambda: (make_training()[1], None)]
)
def test_counts_are_the_same_in_every_run(make):
    assert len({str(totals(count_here(*make()))) for _ in range(3)}) == 1


def test_own_state_of_a_step_is_put_back():
    calls = []

    def step(x):
        calls.append(x.sum())
        return x * len(calls)

    def reset():
        calls.clear()

    found = count_here(ftax.step(step, torch.ones(2), reset=reset))
    assert totals(found)["operators"] == 2


def test_an_error_in_the_step_names_its_line():
    def step(x):
        raise ValueError("no such thing")

    with pytest.raises(RunnerError, match=r"no such thing.*test_count_step.py, line"):
        count_here(step, torch.ones(2))


def test_work_that_changes_is_refused():
    def step(x):
        for _ in range(random.randrange(1, 1000)):
            x = x + 1
        return x

    with pytest.raises(UnsupportedError, match="changes from call to call"):
        count_here(step, torch.ones(2))


class Restless(nn.Module):
    """Its operator calls stay the same, and what Python does changes."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        for _ in range(self.calls):
            (lambda: None)()
        return x + torch.empty(100 * self.calls).numel()


def test_what_differs_between_two_runs_is_no_count():
    found = count_here(Restless(), torch.ones(2))
    assert "in two runs of the same work" in found.tallies["python_calls"].problem
    assert found.tallies["allocated_bytes"].problem
    assert not found.tallies["operators"].problem


def test_operators_of_another_thread_are_told():
    def step(x):
        other = threading.Thread(target=lambda: torch.ones(3) + 1)
        other.start()
        other.join()
        return x + 1

    found = count_here(step, torch.ones(2))
    assert "another thread called operators" in found.tallies["operators"].problem


def test_hooks_and_switches_are_put_back():
    hook, threads = sys.getprofile(), torch.get_num_threads()
    count_here(TwoLayers(), torch.randn(2, 4))
    assert (sys.getprofile(), torch.get_num_threads()) == (hook, threads)


@pytest.mark.slow  # it compiles
def test_graph_breaks_and_recompilations():
    def inner(x):
        x = x + 1
        torch._dynamo.graph_break()
        return x * 2

    compiled = torch.compile(inner, backend="eager")
    found = count_here(ftax.step(lambda x: compiled(x), torch.ones(2)))
    assert totals(found)["graph_breaks"] == 1
    assert totals(found)["recompilations"] == 0
    (fact,) = found.tallies["graph_breaks"].facts
    assert fact.where == f"at {HERE} in inner: torch._dynamo.graph_break()"
    assert fact.lines == (find_line("torch._dynamo.graph_break()"),)


@pytest.mark.slow  # it compiles
def test_each_call_that_compiles_again():
    class Seen:
        calls = 0

    compiled = torch.compile(lambda x, size: x * size, backend="eager", dynamic=False)

    def step(x):
        Seen.calls += 1
        return compiled(x, Seen.calls)

    assert totals(count_here(step, torch.ones(2)))["recompilations"] == 1
