"""A call of a program that `ftax run --receipt` has waited for, measured from inside."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from ftax.cli.program_call import measure_call
from ftax.ladders.receipt import Receipt
from ftax.records.store import read_records

PLAN = {"duration_s": 0.3}


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.drop = nn.Linear(8, 8), nn.Dropout()

    def forward(self, x: torch.Tensor, *, scale: float = 1.0) -> dict[str, torch.Tensor]:
        return {"logits": self.drop(self.layer(x)) * scale, "inputs": x}


@pytest.fixture(autouse=True)
def keep_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FTAX_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def measure(tmp_path: Path) -> Callable[..., Callable[[], Receipt]]:
    """Measures a call; gives what reads its receipt, once there is one."""

    def measure(what: Any, *args: Any, **kwargs: Any) -> Callable[[], Receipt]:
        path, said = tmp_path / "receipt.jsonl", list[str]()
        measure_call(
            what, args, kwargs, name=getattr(what, "__qualname__", ""), caller="train.py:7 main",
            path=str(path), plan=PLAN, finish=said.append,
        )  # fmt: skip

        def read() -> Receipt:
            assert said == [""]
            (receipt,) = read_records(path).records
            assert isinstance(receipt, Receipt)
            return receipt

        return read

    return measure


def list_lines(receipt: Receipt) -> list[str]:
    return [line.name for line in receipt.lines]


def test_a_module_without_autograd(
    measure: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    with torch.no_grad():
        receipt = measure(Model().eval(), torch.randn(3, 8), scale=2.0)()
    cell = receipt.rungs[0].cell
    assert (cell.model, cell.batch, cell.grad_mode) == ("Model", 3, "no_grad")
    assert receipt.rungs[0].label == "train.py:7 main"
    assert [row.place.runtime for row in receipt.others] == ["capture"]
    output, errors = capsys.readouterr()
    assert output == ""  # which is the program's
    assert "Measuring Model, called at train.py:7 main" in errors
    assert "ftax.capture" in errors


def test_a_module_in_training_mode_stays_in_it(measure: Callable[..., Any]) -> None:
    module = Model().train()

    def check(part: nn.Module, _: Any) -> None:
        assert part.training

    module.drop.register_forward_pre_hook(check)
    with torch.inference_mode():
        receipt = measure(module, torch.randn(3, 8))()
    assert receipt.rungs[0].cell.model == "Model"


def train(module: nn.Module, optimizer: torch.optim.Optimizer | None, x: torch.Tensor) -> None:
    """As a program does it, between whose lines is measured."""
    with torch.autocast("cpu", torch.bfloat16):
        loss = module(x)["logits"].float().square().mean()
    loss.backward()
    if optimizer is not None:
        optimizer.step()


def test_a_loop_that_trains(
    measure: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    module, x = Model(), torch.randn(3, 8)
    other = torch.optim.SGD(Model().parameters())  # of another model
    optimizer = torch.optim.AdamW(module.parameters(), fused=True)

    def check(_part: nn.Module, _args: Any, output: torch.Tensor) -> None:
        assert output.dtype is torch.bfloat16

    module.layer.register_forward_hook(check)
    with torch.autocast("cpu", torch.bfloat16):
        read = measure(module, x)
    other.step()
    twin = copy.deepcopy(module)
    torch.manual_seed(1)
    train(module, optimizer, x)  # which is measured before the optimizer steps
    torch.manual_seed(1)
    train(twin, torch.optim.AdamW(twin.parameters(), fused=True), x)
    receipt = read()
    assert receipt.ladder_name == "autograd"
    assert "forward, backward, AdamW" in capsys.readouterr().err
    for weight, as_without in zip(module.parameters(), twin.parameters(), strict=True):
        assert torch.equal(weight, as_without)  # measuring has put back what it changed


def test_gradients_that_are_gathered(
    measure: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    module, x = Model(), torch.randn(3, 8)
    read = measure(module, x)
    train(module, None, x)
    module.eval()
    with torch.no_grad():
        module(x)  # an evaluation
    module.train()
    train(module, None, x)
    read()
    assert "forward, backward, called at" in capsys.readouterr().err


def test_a_loop_without_a_backward_pass(
    measure: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    module, x = Model(), torch.randn(3, 8)
    read = measure(module, x)
    module(x)
    module(x)
    read()
    assert "whose backward pass was not called" in capsys.readouterr().err


class Service:
    def __init__(self) -> None:
        self.model = Model().eval()

    def answer(self, numbers: list[float]) -> torch.Tensor:
        with torch.inference_mode():
            answer: torch.Tensor = self.model(torch.tensor([numbers]))["logits"]
        return answer


def test_a_method(measure: Callable[..., Any]) -> None:
    receipt = measure(Service.answer, Service(), [1.0] * 8)()
    assert receipt.rungs[0].cell.model == "Service.answer"
    assert "model glue" in list_lines(receipt)


class Cache:
    """As those of transformers: it grows by concatenation."""

    def __init__(self) -> None:
        self.layers = [type("Layer", (), {})()]
        self.layers[0].keys = torch.zeros(1, 5, 8)

    def get_seq_length(self) -> int:
        length: int = self.layers[0].keys.shape[-2]
        return length


class Decoder(Model):
    def forward(self, x: torch.Tensor, *, cache: Cache) -> torch.Tensor:  # type: ignore[override]
        layer = cache.layers[0]
        layer.keys = torch.cat([layer.keys, self.layer(x)], dim=-2)
        return layer.keys.sum(dim=-2)


def test_a_cache_that_grows_is_put_back(
    measure: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    cache = Cache()
    with torch.inference_mode():
        receipt = measure(Decoder().eval(), torch.randn(1, 1, 8), cache=cache)()
    assert cache.get_seq_length() == 5
    assert receipt.rungs[0].cell.step == "decode"
    assert "capture the call of the model with a static cache" in " ".join(
        capsys.readouterr().err.split()
    )


@pytest.mark.parametrize(
    ("what", "words"),
    [
        (lambda _: None, "it returns no tensor"),
        (lambda _: 1 / 0, "division by zero"),
    ],
)
def test_what_cannot_be_measured(what: Any, words: str) -> None:
    said: list[str] = []
    measure_call(
        what, (torch.ones(2),), {}, name="f", caller="a.py:1 main", path=None, plan=PLAN,
        finish=said.append,
    )  # fmt: skip
    assert words in said[0]
