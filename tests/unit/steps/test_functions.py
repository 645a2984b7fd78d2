"""What people have is a function: of texts, objects and arrays, with any result."""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import ftax
from ftax.steps.load import load_model
from ftax.steps.loaded import LoadedModel
from support.small_models import normal

# A second each: a receipt of rounds, and what is looked at after them.
QUICK = ftax.Plan(rounds=6, warmup=2, round_ms=2.0)
OUTSIDE = "Python outside of torch"
WORDS = {word: place for place, word in enumerate(("the", "cat", "sat", "on", "a", "mat"))}
TEXT = "the cat sat on a mat " * 3


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(8, 16), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 8)).eval()


def tokenize(text: str) -> torch.Tensor:
    return torch.tensor([[WORDS.get(word, 7) for word in text.split()]])


def tax(function: Any, inputs: Any = None) -> ftax.Receipt:
    return ftax.tax(
        function, inputs, plan=QUICK, runtimes="none", operators=False, progress=False, threads=1
    )


def list_names(receipt: ftax.Receipt) -> list[str]:
    """But for Python outside of torch, which is told apart where it is 5 %."""
    return [line.name for line in receipt.lines if line.name != OUTSIDE]


WHOLE_LADDER = ["model glue", "interpreter and bindings", "operators"]


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
def test_a_text_in_and_a_text_out_has_the_whole_ladder_also_with_a_mode_of_its_own(mode: Any):
    model = make_model()

    def answer(text: str) -> str:
        with mode():
            best = model(tokenize(text)).argmax(-1)
        return " ".join(map(str, best[0].tolist()))

    receipt = tax(answer, TEXT)
    assert list_names(receipt) == WHOLE_LADDER
    top, *_, tape = receipt.rungs
    assert top.cell.grad_mode == ("inference" if mode is torch.inference_mode else "no_grad")
    assert tape.checks["outputs"]["bitwise"]  # of what the model gave
    assert tape.checks["outputs"]["tolerance"] > 0.0


def test_arrays_objects_and_dictionaries_are_inputs_and_results():
    convolution = nn.Conv2d(3, 4, 3).eval()

    class Service:
        def __init__(self) -> None:
            self.model, self.served = convolution, 0

        def __call__(self, request: dict[str, Any]) -> dict[str, Any]:
            self.served += 1
            pixels = np.stack(request["images"]).astype(np.float32) / 255
            with torch.inference_mode():
                found = self.model(torch.from_numpy(pixels)).mean((2, 3))
            return {"id": request["id"], "scores": found.numpy(), "best": {int(found.argmax())}}

    service = Service()
    request = {"id": "7", "images": [np.full((3, 8, 8), place, np.uint8) for place in range(2)]}
    assert list_names(tax(service, (request,))) == WHOLE_LADDER
    assert service.served == 0  # as it was found


def test_a_model_and_a_service_that_holds_one_are_arguments_as_any():
    class Service:
        def __init__(self, model: nn.Module) -> None:
            self.model = model

    def serve(model: nn.Module, service: Service, x: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode():
            return service.model(model(x))  # type: ignore[no-any-return]

    first, second = nn.Linear(4, 4).eval(), nn.Linear(4, 4).eval()
    receipt = tax(serve, (first, Service(second), normal(3, 4)))
    assert list_names(receipt) == WHOLE_LADDER
    assert receipt.rungs[-1].checks["second_input"]["bitwise"]  # x has other values there


def test_a_function_that_returns_nothing_is_checked_by_what_its_modules_give():
    model = make_model()

    def serve(ids: torch.Tensor) -> None:
        with torch.no_grad():
            model(ids)
            model(ids + 1)

    loaded = load_model(serve, inputs=tokenize(TEXT))
    with torch.no_grad():
        expected = model(loaded.args[0] + 1)  # the last call of each module
    (found,) = loaded.list_outputs(loaded.bind())
    assert torch.equal(found, expected)
    assert list_names(tax(serve, tokenize(TEXT))) == WHOLE_LADDER


@pytest.mark.timing
def test_python_outside_of_torch_is_timed_and_told_from_the_first_step_down():
    # A second and a half: it is timed after the rounds, for a second. A line that noise hides is
    # not divided, so beside a neighbour there may be none (test_lines.py).
    model, wait_s = make_model(), 3e-3

    def wait() -> None:
        end = time.perf_counter() + wait_s
        while time.perf_counter() < end:
            pass

    def answer(text: str) -> list[int]:
        wait()
        with torch.no_grad():
            best: list[int] = model(tokenize(text)).argmax(-1)[0].tolist()
        wait()
        return best

    receipt = tax(answer, TEXT)
    assert 0.99 * 2e9 * wait_s <= min(receipt.outside_ns) <= 2 * 2e9 * wait_s
    is_clear = not any(line.doubt or line.problem for line in receipt.lines)
    assert receipt.lines[0].name == OUTSIDE or not is_clear
    assert sum(line.time_ns for line in receipt.lines) == pytest.approx(receipt.latency_ns)
    again = ftax.Receipt.from_dict(receipt.to_dict())
    assert again.lines == receipt.lines


def test_what_cannot_be_checked_is_one_line_and_says_what_to_return():
    def multiply(x: torch.Tensor) -> float:
        with torch.no_grad():
            return (x @ x).sum().item()

    receipt = tax(multiply, normal(8, 8))
    assert list_names(receipt) == ["everything"]
    assert "return a tensor that it computes" in receipt.unavailable[0].reason


def test_a_step_that_trains_and_evaluates_without_gradients_has_autograd():
    student, teacher = nn.Linear(4, 4), nn.Linear(4, 4)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)

    def distill(x: torch.Tensor) -> float:
        optimizer.zero_grad()
        with torch.no_grad():
            wanted = teacher(x)
        loss = (student(x) - wanted).square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    loaded = load_model(distill, inputs=normal(3, 4))
    assert isinstance(loaded, LoadedModel) and loaded.has_autograd
    receipt = tax(distill, normal(3, 4))
    assert list_names(receipt) == ["Python and bindings", "autograd", "operators"]


def test_what_torch_says_of_our_streams_is_not_passed_on() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        warnings.warn("The AccumulateGrad node's stream does not match that of", stacklevel=1)
        return x + 1

    with warnings.catch_warnings(record=True) as caught:
        tax(step, torch.zeros(2))
    assert not [item for item in caught if "AccumulateGrad" in str(item.message)]
