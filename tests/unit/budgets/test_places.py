"""Which line of a step was running at a time."""

import sys
import time
from pathlib import Path

import torch
from torch import nn

from ftax.budgets.places import LineTimes, Places
from ftax.tape.recording import follow_modules

ROOT = Path(__file__).parents[3]
HERE = "tests/unit/budgets/test_places.py"
SEEN: dict[str, int] = {}  # when, by name


def note(name):
    SEEN[name] = time.monotonic_ns()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x):
        x = self.layer(x)
        note("in forward")
        return x + 0  # through no call of C


class Noted(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        SEEN["in backward"] = time.monotonic_ns()
        return gradient


def watch(step):
    lines = LineTimes(Places(ROOT))
    before = sys.gettrace()
    result = lines.watch(step)
    assert sys.gettrace() is before
    return lines, result


def test_the_line_that_runs():
    net = Net()

    def step():
        result = net(torch.ones(1, 2))
        time.sleep(0.001)
        SEEN["at the end"] = time.monotonic_ns()
        return result

    begin_ns = time.monotonic_ns()
    lines, result = watch(step)
    assert result.shape == (1, 2)
    assert lines.find(begin_ns).where == ""
    found = lines.find(SEEN["in forward"])
    assert found.where == f"at {HERE} in note: SEEN[name] = time.monotonic_ns()"
    # Lines of torch are no places; after a call its caller's line goes on.
    assert lines.find(SEEN["at the end"] - 500_000).where.endswith(": time.sleep(0.001)")
    assert lines.find(SEEN["at the end"]).where.endswith('SEEN["at the end"] = time.monotonic_ns()')
    assert lines.find(SEEN["at the end"], in_other_thread=True).where == ""


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = Net()

    def forward(self, x):
        y = self.net(x)
        note("after net")
        return y


def test_the_module_that_runs():
    block, lines = Block(), LineTimes(Places(ROOT))
    with follow_modules(block, lines.enter):
        lines.watch(lambda: block(torch.ones(1, 2)))
    assert lines.find(SEEN["in forward"]).where.startswith(f"in net at {HERE} in note")
    assert lines.find(SEEN["after net"]).where.startswith(f"at {HERE} in note")

    def list_modules(text):
        return [place.where.partition("at ")[0] for place, _ in lines._lines if text in place.where]

    assert list_modules("self.layer") == ["in net ", "in net.layer ", "in net "]
    calls = list_modules("y = self.net")
    assert (calls[0], calls[-1]) == ("", "")


def test_a_backward_pass_is_where_it_was_begun():
    x = torch.ones(2, requires_grad=True)

    def step():
        y = Noted.apply(x * 2).sum()
        y.backward()

    lines, _ = watch(step)
    begun = [place.where for place, is_backward in lines._lines if is_backward]
    assert [where.partition(": ")[2] for where in begun] == ["y.backward()"]
    index = [is_backward for _, is_backward in lines._lines].index(True)
    # Another thread's work then belongs to it.
    place = lines.find(lines._times_ns[index], in_other_thread=True)
    assert place.where == begun[0]
    assert place.line.startswith(f"{HERE}:")
