"""Steps whose optimizer calls its closure as often as values ask for: measured from the state in
which they were found; what can be captured of them is the closure."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import ftax
from ftax import UnsupportedError
from ftax.steps.load import load_model
from ftax.steps.train import needs_closure

LBFGS = torch.optim.LBFGS
QUICK = ftax.Plan(rounds=2, warmup=2, round_ms=2.0)
LINES = [None, "strong_wolfe"]
Problem = tuple[list[torch.Tensor], Callable[..., torch.Tensor], tuple[torch.Tensor, ...]]


def fit_a_line() -> Problem:
    model = nn.Linear(4, 1)
    batch = (torch.randn(16, 4), torch.randn(16, 1))
    return [*model.parameters()], lambda x, y: (model(x) - y).square().mean(), batch


def fit_a_network() -> Problem:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    batch = (torch.randn(16, 4), torch.randn(16, 1))
    return [*model.parameters()], lambda x, y: (model(x) - y).square().mean(), batch


def descend_a_valley() -> Problem:
    """Rosenbrock's, without inputs."""
    x = torch.tensor([-1.5, 2.0], requires_grad=True)
    return [x], lambda: 1e-3 * ((1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2), ()


PROBLEMS = [fit_a_line, fit_a_network, descend_a_valley]


def make_closure(
    optimizer: torch.optim.Optimizer, loss: Callable[..., torch.Tensor], *batch: torch.Tensor
) -> Callable[[], torch.Tensor]:
    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        value = loss(*batch)
        value.backward()
        return value

    return closure


def make_step(make: Callable[[], Problem], **options: Any) -> tuple[ftax.Step, LBFGS]:
    torch.manual_seed(0)
    weights, loss, batch = make()
    optimizer = LBFGS(weights, **options)

    def run(*given: torch.Tensor) -> torch.Tensor:
        return optimizer.step(make_closure(optimizer, loss, *given)).detach()

    return ftax.step(run, batch), optimizer


def read(optimizer: LBFGS) -> list[torch.Tensor]:
    return [weight.detach().clone() for weight in optimizer.param_groups[0]["params"]]


@pytest.mark.filterwarnings("ignore:Converting a tensor")  # within LBFGS of torch 2.8
@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("make", PROBLEMS)
def test_a_step_of_lbfgs_is_measured_from_the_state_that_was_found(
    make: Callable[[], Problem], line: str | None
):
    step, optimizer = make_step(make, max_iter=6, line_search_fn=line)
    before = read(optimizer)
    receipt = ftax.tax(step, plan=QUICK, runtimes="none", operators=False, progress=False)
    places = ["eager/python", "tape-with-autograd/cpp", "eager/cpp"]
    assert [str(rung.place) for rung in receipt.rungs] == places
    assert not receipt.work_problem
    text = " ".join(str(receipt.details).split())
    assert "! LBFGS calls its closure as often as values ask for" in text
    assert "captured is the closure: optimizer.step(ftax.capture(closure, ()))" in text
    assert all(map(torch.equal, read(optimizer), before))
    assert not optimizer.state


@pytest.mark.parametrize("options", [{"history_size": 1, "max_iter": 2}, {"max_iter": 20}])
def test_runs_are_the_same_work_whatever_the_optimizer_keeps(options: dict[str, int]):
    step, optimizer = make_step(fit_a_line, **options)
    for _ in range(3):
        step(*step.inputs)  # so that it has a history, which is the state that is found
    evaluations, weights = optimizer.state_dict()["state"][0]["func_evals"], read(optimizer)
    loaded = load_model(step)
    found = []
    for _ in range(3):
        loaded.prepare()
        loaded.call()
        found.append((optimizer.state_dict()["state"][0]["func_evals"], read(optimizer)))
    assert found[0][0] > evaluations
    for now, after in found[1:]:
        assert now == found[0][0]
        assert all(map(torch.equal, after, found[0][1]))
    step.undo_all()
    assert optimizer.state_dict()["state"][0]["func_evals"] == evaluations
    assert all(map(torch.equal, read(optimizer), weights))


def test_train_gives_lbfgs_its_closure():
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    x, y = torch.randn(16, 4), torch.randn(16, 1)
    optimizer = LBFGS(model.parameters())
    step = ftax.train(
        model, lambda m, x, y: (m(x) - y).square().mean(), optimizer, (x, y), name="fit"
    )
    assert ftax.py_bench(step, plan=QUICK).cell.step == "train"
    first, second = (float(step(x, y).detach()) for _ in range(2))
    assert second < first  # LBFGS returns the loss that it found


def test_an_optimizer_that_may_do_without_a_closure_needs_none():
    weights = [torch.zeros(2, requires_grad=True)]
    assert needs_closure(LBFGS(weights))
    for kind in (torch.optim.SGD, torch.optim.AdamW, torch.optim.Rprop):
        assert not needs_closure(kind(weights, lr=0.1))
    scheduled = LBFGS(weights)
    torch.optim.lr_scheduler.StepLR(scheduled, 1)  # which puts a function of its own over `step`
    assert needs_closure(scheduled)


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("make", PROBLEMS)
def test_a_capture_of_the_step_is_refused_and_that_of_its_closure_is_right(
    make: Callable[[], Problem], line: str | None
):
    step, _ = make_step(make, line_search_fn=line)
    with pytest.raises(UnsupportedError, match=r"cannot capture run: LBFGS.*capture the closure"):
        ftax.capture(step.function, step.inputs)
    found = []
    for is_captured in (False, True):
        torch.manual_seed(0)
        weights, loss, batch = make()
        optimizer = LBFGS(weights, line_search_fn=line)
        closure = make_closure(optimizer, loss, *batch)
        if is_captured:
            closure = ftax.capture(closure, ())
        losses = [optimizer.step(closure).detach() for _ in range(3)]
        found.append([*losses, *read(optimizer)])
        assert optimizer.state_dict()["state"][0]["func_evals"] > 3
    assert all(map(torch.equal, *found))


def test_a_closure_of_a_batch_is_captured_once_for_all_batches():
    batches = [(torch.randn(16, 4), torch.randn(16, 1)) for _ in range(3)]
    found = []
    for is_captured in (False, True):
        torch.manual_seed(0)
        weights, loss, _ = fit_a_network()
        optimizer = LBFGS(weights, max_iter=5)

        def differentiate(
            *batch: torch.Tensor, optimizer: LBFGS = optimizer, loss: Any = loss
        ) -> torch.Tensor:
            return make_closure(optimizer, loss, *batch)()

        run: Any = ftax.capture(differentiate, batches[0]) if is_captured else differentiate
        for batch in batches:
            optimizer.step(lambda run=run, batch=batch: run(*batch))
        found.append(read(optimizer))
    assert all(map(torch.equal, *found))
