"""A captured call of compiled code, with graphs that run on the CPU.

What stands in the place of a CUDA graph here runs what was compiled and writes the results where
the first ones were. It adds 100 to them, so that a replay is told from compiled code.
"""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import ftax
from ftax import UnsupportedError, _core
from ftax.captures import compiled as module
from ftax.captures.compiled import CompiledProgram, record_doors
from ftax.steps.load import load_model
from ftax.steps.step import Step
from support.small_models import normal

# The compiler asks a GPU for its streams, and would see what stands in for them here.
pytestmark = pytest.mark.skipif(
    torch.cuda.is_available(), reason="with a GPU, tests/cuda captures in earnest"
)
X, Y = normal(3, 4), normal(3, 4, seed=5)
_MARK = 100.0


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.scale = 2.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x).tanh() * self.scale


class Broken(Net):
    """Two graphs with Python between them."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = super().forward(x)
        torch._dynamo.graph_break()
        return y + 1


class Fake:
    """Every graph that was asked for, and what marks its results."""

    def __init__(self) -> None:
        self.graphs = 0
        self.mark = 0.0

    def capture_request(self, _: Any, request: Callable[[], Any], __: str) -> Any:
        self.graphs += 1
        outputs = request()
        return SimpleNamespace(request=request, outputs=outputs), outputs, False

    def find_launch(self, captured: Any) -> Callable[[], None]:
        def launch() -> None:
            now = captured.graph.request()
            for output, result in zip(captured.graph.outputs, now, strict=True):
                output.copy_(result + self.mark)

        return launch


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[Fake]:
    torch._dynamo.reset()
    fake = Fake()
    monkeypatch.setattr(module, "capture_request", fake.capture_request)
    monkeypatch.setattr(module, "find_launch", fake.find_launch)
    stream = SimpleNamespace(wait_stream=lambda other: None)
    for name, stand_in in (("memory_reserved", lambda *_: 0), ("synchronize", lambda *_: None),
                           ("current_stream", lambda: stream)):  # fmt: skip
        monkeypatch.setattr(torch.cuda, name, stand_in)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: None, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda _: 1, raising=False)
    yield fake
    torch._dynamo.reset()


def record(fake: Fake, what: Any, *args: Any) -> CompiledProgram:
    """As `ftax.capture` would on a GPU; from here on replays mark what they give."""
    fake.mark = 0.0
    step = Step(function=what, inputs=args, name="net", kind="call")
    signature = _core.Signature(args, {})
    program = record_doors(what, load_model(step), signature, list(args), borrows=False)
    fake.mark = _MARK
    return program


def call(program: CompiledProgram, *args: Any) -> Any:
    tensors = program.match(args, {})
    assert tensors is not None
    return program.run(tensors)


def compiled(net: nn.Module) -> Any:
    torch.manual_seed(0)
    return torch.compile(net.eval(), backend="aot_eager")


@torch.inference_mode()
def test_replays_stand_where_the_compiled_graphs_are_called(fake: Fake) -> None:
    net = compiled(Net())
    program = record(fake, net, X)
    assert fake.graphs == 1
    assert torch.equal(call(program, Y), net(Y) + _MARK)
    assert torch.equal(call(program, Y), net(Y) + _MARK)  # who calls it otherwise has no replay
    assert "CUDA graphs of 1 compiled graph" in program.contents
    first, second = call(program, X), call(program, Y)
    assert not torch.equal(first, second)  # a copy


@torch.no_grad()
def test_the_callers_grad_mode_is_that_of_the_graphs(fake: Fake) -> None:
    net = compiled(Net())
    program = record(fake, net, X)
    assert torch.equal(call(program, X), net(X) + _MARK)
    assert not call(program, X).is_inference()


@torch.inference_mode()
def test_what_lies_between_graphs_runs_as_python(fake: Fake) -> None:
    net = compiled(Broken())
    program = record(fake, net, X)
    assert fake.graphs == 2
    assert torch.allclose(call(program, X), net(X) + 2 * _MARK)
    whole = record(fake, lambda x: net(x) * 3, X)
    fake.mark = 0.0
    assert torch.equal(call(whole, X), net(X) * 3)


@torch.inference_mode()
def test_torchs_guards_decide_and_another_graph_is_recorded_anew(fake: Fake) -> None:
    inner = Net()
    net = compiled(inner)
    program = record(fake, net, X)
    inner.scale = 5.0
    assert torch.equal(call(program, X), net(X))  # not the replay of a scale of 2
    assert program.match((X,), {}) is None
    inner.scale = 2.0
    again = record(fake, net, X)
    assert torch.equal(call(again, X), net(X) + _MARK)


@torch.inference_mode()
def test_other_weights_are_not_replayed(fake: Fake) -> None:
    inner = Net()
    net = compiled(inner)
    program = record(fake, net, X)
    inner.linear.weight.data.zero_()  # in place: the graph reads it there
    assert torch.equal(call(program, X), net(X) + _MARK)
    inner.linear.weight = nn.Parameter(torch.ones(4, 4), requires_grad=False)
    assert torch.equal(call(program, X), net(X))
    assert program.match((X,), {}) is None


@torch.inference_mode()
def test_closed_it_leaves_the_graphs_as_they_were(fake: Fake) -> None:
    net = compiled(Net())
    before = net(X)
    program = record(fake, net, X)
    program.replay.close()
    with program.patches.opened():
        assert torch.equal(net(X), before)
    other = record(fake, net, X)
    patches = other.patches
    del other
    with patches.opened():
        assert torch.equal(net(X), before + _MARK)
    del patches
    assert torch.equal(net(X), before)
    assert fake.graphs == 2


@torch.inference_mode()
def test_a_replay_that_gives_other_bits_is_refused(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = compiled(Net())
    with monkeypatch.context() as patch:
        patch.setattr(module, "find_launch", lambda _: lambda: None)  # of a graph that does nothing
        with pytest.raises(UnsupportedError, match="does not give its bits"):
            record(fake, net, X)
    with pytest.raises(UnsupportedError, match="no call was seen to run a graph of it"):
        record(fake, Net().eval(), X)


def test_a_compiled_call_with_autograd_is_refused() -> None:
    net = compiled(Net())
    with pytest.raises(UnsupportedError, match="with autograd on"):
        ftax.capture(lambda x: net(x).detach(), X)


def test_arguments_of_a_graph() -> None:
    weight, x = torch.ones(2, 3), torch.zeros(4, 3)
    known = _core.GraphArguments((weight, 7, x, None), [2])
    other = torch.ones(4, 3)
    (found,) = known.match((weight, 7, other, None))
    assert found is other
    assert known.match((weight.clone(), 7, other, None)) is None
    assert known.match((weight, 8, other, None)) is None
    assert known.match((weight, 7, other.t(), None)) is None
    assert known.match((weight, 7, other.double(), None)) is None
    assert known.match((weight, 7, other)) is None
    assert known.match((weight, 7, 3, None)) is None
    assert known.match((weight, other, other, None)) is None
