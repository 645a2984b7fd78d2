"""What torch.compile made is measured as it is, and is afterwards what it was.

The surprising choice: a backend of the test's own, which adds 1 to what it compiles. So it shows in
the outputs whether compiled code ran, and nothing has to be compiled in C++.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import ftax
from ftax import UnsupportedError
from ftax.runtimes.tape.recording import observe
from ftax.runtimes.tape.tape import make_tape
from ftax.runtimes.workspace import Workspace
from ftax.steps.echoes import PlainMode
from ftax.steps.load import load_model
from ftax.steps.work import count_work
from support.small_models import normal

QUICK = ftax.Plan(rounds=2, warmup=2, round_ms=1.0)
X = normal(3, 4)
NO_TAPE = "torch.compile made a part of it"


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compile_marked(what: Any) -> Any:
    def backend(graph: Any, _: Any) -> Callable[..., Any]:
        return lambda *args: tuple(item + 1 for item in graph(*args))

    return torch.compile(what, backend=backend)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x).tanh()


def make_module() -> nn.Module:
    torch.manual_seed(0)
    return Net().eval()


class Holder(nn.Module):
    """Calls a function that was compiled, and is no module itself."""

    def __init__(self) -> None:
        super().__init__()
        self.part = make_module()
        self.function = compile_marked(lambda x: x * 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self.part(x))


def compile_in_place() -> nn.Module:
    module = make_module()
    module.compile(backend=lambda graph, _: lambda *args: tuple(item + 1 for item in graph(*args)))
    return module


WAYS = {
    "module": lambda: compile_marked(make_module()),
    "in place": compile_in_place,
    "within": Holder,
    "a part": lambda: nn.Sequential(compile_marked(make_module()), nn.ReLU()),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_mode_leaves_what_was_compiled_as_it_is(way: str) -> None:
    compiled = WAYS[way]()

    class Mode(PlainMode):
        def __torch_dispatch__(self, func: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    with torch.inference_mode():
        with Mode() as mode:
            as_written = compiled(X)
        assert mode.met_compiled
        before = compiled(X)
        assert not torch.equal(before, as_written)
        with Mode():
            assert torch.equal(compiled(X), as_written)
        assert torch.equal(compiled(X), before)
        with Mode() as mode:
            make_module()(X)
        assert not mode.met_compiled


@pytest.mark.parametrize("way", WAYS)
def test_compiled_code_is_what_is_measured_and_is_there_afterwards(way: str) -> None:
    compiled = WAYS[way]()
    with torch.inference_mode():
        before = compiled(X)
    workspace = Workspace(load_model(compiled, inputs=X))
    assert torch.equal(workspace.reference[0], before)
    with pytest.raises(UnsupportedError, match=NO_TAPE):
        make_tape(workspace.loaded)
    receipt = ftax.tax(compiled, X, plan=QUICK, runtimes="none", progress=False)
    assert [line.name for line in receipt.lines] == ["everything"]
    assert any(NO_TAPE in warning for warning in receipt.collect_warnings())
    assert not receipt.work_problem
    assert any(NO_TAPE in item.reason for item in receipt.unavailable)
    assert any(NO_TAPE in text for text in ftax.py_bench(compiled, X, plan=QUICK).warnings)
    assert count_work(workspace.loaded).operators >= 2
    with torch.inference_mode():
        assert torch.equal(compiled(X), before)


def test_what_was_not_compiled_has_its_tape_beside_what_was() -> None:
    with torch.inference_mode():
        compile_marked(make_module())(X)
    receipt = ftax.tax(make_module(), X, plan=QUICK, runtimes="none", progress=False)
    assert len(receipt.rungs) == 3
    assert not any(NO_TAPE in warning for warning in receipt.collect_warnings())


def test_a_compiled_training_step_is_measured_and_put_back() -> None:
    module = make_module().train()
    compiled = torch.compile(module, backend="aot_eager")
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    step = ftax.train(compiled, lambda model, x: model(x).square().mean(), optimizer, X)
    weights = [weight.detach().clone() for weight in module.parameters()]
    receipt = ftax.tax(step, plan=QUICK, runtimes="none", progress=False)
    assert len(receipt.rungs) == 1 and not receipt.work_problem
    assert all(map(torch.equal, weights, module.parameters()))
    assert observe(lambda: compiled(X), is_compiled=True)


@pytest.mark.parametrize("way", WAYS)
def test_a_capture_of_compiled_code_is_refused_on_a_cpu(way: str) -> None:
    compiled = WAYS[way]()
    with torch.inference_mode():
        before = compiled(X)
        for what in (compiled, lambda x: compiled(x) * 2):
            with pytest.raises(UnsupportedError, match="capture what was compiled"):
                ftax.capture(what, X)
        assert torch.equal(compiled(X), before)
