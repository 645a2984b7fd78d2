"""A refusal of common programs names what to change, and what can be captured is."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.checkpoint import checkpoint

import ftax
from support.small_models import normal

pytestmark = pytest.mark.usefixtures("record_at_once")

X = normal(3, 4)
TABLE = normal(5, 4)


def refuse(what: Callable[..., Any], *inputs: Tensor) -> str:
    with pytest.raises(ftax.UnsupportedError) as raised:
        ftax.capture(what, inputs)
    return str(raised.value)


def make_step(make: Callable[[Any], torch.optim.Optimizer], layers: int = 2) -> Any:
    net = nn.Sequential(*(nn.Linear(4, 4) for _ in range(layers)))
    optimizer = make(net.parameters())

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@pytest.mark.parametrize(
    ("call", "inputs", "remedy"),
    [
        (
            lambda x: torch.distributions.Normal(x, x.abs() + 1).log_prob(x),
            X,
            "validate_args=False",
        ),
        (lambda x: torch.distributions.Categorical(logits=x).sample(), X, "validate_args=False"),
        (lambda t: TABLE[t] * 2, torch.tensor(2), r"table.index_select(0, index.reshape(1))"),
        (lambda x: torch.func.jvp(torch.sin, (x,), (x,))[1], X, "it calls torch.func.jvp"),
        (lambda x: torch.func.jacrev(torch.sum)(x), X, "capture the function that is given to it"),
        (lambda x: torch.func.grad(torch.sum)(x), X, "it calls torch.func.grad"),
    ],
    ids=["log_prob", "sample", "index", "jvp", "jacrev", "grad"],
)
@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_a_refusal_names_what_to_change(
    no_grad: None, call: Callable[[Tensor], Tensor], inputs: Tensor, remedy: str
) -> None:
    torch.distributions.Distribution.set_default_validate_args(
        True
    )  # torch.compile switches it off
    assert remedy in refuse(call, inputs)


def test_a_distribution_that_checks_nothing_is_captured(no_grad: None):
    """One of its lazy properties switches gradients on, where nothing asks for any."""

    def draw(x: Tensor) -> Tensor:
        return torch.distributions.Categorical(logits=x, validate_args=False).sample()

    fast = ftax.capture(draw, (X,))
    for seed in range(5):
        torch.manual_seed(seed)
        expected = draw(X + 1)
        torch.manual_seed(seed)
        assert torch.equal(fast(X + 1), expected)
    assert fast.stats().replayed
    assert not torch.is_grad_enabled()


@pytest.mark.parametrize(
    ("name", "remedy", "absent"),
    [
        ("RAdam", "capturable=True, on a GPU", "fused"),
        ("NAdam", "capturable=True, on a GPU", "fused"),
        ("ASGD", "capturable=True, on a GPU", "fused"),
        ("Adamax", "capturable=True, on a GPU", "fused"),
        ("Adafactor", "such as AdamW with fused=True", "capturable"),
        ("Adagrad", "give it fused=True", "capturable"),
        ("Adam", "fused=True or capturable=True", "such as AdamW"),
    ],
)
def test_an_optimizer_is_told_what_it_has(name: str, remedy: str, absent: str) -> None:
    torch.manual_seed(0)
    text = refuse(make_step(lambda weights: getattr(torch.optim, name)(weights)), X)
    assert name in text and remedy in text and absent not in text


def test_an_optimizer_that_is_nearly_replayed_is_told_too() -> None:
    """With these weights the outputs of a replay differ by less than the tape's limit."""
    torch.manual_seed(45)
    text = refuse(make_step(torch.optim.Adafactor), X)
    assert "such as Adafactor's count of steps" in text and "equal within" in text


def test_a_learning_rate_that_is_a_tensor_is_told() -> None:
    text = refuse(make_step(lambda weights: torch.optim.SGD(weights, lr=torch.tensor(0.1))), X)
    assert "reads its learning rate, a tensor" in text and "fused=True or a number as lr" in text


@pytest.mark.slow
def test_more_than_a_thousand_parameters_with_momentum_are_captured() -> None:
    """Twelve hundred: recording them takes some seconds."""
    step = make_step(lambda weights: torch.optim.SGD(weights, 0.1, momentum=0.9), layers=600)
    fast = ftax.capture(step, X, audit=False)
    for _ in range(3):
        fast(X)
    assert fast.stats().replayed == 2


@pytest.mark.parametrize(
    "average", [{}, {"multi_avg_fn": get_ema_multi_avg_fn(0.9)}, {"use_buffers": True}]
)
def test_an_averaged_model_is_captured(average: dict[str, Any]) -> None:
    def make() -> tuple[Callable[[Tensor], Tensor], nn.Module]:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
        averaged = AveragedModel(net, **average)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)

        def step(x: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            optimizer.step()
            averaged.update_parameters(net)
            return loss.detach()

        return step, averaged

    (step, mine), (original, other) = make(), make()
    fast = ftax.capture(step, X)
    for seed in range(6):
        x = normal(3, 4, seed=seed)
        assert torch.equal(fast(x), original(x))
        pairs = zip(mine.state_dict().values(), other.state_dict().values(), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)
    assert fast.stats().replayed >= 3


def test_a_moving_average_by_data_is_captured() -> None:
    average, source = (nn.Linear(4, 4), nn.Linear(4, 4))

    def step(x: Tensor) -> Tensor:
        for mine, other in zip(average.parameters(), source.parameters(), strict=True):
            mine.data.mul_(0.9).add_(other.data, alpha=0.1)
        return x + 1

    expected = [
        mine.detach() * 0.9**3 + other.detach() * (1 - 0.9**3)
        for mine, other in zip(average.parameters(), source.parameters(), strict=True)
    ]
    fast = ftax.capture(step, X)
    for _ in range(3):
        fast(X)
    found = zip(average.parameters(), expected, strict=True)
    assert all(torch.allclose(a, b) for a, b in found)
    assert fast.stats().replayed == 3


def test_a_module_whose_weights_come_with_the_call_may_be_on_the_meta_device(
    no_grad: None,
) -> None:
    base = nn.Linear(4, 4, device="meta")
    weights = {name: normal(*item.shape) for name, item in base.named_parameters()}

    def call(x: Tensor) -> Any:
        return torch.func.functional_call(base, weights, (x,))

    fast = ftax.capture(call, X)
    assert torch.equal(fast(X), call(X))


@pytest.mark.parametrize("unscales", [False, True], ids=["scaled", "unscaled and clipped"])
@pytest.mark.parametrize(
    "make",
    [
        lambda weights: torch.optim.SGD(weights, 0.1, momentum=0.9, fused=True),
        lambda weights: torch.optim.AdamW(weights, 0.01, fused=True),
    ],
    ids=["sgd", "adamw"],
)
def test_a_step_with_a_grad_scaler_is_that_of_eager(
    make: Callable[[Any], torch.optim.Optimizer], unscales: bool
) -> None:
    def begin() -> tuple[Any, nn.Module, torch.amp.GradScaler]:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        optimizer = make(net.parameters())
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=5)

        def step(x: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = net(x).square().mean()
            scaler.scale(loss).backward()
            if unscales:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            return loss.detach()

        return step, net, scaler

    (step, mine, scaler), (original, other, other_scaler) = begin(), begin()
    fast = ftax.capture(step, X)
    for turn in range(50):
        x = normal(3, 4, seed=turn) * (float("inf") if turn == 7 else 1.0)
        expected, found = original(x), fast(x)
        assert torch.equal(found, expected) or (found.isnan() and expected.isnan())
        assert scaler.state_dict() == other_scaler.state_dict()
        pairs = zip(mine.parameters(), other.parameters(), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)
    assert fast.stats().replayed == 49


def test_a_grad_scaler_of_another_optimizer_names_fused() -> None:
    net = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu")

    def step(x: Tensor) -> None:
        optimizer.zero_grad()
        scaler.scale(net(x).sum()).backward()
        scaler.step(optimizer)
        scaler.update()

    assert "give the optimizer fused=True" in refuse(step, X)


def test_pruned_and_normed_weights_can_be_trained() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net = nn.utils.weight_norm(nn.Linear(4, 4))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)

    def step(x: Tensor) -> None:
        optimizer.zero_grad()
        net(x).square().sum().backward()
        optimizer.step()

    fast = ftax.capture(step, X)
    before = net.weight
    for _ in range(4):
        fast(X)
    assert net.weight is not before and net.weight.shape == (4, 4)
    expected = torch._weight_norm(net.weight_v, net.weight_g, 0)
    fast(X)
    assert torch.equal(net.weight, expected)  # that of the last forward pass


def test_reset_brings_back_what_python_keeps_before_each_call(no_grad: None) -> None:
    class Reader:
        def __init__(self) -> None:
            self.place = 0

        def read(self, x: Tensor) -> Tensor:
            self.place += 1
            return x * self.place

        def rewind(self) -> None:
            self.place = 0

    reader = Reader()
    with pytest.raises(ftax.UnsupportedError, match="each call changes 'place'"):
        ftax.capture(reader.read, X)
    fast = ftax.capture(reader.read, X, reset=reader.rewind)
    reader.place = 5
    for _ in range(5):
        assert torch.equal(fast(X), X)
    assert fast.stats().replayed == 5
    step = ftax.step(reader.read, X, reset=reader.rewind)
    assert torch.equal(ftax.capture(step)(X), X)
    with pytest.raises(ftax.InvalidArgumentError, match="reset is an int"):
        ftax.capture(reader.read, X, reset=3)  # type: ignore[arg-type]


@pytest.mark.parametrize("ignore", ["calls", (3,)])
def test_names_to_ignore_are_a_sequence_of_names(ignore: Any) -> None:
    with pytest.raises(ftax.InvalidArgumentError, match="give names of attributes"):
        ftax.capture(torch.sin, X, ignore=ignore)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_draws_the_numbers_of_the_forward_pass_again(reentrant: bool) -> None:
    def begin() -> tuple[Any, nn.Module]:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 4), nn.Dropout(0.5))
        optimizer = torch.optim.SGD(net.parameters(), 0.1)

        def step(x: Tensor) -> Tensor:
            optimizer.zero_grad()
            hidden = net[1](net[0](x))
            loss = checkpoint(net[2:], hidden, use_reentrant=reentrant).square().mean()
            loss.backward()
            optimizer.step()
            found: Tensor = loss.detach()
            return found

        return step, net

    (step, mine), (original, other) = begin(), begin()
    fast = ftax.capture(step, X)
    torch.manual_seed(1)
    found = [fast(normal(3, 4, seed=seed)) for seed in range(10)]
    after = torch.get_rng_state()
    torch.manual_seed(1)
    assert all(map(torch.equal, found, (original(normal(3, 4, seed=seed)) for seed in range(10))))
    assert torch.equal(torch.get_rng_state(), after)
    pairs = zip(mine.parameters(), other.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    assert fast.stats().replayed == 10
