"""What a user hands over is as it was after measuring, in every way out, and what was written is
said."""

import contextvars
import itertools
import os
import random
import subprocess
import sys
import threading
from collections import UserDict, UserList
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import ftax
from ftax.runtimes.candidates import environment_with
from ftax.steps.kept_python import keep_draws
from ftax.steps.left_as_found import leave_as_found
from ftax.steps.state import Snapshot
from support.small_models import normal

SHORT = ftax.Plan(rounds=3, warmup=2, round_ms=1.0)
X = normal(3, 4)


class Learner(nn.Module):
    """Half frozen, in training mode but for one part, with a table that it makes when it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.last = nn.Linear(4, 2)
        self.first.requires_grad_(False)
        self.last.eval()
        self.tables: dict[int, torch.Tensor] = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if len(x) not in self.tables:
            self.tables[len(x)] = torch.ones(4) * 2
            self.latest = self.tables[len(x)] + 1
        return self.last(self.norm(self.first(x)) * self.tables[len(x)] * self.latest)


def bench(module: nn.Module) -> None:
    ftax.py_bench(module, (X,), plan=SHORT)


def tax(module: nn.Module) -> None:
    ftax.tax(module, (X,), runtimes=["torchscript"], operators=False, plan=SHORT)


def find_knee(module: nn.Module) -> None:
    ftax.knee(
        module, lambda size: normal(size, 4), high=2, plan=ftax.Plan(rounds=3, duration_s=2.0)
    )


@pytest.mark.parametrize("use", [bench, tax, find_knee])
def test_a_module_learns_afterwards_as_before(use) -> None:
    module = Learner()
    modes = [part.training for part in module.modules()]
    flags = [weight.requires_grad for weight in module.parameters()]
    buffers = [buffer.clone() for buffer in module.buffers()]
    use(module)
    assert [part.training for part in module.modules()] == modes
    assert [weight.requires_grad for weight in module.parameters()] == flags
    assert all(map(torch.equal, module.buffers(), buffers))
    assert module.tables == {} and not hasattr(module, "latest")
    module(X).sum().backward()  # what was cached in inference mode could not be saved for it
    assert module.last.weight.grad is not None
    assert module.first.weight.grad is None


def test_a_module_is_as_before_when_measuring_fails() -> None:
    class Fails(Learner):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            super().forward(x)
            raise ValueError("no")

    module = Fails()
    with pytest.raises(ftax.errors.RunnerError):
        bench(module)
    assert module.training and module.last.weight.requires_grad and module.tables == {}


class Writes(nn.Module):
    def __init__(self, write) -> None:
        super().__init__()
        self.write = write
        self.register_buffer("state", torch.zeros(3, 4))
        self.cache = torch.zeros(3, 4)
        self.list = [torch.zeros(4)]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.write(self, x)
        return x + self.state + self.cache + self.list[0]


@pytest.mark.parametrize(
    ("write", "name"),
    [
        (lambda m, x: x.add_(1), "input 0"),
        (lambda m, x: x[0].add_(1), "input 0"),
        (lambda m, x: x.view(-1)[2:4].mul_(2), "input 0"),
        (lambda m, x: x.data.add_(1), "input 0"),
        (lambda m, x: x.numpy().__setitem__(0, 5.0), "input 0"),
        (lambda m, x: m.state.add_(1), "the model.state"),
        (lambda m, x: m.state.view(-1).add_(1), "the model.state"),
        (lambda m, x: m.state.data.add_(1), "the model.state"),
        (lambda m, x: m.cache.__setitem__(1, x[0]), "the model.cache"),
        (lambda m, x: m.list[0].add_(1), "the model.list[0]"),
    ],
)
def test_writes_are_noticed_said_and_put_back(write, name) -> None:
    module, x = Writes(write), X.clone()
    found = ftax.py_bench(module, (x,), plan=SHORT)
    said = f"the model writes into {name}, which was put back after measuring"
    assert said in found.warnings
    assert torch.equal(x, X)
    assert not module.state.any() and not module.cache.any() and not module.list[0].any()


def test_a_model_that_writes_nothing_is_said_nothing_of() -> None:
    found = ftax.py_bench(Writes(lambda m, x: None), (X,), plan=SHORT)
    assert not any("writes into" in text for text in found.warnings)


def test_attributes_that_were_replaced_are_back_whatever_happened() -> None:
    module = Learner()
    module.extra = {"a": [1, 2]}

    def use() -> None:
        with leave_as_found(module):
            module.extra["a"].append(3)
            module.extra["b"] = 4
            module.first = nn.Identity()
            del module.tables
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        use()
    assert module.extra == {"a": [1, 2]}
    assert isinstance(module.first, nn.Linear)
    assert module.tables == {}


def test_attributes_in_private_slots_are_back_too() -> None:
    class Cache:
        __slots__ = ("__keys", "length")

        def __init__(self) -> None:
            self.__keys, self.length = torch.zeros(2), 0

        def read(self) -> tuple[torch.Tensor, int]:
            return self.__keys, self.length

        def grow(self) -> None:
            self.__keys, self.length = torch.cat((self.__keys, torch.ones(1))), self.length + 1

    module = nn.Linear(2, 2)
    module.cache = Cache()
    keys, _ = module.cache.read()
    before = Snapshot(module)
    module.cache.grow()
    before.put_back_attributes()
    now, length = module.cache.read()
    assert now is keys and length == 0


def test_a_resized_tensor_has_its_size_back() -> None:
    module = Writes(lambda m, x: None)
    before = Snapshot(module)
    module.cache.resize_(7)
    assert before.put_back() == ["the model.cache"]
    assert module.cache.shape == (3, 4) and not module.cache.any()


def test_environment_variables_are_what_they_were(monkeypatch) -> None:
    monkeypatch.setenv("FTAX_TEST_A", "mine")
    monkeypatch.delenv("FTAX_TEST_B", raising=False)
    with environment_with({"FTAX_TEST_A": "x", "FTAX_TEST_B": "y"}):
        assert (os.environ["FTAX_TEST_A"], os.environ["FTAX_TEST_B"]) == ("x", "y")
    assert os.environ["FTAX_TEST_A"] == "mine" and "FTAX_TEST_B" not in os.environ


@pytest.mark.needs_ort
def test_onnxruntime_leaves_the_environment_alone() -> None:
    ftax.py_bench(nn.Linear(4, 4), (X,), runtime="onnxruntime", plan=SHORT)
    assert "ORT_DISABLE_TELEMETRY" not in os.environ


class Holder:
    """Of a number that a step moves on."""

    def __init__(self) -> None:
        self.count = 0


HOLDER, KEPT, TABLE, BYTES = Holder(), UserList(), UserDict(), bytearray()
DRAWS, NUMBERS, COUNT = random.Random(1), np.random.default_rng(1), 0
LOCAL, VARIABLE = threading.local(), contextvars.ContextVar("VARIABLE", default=0)
LOCAL.count = 0


def read_python() -> list[Any]:
    state = NUMBERS.bit_generator.state["state"]["state"]
    kept = [list(KEPT), dict(TABLE), bytes(BYTES), vars(HOLDER), vars(LOCAL)]
    kept += [COUNT, VARIABLE.get(), DRAWS.getstate(), state, hasattr(Holder, "seen")]
    kept += [vars(keep_in_python), read_emptied()]
    return [repr(item) for item in kept]


def make_emptier() -> tuple[Callable[[], None], Callable[[], str]]:
    """What empties a cell, and what says whether it is empty."""
    cell = 1

    def empty() -> None:
        nonlocal cell
        del cell

    def read() -> str:
        try:
            return str(cell)
        except NameError:
            return "empty"

    return empty, read


empty_cell, read_emptied = make_emptier()


def keep_in_python(x: torch.Tensor) -> torch.Tensor:
    global COUNT
    keep_in_python.calls = 1
    empty_cell()
    COUNT += 1
    HOLDER.count += 1
    LOCAL.count += 1
    Holder.seen = True
    KEPT.append(1)
    TABLE[len(TABLE)] = 1
    BYTES.append(1)
    VARIABLE.set(VARIABLE.get() + 1)
    DRAWS.random()
    NUMBERS.random()
    return x + 1


@contextmanager
def restored_switches() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)
        torch.use_deterministic_algorithms(False)
        torch.set_float32_matmul_precision(before)
        torch.backends.cuda.enable_math_sdp(True)
        torch.set_autocast_enabled("cuda", False)
        torch.set_autocast_dtype("cpu", torch.bfloat16)
        torch.backends.cudnn.benchmark = False


def read_switches() -> list[Any]:
    return [
        torch.get_default_dtype(),
        torch.are_deterministic_algorithms_enabled(),
        torch.get_float32_matmul_precision(),
        torch.backends.cuda.math_sdp_enabled(),
        torch.is_autocast_enabled("cuda"),
        torch.get_autocast_dtype("cpu"),
        torch.backends.cudnn.benchmark,
    ]


def switch(x: torch.Tensor) -> torch.Tensor:
    torch.set_default_dtype(torch.float64)
    torch.use_deterministic_algorithms(True)
    torch.set_float32_matmul_precision("medium")
    torch.backends.cuda.enable_math_sdp(False)
    torch.backends.cudnn.benchmark = True
    return x + 1


def test_what_a_step_keeps_in_python_is_as_before() -> None:
    before = read_python()
    with leave_as_found(ftax.step(keep_in_python, (X,))):
        keep_in_python(X)
        assert all(old != new for old, new in zip(before, read_python(), strict=True))
    assert read_python() == before


def test_what_a_loss_and_hooks_of_an_optimizer_keep_in_python_is_as_before() -> None:
    model, noted = nn.Linear(3, 1), [0]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.register_step_post_hook(lambda *_: noted.append(1))
    step = ftax.train(model, lambda m, x: m(keep_in_python(x)).sum(), optimizer, torch.ones(2, 3))
    before = read_python()
    with leave_as_found(step):
        step(torch.ones(2, 3))
        assert all(old != new for old, new in zip(before, read_python(), strict=True))
        assert noted == [0, 1]
    assert read_python() == before
    assert noted == [0]


def test_of_a_module_generators_are_as_before_and_what_hooks_note_stays() -> None:
    class Draws(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.source = np.random.default_rng(1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.source.random()

    module, noted = Draws(), []
    module.register_forward_hook(lambda *_: noted.append(1))
    before = str(module.source.bit_generator.state)
    with leave_as_found(module):
        module(X)
        assert str(module.source.bit_generator.state) != before
    assert str(module.source.bit_generator.state) == before
    assert noted == [1]


def test_switches_that_a_step_sets_are_as_before() -> None:
    before = read_switches()
    with restored_switches():
        ftax.tax(ftax.step(switch, (X,)), runtimes="none", plan=SHORT, progress=False)
        assert read_switches() == before
        with torch.no_grad():
            ftax.capture(switch, (X,))
        assert read_switches() == before
        with leave_as_found(nn.Linear(4, 4)):
            torch.set_autocast_enabled("cuda", True)
            torch.set_autocast_dtype("cpu", torch.float16)
        assert read_switches() == before


@pytest.mark.skipif(
    not hasattr(torch.backends.mkldnn, "matmul"), reason="this torch has no precision by backend"
)
@pytest.mark.parametrize(
    "change", ["pass", "torch.set_float32_matmul_precision('medium')"], ids=["none", "old"]
)
def test_a_precision_that_was_set_by_backend_is_as_before(change: str) -> None:
    script = (
        "import torch, ftax\n"
        "def step(x):\n"
        f"    {change}\n"
        "    return x + 1\n"
        "torch.backends.mkldnn.matmul.fp32_precision = 'tf32'\n"
        "with torch.no_grad():\n"
        "    ftax.capture(step, (torch.ones(2),))\n"
        "print(torch.backends.mkldnn.matmul.fp32_precision)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "tf32", done.stderr


def test_arrays_of_a_module_are_not_copied_to_find_its_generators() -> None:
    copied = []

    class Large(np.ndarray):
        def copy(self, order: Any = "C") -> Any:
            copied.append(self)
            return super().copy(order)

    module = nn.Linear(4, 4)
    module.table = np.zeros(10).view(Large)
    with keep_draws(module):
        module(X)
    assert not copied


class WritesLate(nn.Module):
    """Every fiftieth call writes a weight, long after anybody watches."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))
        self.calls = itertools.count(1)  # which nobody can put back

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if next(self.calls) % 50 == 0:
            self.weight.mul_(0.9)
        return x * self.weight


def test_what_a_module_writes_late_is_put_back() -> None:
    module = WritesLate()
    ftax.py_bench(module, (X,), plan=ftax.Plan(rounds=3, warmup=60, round_ms=1.0))
    assert next(module.calls) > 50
    assert torch.equal(module.weight, torch.ones(4))


def test_what_a_step_writes_first_in_its_fourth_call_is_put_back() -> None:
    """Accumulation of gradients without a reset: refused, after a step of the optimizer."""
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = [weight.detach().clone() for weight in model.parameters()]
    state = {"calls": 0}

    def accumulate(x: torch.Tensor) -> torch.Tensor:
        loss = model(x).square().mean()
        loss.backward()
        state["calls"] += 1
        if state["calls"] % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()
        return loss.detach()

    with pytest.raises(ftax.UnsupportedError, match="changes from call to call"):
        ftax.tax(ftax.step(accumulate, (X,)), plan=SHORT)
    assert all(map(torch.equal, model.parameters(), before))
    assert state == {"calls": 0}


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
def test_state_that_a_step_resizes_or_keeps_in_a_sparse_tensor_is_as_it_was() -> None:
    out, sparse = torch.empty(0), torch.eye(3).to_sparse()

    def run(x: torch.Tensor) -> torch.Tensor:
        sparse.values().mul_(2)
        return torch.mul(x, 2, out=out) + 1

    receipt = ftax.tax(ftax.step(run, (X,)), runtimes="none", plan=SHORT)
    assert len(receipt.rungs) == 3
    assert out.shape == (0,) and out.untyped_storage().nbytes() == 0
    assert sparse.values().tolist() == [1.0, 1.0, 1.0]


def test_state_that_a_failing_step_resized_is_as_it_was() -> None:
    out = torch.empty(0)

    def run(x: torch.Tensor) -> torch.Tensor:
        torch.mul(x, 2, out=out)
        raise KeyError("no")

    with pytest.raises(ftax.RunnerError, match="KeyError"):
        ftax.tax(ftax.step(run, (X,)), runtimes="none", plan=SHORT)
    assert out.shape == (0,)
