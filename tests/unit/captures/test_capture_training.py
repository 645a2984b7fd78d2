"""`ftax.capture` of training steps: weights, gradients and optimizers as eager leaves them."""

from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import ftax
from support.captures import count, make_model

pytestmark = pytest.mark.usefixtures("record_at_once")


def make_training(
    make: Callable[[Iterator[nn.Parameter]], torch.optim.Optimizer],
) -> tuple[nn.Module, torch.optim.Optimizer, Callable[..., torch.Tensor]]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Dropout(0.2), nn.Linear(16, 1))
    optimizer = make(model.parameters())

    def step(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), target)
        loss.backward()
        optimizer.step()
        return loss

    return model, optimizer, step


@pytest.mark.parametrize(
    "make",
    [
        lambda weights: torch.optim.SGD(weights, lr=0.1),
        lambda weights: torch.optim.SGD(weights, lr=0.1, momentum=0.9),
        lambda weights: torch.optim.AdamW(weights, lr=0.01, fused=True),
    ],
    ids=["sgd", "momentum", "adamw"],
)
def test_training_is_that_of_eager_with_a_schedule(make):
    model, optimizer, step = make_training(make)
    twin, twins_optimizer, twins_step = make_training(make)
    batches = [(torch.randn(4, 8), torch.randn(4, 1)) for _ in range(30)]
    captured = ftax.capture(step, batches[0])
    for each in (optimizer, twins_optimizer):
        for group in each.param_groups:
            group["lr"] *= 1.5
    seed = torch.random.get_rng_state()
    losses = [captured(*batch).item() for batch in batches[:20]]
    optimizer.param_groups[0]["lr"] = 0.003
    losses += [captured(*batch).item() for batch in batches[20:]]
    torch.random.set_rng_state(seed)
    expected = [twins_step(*batch).item() for batch in batches[:20]]
    twins_optimizer.param_groups[0]["lr"] = 0.003
    expected += [twins_step(*batch).item() for batch in batches[20:]]
    assert losses == expected
    for mine, other in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(mine, other) and torch.equal(mine.grad, other.grad)
        for name, item in twins_optimizer.state[other].items():
            if isinstance(item, torch.Tensor):
                assert torch.equal(optimizer.state[mine][name], item)
    assert count(captured, "replayed") >= 27


class Trainer:
    """A step whose object holds the schedule too, as most people write it; and code that makes up
    names of attributes, as that of transformers does."""

    def __init__(self, *, inside: bool = False) -> None:
        weights = [torch.ones(3, requires_grad=True)]
        self.weights, self.inside, self.at_3 = weights, inside, 2.0
        self.optimizer = torch.optim.AdamW(weights, lr=torch.tensor(0.1), fused=True)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(
            self.optimizer, 0.1, total_steps=100, cycle_momentum=False
        )

    def step(self, x: torch.Tensor) -> torch.Tensor:
        self.optimizer.zero_grad()
        loss = (self.weights[0] * x).sum() * getattr(self, f"at_{len(x)}")
        loss.backward()
        self.optimizer.step()
        if self.inside:
            self.schedule.step()
        return loss


def test_a_schedule_beside_the_step_moves_nothing_of_it():
    mine, other = Trainer(), Trainer()
    captured = ftax.capture(mine.step, (torch.randn(3),))
    for x in torch.randn(12, 3):
        assert torch.equal(captured(x), other.step(x))
        mine.schedule.step()
        other.schedule.step()
    assert count(captured, "replayed") >= 9
    mine.at_3 = other.at_3 = 3.0
    assert torch.equal(captured(torch.ones(3)), other.step(torch.ones(3)))


def test_a_schedule_within_the_step_is_refused_with_the_remedy():
    with pytest.raises(ftax.UnsupportedError, match=r"scheduler.step\(\) outside of the captured"):
        ftax.capture(Trainer(inside=True).step, (torch.randn(3),))


def test_a_step_of_ftax_train_is_refused_by_its_own_name():
    model, optimizer, _ = make_training(torch.optim.Adam)
    step = ftax.train(
        model, lambda model, x: model(x).square().mean(), optimizer, (torch.randn(4, 8),)
    )
    with pytest.raises(ftax.UnsupportedError, match=r"at ftax\.train, .*count of steps"):
        ftax.capture(step)


def test_an_optimizer_that_counts_on_the_host_is_refused():
    model, optimizer, step = make_training(lambda weights: torch.optim.Adam(weights, foreach=False))
    with pytest.raises(ftax.UnsupportedError, match=r"its optimizer reads.*fused=True"):
        ftax.capture(step, (torch.randn(4, 8), torch.randn(4, 1)))
    assert not optimizer.state and all(item.grad is None for item in model.parameters())


@pytest.mark.parametrize("to_none", [True, False])
def test_gradients_that_are_added_up_are_those_of_eager(to_none: bool):
    def run(model: nn.Module, call: Callable[..., torch.Tensor]) -> list[torch.Tensor]:
        found = []
        for turn in range(8):
            if turn % 4 == 0:
                model.zero_grad(set_to_none=to_none)
            call(torch.full((2, 8), float(turn)))
            found += [item.grad.clone() for item in model.parameters()]
        return found

    def make() -> tuple[nn.Module, Callable[..., torch.Tensor]]:
        model = make_model()

        def accumulate(x: torch.Tensor) -> torch.Tensor:
            loss = model(x).square().mean()
            loss.backward()
            return loss

        return model, accumulate

    model, accumulate = make()
    captured = ftax.capture(accumulate, torch.ones(2, 8))
    for mine, other in zip(run(model, captured), run(*make()), strict=True):
        assert torch.equal(mine, other)
    assert count(captured, "replayed") >= 4


def test_gradients_added_up_before_a_step_outside_are_recorded_once_each():
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    twin = make_model()
    twins_optimizer = torch.optim.SGD(twin.parameters(), lr=0.1)

    def make(model: nn.Module) -> Callable[[torch.Tensor], torch.Tensor]:
        def add(x: torch.Tensor) -> torch.Tensor:
            loss = model(x).square().mean()
            loss.backward()
            return loss.detach()

        return add

    captured, original = ftax.capture(make(model), torch.randn(2, 8)), make(twin)
    for turn in range(20):
        x = torch.randn(2, 8)
        assert torch.equal(captured(x), original(x))
        if turn % 4 == 3:
            for each in (optimizer, twins_optimizer):
                each.step()
                each.zero_grad()
    for mine, other in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(mine, other)
    assert count(captured, "recorded") == 2


def test_a_gradient_that_somebody_holds_is_not_written_over():
    model = make_model()

    def add(x: torch.Tensor) -> torch.Tensor:
        loss = model(x).square().mean()
        loss.backward()
        return loss.detach()

    captured = ftax.capture(add, torch.randn(2, 8))
    captured(torch.ones(2, 8))
    held = model[0].weight.grad
    kept = held.clone()
    model.zero_grad()
    captured(torch.zeros(2, 8))
    assert torch.equal(held, kept)


def test_an_audit_leaves_what_one_call_leaves():
    model, _, step = make_training(lambda weights: torch.optim.SGD(weights, lr=0.1, momentum=0.9))
    twin, _, twins_step = make_training(lambda weights: torch.optim.SGD(weights, 0.1, momentum=0.9))
    batch = torch.randn(4, 8), torch.randn(4, 1)
    captured = ftax.capture(step, batch)
    captured.audit(5)
    torch.manual_seed(1)
    for _ in range(5):
        captured(*batch)
    torch.manual_seed(1)
    for _ in range(5):
        twins_step(*batch)
    for mine, other in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(mine, other)
    assert captured.stats().checked >= 3


def test_a_step_that_fails_with_a_planted_gradient_moves_no_weight():
    layer, other = nn.Linear(3, 3), nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([*layer.parameters(), other], lr=0.1, weight_decay=0.5)

    def step(x: torch.Tensor) -> None:
        layer.zero_grad()
        layer(x).sum().backward()
        optimizer.step()
        if other.grad is not None:
            raise ValueError("not mine")

    with pytest.raises(ftax.RunnerError, match="not mine"):
        ftax.capture(step, torch.ones(2, 3))
    assert torch.equal(other, torch.ones(3))
