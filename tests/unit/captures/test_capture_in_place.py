"""`ftax.capture_`: a module that is captured stays what it is to whoever looks at it."""

import copy
import inspect
import io
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import nn

import ftax
from support.captures import make_model


class Doubled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 4)
        self.runs = memoryview(bytearray(1))  # which no recording puts back

    def forward(self, x: torch.Tensor, *, factor: float = 2.0) -> torch.Tensor:
        """Some words."""
        return self.inner(x) * factor


def test_calls_of_the_module_are_replays(no_grad: None) -> None:
    model, twin = make_model(), make_model()
    keys = list(model.state_dict())
    fast = ftax.capture_(model, torch.randn(2, 8))
    x = torch.randn(2, 8)
    for _ in range(3):
        assert torch.equal(model(x), twin(x))
    assert fast.stats().replayed == 3
    assert type(model) is nn.Sequential and list(model.state_dict()) == keys
    assert [name for name, _ in model.named_modules()] == [name for name, _ in twin.named_modules()]


def test_it_looks_like_its_own_forward(no_grad: None) -> None:
    model = Doubled()
    expected = inspect.signature(model.forward)
    ftax.capture_(model, ((torch.randn(2, 8),), {"factor": 3.0}))
    assert inspect.signature(model.forward) == expected


def test_hooks_and_changes_count(no_grad: None, record_at_once: None) -> None:
    model = make_model()
    fast = ftax.capture_(model, torch.randn(2, 8))
    handle = model.register_forward_hook(lambda module, given, result: result * 0)
    assert not model(torch.randn(2, 8)).any()
    handle.remove()
    x = torch.randn(2, 8, dtype=torch.float64)
    assert torch.equal(model.to(torch.float64)(x), make_model().to(torch.float64)(x))
    assert fast.stats().recorded == 3  # the hook too was looked at
    model.train()
    assert torch.equal(model(x), make_model().to(torch.float64)(x))


def test_under_autograd_it_trains(record_at_once: None) -> None:
    model = make_model()
    with torch.no_grad():
        fast = ftax.capture_(model, torch.randn(2, 8))
    model(torch.randn(2, 8)).sum().backward()
    assert model[0].weight.grad is not None
    assert (fast.recordings, fast.stats().replayed) == (2, 1)


def test_closing_gives_forward_back(no_grad: None) -> None:
    model = make_model()
    before = set(vars(model))
    fast = ftax.capture_(model, torch.randn(2, 8))
    fast.close()
    assert set(vars(model)) == before
    assert torch.equal(model(torch.ones(2, 8)), make_model()(torch.ones(2, 8)))
    own = model.forward = lambda x: x  # type: ignore[method-assign]
    ftax.capture_(model, torch.randn(2, 8)).close()
    assert model.forward is own


def save_and_load(model: nn.Module) -> nn.Module:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    loaded: nn.Module = torch.load(file, weights_only=False)
    return loaded


@pytest.mark.parametrize(
    "make",
    [copy.copy, copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model)), save_and_load],
)
def test_copies_are_not_captured(no_grad: None, make: Callable[[nn.Module], nn.Module]) -> None:
    model = make_model()
    before = set(vars(model))
    fast = ftax.capture_(model, torch.randn(2, 8))
    twin = make(model)
    assert set(vars(twin)) == before
    x = torch.randn(2, 8)
    assert torch.equal(twin(x), model(x))
    assert fast.stats().replayed == 1


def test_what_cannot_be_captured_stays_as_it_was(no_grad: None) -> None:
    class Branches(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x if x.sum() > 0 else -x

    model = Branches()
    before = set(vars(model))
    with pytest.raises(ftax.UnsupportedError, match="cannot capture Branches"):
        ftax.capture_(model, torch.ones(2))
    assert set(vars(model)) == before


def test_it_is_measured_beside_its_own_forward(no_grad: None) -> None:
    model = make_model()
    ftax.capture_(model, torch.randn(2, 8))
    plan = ftax.Plan(rounds=3, warmup=2, round_ms=0.5)
    receipt = ftax.tax(model, plan=plan, runtimes="capture", operators=False, progress=False)
    row = next(row for row in receipt.runtimes if row.measurement.place.runtime == "capture")
    assert row.outputs == "bitwise equal"


def test_it_takes_a_module_once(no_grad: None) -> None:
    model = make_model()
    ftax.capture_(model, torch.randn(2, 8))
    with pytest.raises(ftax.InvalidArgumentError, match=r"captured already: close\(\)"):
        ftax.capture_(model, torch.randn(2, 8))
    with pytest.raises(ftax.InvalidArgumentError, match=r"ftax\.capture takes anything"):
        ftax.capture_(lambda x: x, torch.randn(2, 8))  # type: ignore[arg-type]
