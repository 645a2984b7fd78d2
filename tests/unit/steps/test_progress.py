"""What optimizers, schedules and loaders go on with is brought back before each run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, Dataset

import ftax
from ftax import InvalidArgumentError, UnsupportedError
from ftax.steps.load import load_model
from support.small_models import normal

QUICK = ftax.Plan(rounds=4, warmup=2, round_ms=2.0)
MAKES: dict[str, Callable[[torch.optim.Optimizer], Any]] = {
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, max_lr=0.1, total_steps=6),
    "StepLR": lambda o: lr_scheduler.StepLR(o, step_size=2),
    "SequentialLR": lambda o: lr_scheduler.SequentialLR(
        o,
        [lr_scheduler.LinearLR(o, total_iters=2), lr_scheduler.CosineAnnealingLR(o, 5)],
        milestones=[2],
    ),
}


def bench(step: Any) -> ftax.Measurement:
    return ftax.py_bench(step, plan=QUICK, progress=False, threads=1)


@pytest.mark.filterwarnings("ignore:The epoch parameter")  # within SequentialLR of torch 2.8
@pytest.mark.parametrize("name", MAKES)
def test_a_schedule_is_put_back_before_each_run_and_afterwards(name: str):
    model = nn.Linear(4, 4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    schedule = MAKES[name](optimizer)
    before = schedule.state_dict(), optimizer.param_groups[0]["lr"]
    rates: list[float] = []

    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        rates.append(optimizer.param_groups[0]["lr"])
        schedule.step()  # of which OneCycleLR takes six
        return loss

    found = bench(ftax.step(step, (normal(3, 4),), reset=rates.clear))
    assert not found.work_problem
    assert schedule.last_epoch == before[0]["last_epoch"]
    assert optimizer.param_groups[0]["lr"] == before[1]


def test_counters_of_an_optimizer_are_put_back_before_each_run():
    class Halving(torch.optim.SGD):
        """Makes half as many operator calls at each second step."""

        count = 0

        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            self.count += 1
            for _ in range(1 + self.count % 2):
                super().step()

    model = nn.Linear(4, 4)
    optimizer = Halving(model.parameters(), lr=0.1)
    step = ftax.train(model, lambda m, x: m(x).square().mean(), optimizer, (normal(3, 4),))
    assert not bench(step).work_problem
    assert optimizer.count == 0


def test_an_attribute_that_changes_is_named_with_its_line():
    class Trainer:
        def __init__(self) -> None:
            self.position = 1

        def step(self, x: torch.Tensor) -> torch.Tensor:
            self.position += 1
            return x.repeat(self.position)

    line = Trainer.step.__code__.co_firstlineno + 1
    words = rf"Each call changes Trainer\.position \(test_progress\.py, line {line}\): bring that"
    with pytest.raises(UnsupportedError, match=words):
        load_model(Trainer().step, inputs=normal(3))


class Noisy(Dataset[torch.Tensor]):
    """Draws anew at each look, as an augmentation does."""

    def __init__(self) -> None:
        self.looks = 0

    def __len__(self) -> int:
        return 6

    def __getitem__(self, place: int) -> torch.Tensor:
        self.looks += 1
        return torch.rand(4) + place


def make_training() -> tuple[nn.Module, Any, torch.optim.Optimizer]:
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model, (lambda m, x: m(x).square().mean()), optimizer


def tax(step: Any) -> ftax.Receipt:
    return ftax.tax(step, plan=QUICK, runtimes="none", operators=False, progress=False, threads=1)


def test_a_loader_is_a_phase_and_each_run_of_the_rounds_has_one_batch():
    # Its phases take a second, whatever the step.
    data = Noisy()
    step = ftax.train(*make_training(), loader=DataLoader(data, batch_size=2))
    assert step.units == 2 and data.looks == 2
    receipt = tax(step)
    assert receipt.lines[0].name == "Python and bindings"
    assert {phase.name for phase in receipt.phases} >= {"loader", "forward", "backward"}
    assert data.looks > 6  # epoch after epoch
    assert any("the loader takes" in text for text in receipt.collect_warnings())


def test_the_next_batch_within_a_step_is_the_same_one_and_the_iterator_is_left():
    # Its phases take a second, whatever the step.
    model, loss, optimizer = make_training()
    data = Noisy()

    def forever() -> Iterator[torch.Tensor]:
        while True:
            yield from DataLoader(data, batch_size=2)

    batches = forever()

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        value: torch.Tensor = loss(model, next(batches))
        value.backward()
        optimizer.step()
        return value

    given = batches
    receipt = tax(step)
    assert not receipt.work_problem
    assert "loader" in [phase.name for phase in receipt.phases]
    assert any("next(batches) gave the same batch" in text for text in receipt.collect_warnings())
    assert batches is given


def test_an_iterator_is_no_argument_since_a_call_uses_it_up():
    with pytest.raises(UnsupportedError, match=r"argument 0 is a list_iterator, which one call"):
        load_model(ftax.step(next, (iter([1, 2]),)))


def test_an_iterator_that_ends_is_timed_as_far_as_it_goes():
    # Its phases take up to a second, whatever the step.
    model, loss, optimizer = make_training()
    batches = iter(DataLoader(Noisy(), batch_size=2, sampler=[0] * 24))

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        value: torch.Tensor = loss(model, next(batches))
        value.backward()
        optimizer.step()
        return value

    receipt = tax(step)
    assert "loader" in [phase.name for phase in receipt.phases]
    with pytest.raises(StopIteration):
        next(batches)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"loader": [], "batch": None}, "loader is empty"),
        ({"loader": [normal(2, 4)], "batch": normal(2, 4)}, "batch and loader are given"),
        ({"loader": 3}, "loader is an int: give what gives batches"),
    ],
)
def test_what_is_no_loader_is_refused_in_words(options: dict[str, Any], words: str):
    with pytest.raises(InvalidArgumentError, match=words):
        ftax.train(*make_training(), **options)
