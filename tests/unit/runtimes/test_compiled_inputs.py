"""What torch.compile made is measured as it is, and is afterwards what it was.

A backend of the test's own, which adds 1 to what it compiles. So it shows in the outputs whether
compiled code ran, and nothing has to be compiled in C++.
"""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import ftax
from ftax import UnsupportedError
from ftax.runtimes.workspace import Workspace
from ftax.steps.compiled_graphs import list_called_graphs
from ftax.steps.echoes import PlainMode
from ftax.steps.load import load_model
from ftax.steps.macs import count_work
from ftax.tape.recording import observe
from ftax.tape.tape import make_tape
from support.small_models import load_function, normal

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


class _Mode(PlainMode):
    def __torch_dispatch__(self, func: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("way", WAYS)
def test_a_mode_leaves_what_was_compiled_as_it_is(way: str) -> None:
    compiled = WAYS[way]()

    with torch.inference_mode():
        with _Mode() as mode:
            as_written = compiled(X)
        assert mode.met_compiled
        before = compiled(X)
        assert not torch.equal(before, as_written)
        with _Mode():
            assert torch.equal(compiled(X), as_written)
        assert torch.equal(compiled(X), before)
        with _Mode() as mode:
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


def test_a_mode_is_of_the_thread_that_calls() -> None:
    compiled = compile_marked(make_module())
    found = []

    def call() -> None:
        with torch.inference_mode():
            found.append(compiled(X))

    call()
    with torch.inference_mode(), _Mode() as mode:
        other = threading.Thread(target=call)
        other.start()
        other.join()
        call()
    assert torch.equal(found[1], found[0])  # goes on compiled
    assert not torch.equal(found[2], found[0]) and mode.met_compiled


def test_threads_leave_the_compiler_as_it_was() -> None:
    dynamo: Any = torch._dynamo.eval_frame
    before = dynamo._stance, dynamo._callback_from_stance
    threads = [
        threading.Thread(target=lambda: ftax.py_bench(make_module(), X.clone(), plan=QUICK))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (dynamo._stance, dynamo._callback_from_stance) == before


LAZY = """
import sys, torch, ftax
calls = []
def backend(graph, _):
    calls.append(graph)
    return lambda *args: tuple(item + 1 for item in graph(*args))
class Lazy(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.made = None
    def forward(self, x):
        if self.made is None:
            self.made = torch.compile(lambda y: y * 2, backend=backend)
        return self.made(x)
x, lazy = torch.ones(2), Lazy()
assert "torch._dynamo" not in sys.modules
receipt = ftax.tax(lazy, x, plan=ftax.Plan(rounds=2, warmup=2, round_ms=1.0), runtimes="none",
                   progress=False)
print(any("is the compiled code" in text for text in receipt.collect_warnings()), lazy(x).tolist())
"""


@pytest.mark.slow
def test_what_compiles_itself_while_it_is_looked_at_stays_compiled() -> None:
    done = subprocess.run([sys.executable, "-c", LAZY], capture_output=True, text=True)
    assert done.stdout.split(maxsplit=1) == ["True", "[3.0, 3.0]\n"], done.stderr


def test_code_that_sets_a_stance_itself_stays_compiled() -> None:
    compiled = compile_marked(make_module())

    def serve(x: torch.Tensor) -> torch.Tensor:
        with torch.compiler.set_stance("default"), torch.no_grad():
            return compiled(x)

    before = serve(X)
    ftax.tax(ftax.step(serve, X), plan=QUICK, runtimes="none", progress=False)
    assert torch.equal(serve(X), before)


def test_compiled_code_that_does_not_run_is_said() -> None:
    compiled = compile_marked(make_module())
    with torch.compiler.set_stance("force_eager"):
        receipt = ftax.tax(compiled, X, plan=QUICK, runtimes="none", progress=False)
    told = "no call was seen to run compiled code"
    assert any(told in text for text in receipt.collect_warnings())
    whole = torch.compile(make_module(), backend="aot_eager", fullgraph=True)
    receipt = ftax.tax(whole, X, plan=QUICK, runtimes="none", progress=False)
    assert not any(told in text for text in receipt.collect_warnings())


def test_at_torchs_limit_of_compilations_what_was_compiled_is_measured_and_stays() -> None:
    net = make_module().requires_grad_(False)
    compiled = torch.compile(net, dynamic=False, backend=lambda graph, _: graph.forward)
    sizes = [normal(size, 4) for size in range(2, 2 + torch._dynamo.config.recompile_limit)]
    with torch.no_grad():
        for x in sizes:
            compiled(x)
    receipt = ftax.tax(compiled, sizes[3], plan=QUICK, runtimes="none", progress=False)
    assert any("is the compiled code" in text for text in receipt.collect_warnings())
    with torch.no_grad():
        assert all(list_called_graphs(lambda x=x: compiled(x)) for x in sizes)


def test_what_else_is_compiled_stays_when_ftax_compiles() -> None:
    made = []

    def backend(graph: Any, _: Any) -> Any:
        made.append(graph)
        return graph.forward

    compiled = torch.compile(make_module(), backend=backend)
    with torch.inference_mode():
        compiled(X)
        ftax.tax(nn.Linear(4, 4), X, plan=QUICK, runtimes=["compile"], progress=False)
        compiled(X)
    assert len(made) == 1


def test_a_model_that_is_compiled_later_is_not_the_same_work() -> None:
    class Later(Net):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0
            self.fast = torch.compile(torch.tanh, backend="aot_eager")

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return (self.fast if self.calls > 20 else torch.tanh)(self.linear(x))

    receipt = ftax.tax(Later().eval(), X, plan=QUICK, runtimes="none", progress=False)
    assert "code that torch.compile made" in receipt.work_problem


@pytest.mark.skipif(
    not hasattr(TorchDispatchMode, "supports_higher_order_operators"),
    reason="this torch shows no mode an operator that takes functions",
)
def test_operators_that_take_functions_are_measured() -> None:
    def choose(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))

    receipt = ftax.tax(load_function(choose), plan=QUICK, runtimes="none", progress=False)
    assert receipt.rungs and not receipt.work_problem


def test_a_capture_within_compiled_code_is_no_code_to_compile(record_at_once: None) -> None:
    with torch.inference_mode():
        model = make_module()
        captured = ftax.capture(model, X)
        compiled = torch.compile(lambda x: captured(x * 2) + 1, backend="eager")
        for x in (X, normal(5, 4)):
            assert torch.equal(compiled(x), model(x * 2) + 1)
    told = captured.explain()
    assert told.calls == {"recorded": 2, "replayed": 2}, [one.reason for one in told.programs]


CALLED_FROM_COMPILED = """
import sys
import torch
import ftax
with torch.inference_mode():
    captured = ftax.capture(torch.nn.Linear(4, 3), torch.ones(2, 4))
    captured.warm([torch.ones(5, 4)])
    assert "torch._dynamo" not in sys.modules
    compiled = torch.compile(lambda x: captured(x * 2) + 1, backend="eager")
    for x in (torch.ones(2, 4), torch.ones(5, 4)):
        compiled(x)
print(sorted(captured.explain().calls.items()))
"""


@pytest.mark.slow
def test_a_capture_that_is_older_than_the_compiler_is_no_code_to_compile() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CALLED_FROM_COMPILED], capture_output=True, text=True
    )
    assert done.stdout == "[('recorded', 2), ('replayed', 2)]\n", done.stderr
