"""While a call is recorded in the middle of a program, other threads are not disturbed."""

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook

import ftax
from ftax.steps.random_states import beside_other_threads
from support.small_models import normal

pytestmark = pytest.mark.usefixtures("record_at_once")


@contextmanager
def running(work: Callable[[], object]) -> Iterator[list[Any]]:
    """Another thread that does ``work`` again and again; what it gave."""
    ended, found = threading.Event(), list[Any]()

    def run() -> None:
        while not ended.is_set():
            found.append(work())
            time.sleep(1e-4)  # or it holds the interpreter for 5 ms at a time, and memory fills

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()


def record_many(model: Callable[[Tensor], Any], count: int = 6, **options: Any) -> Any:
    """A capture that records ``count`` lengths as it meets them."""
    fast = ftax.capture(model, normal(2, 4), **options)
    for length in range(3, 3 + count):
        fast(normal(length, 4))
    assert fast.stats().recorded == count + 1
    return fast


DRAWS: dict[str, Callable[[], object]] = {
    "torch": lambda: int(torch.randint(2**62, ())),
    "python": random.random,
    "numpy": np.random.random,
}


@pytest.mark.parametrize("source", DRAWS)
def test_no_number_is_drawn_twice(no_grad: None, source: str) -> None:
    with running(DRAWS[source]) as drawn:
        for model in (nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))):
            record_many(model)
    assert len(drawn) > 20
    assert Counter(drawn).most_common(1)[0][1] == 1


def test_random_numbers_of_what_was_recorded_are_those_of_eager(no_grad: None) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.RReLU())

    def draw(x: Tensor) -> Tensor:
        return model(x) + torch.randn_like(x) + torch.rand(4) * torch.bernoulli(x.sigmoid())

    with running(lambda: None):
        fast = record_many(draw)
        for length in (3, 5):
            x = normal(length, 4)
            torch.manual_seed(3)
            expected, after = draw(x), torch.get_rng_state()
            torch.manual_seed(3)
            assert torch.equal(fast(x), expected)
            assert torch.equal(torch.get_rng_state(), after)


def test_operators_draw_from_a_generator_that_is_made_for_it() -> None:
    before = torch.get_rng_state()
    x = torch.ones(2, 3)
    with beside_other_threads():
        for draw in (
            lambda: torch.randn(3),
            lambda: torch.randperm(4),
            lambda: torch.multinomial(torch.ones(4), 2),
            lambda: torch.nn.functional.dropout(x, 0.5, training=True),
            lambda: x.clone().uniform_(),
            lambda: torch.normal(x, x),
        ):
            draw()
    assert torch.equal(torch.get_rng_state(), before)
    torch.randn(1)
    assert not torch.equal(torch.get_rng_state(), before)


def test_hooks_of_all_modules_see_what_other_threads_call(no_grad: None) -> None:
    seen: Counter[int] = Counter()
    handle = register_module_forward_hook(
        lambda *_: seen.update([threading.get_ident()])  # type: ignore[arg-type]
    )
    layer, thread = nn.Linear(4, 4), list[int]()

    def work() -> None:
        thread[:] = [threading.get_ident()]
        layer(torch.ones(2, 4))

    try:
        with running(work) as calls:
            record_many(nn.Linear(4, 4), ignore=("seen",))
    finally:
        handle.remove()
    assert seen[thread[0]] == len(calls) > 20


def test_an_environment_variable_of_another_thread_stays(no_grad: None) -> None:
    numbers = iter(range(1_000_000))

    def work() -> None:
        os.environ["FTAX_TEST_NUMBER"] = wanted = str(next(numbers))
        assert os.environ["FTAX_TEST_NUMBER"] == wanted

    failures: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    try:
        with running(guarded):
            record_many(nn.Linear(4, 4))
    finally:
        os.environ.pop("FTAX_TEST_NUMBER", None)
    assert not failures


def test_warm_records_what_will_come(no_grad: None) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    fast = ftax.capture(model, normal(2, 4))
    with running(lambda: None):
        fast.warm([normal(3, 4), (normal(5, 4),), normal(3, 4)])
    assert fast.stats().recorded == 3
    fast(normal(5, 4))
    assert fast.stats().recorded == 3 and fast.stats().replayed == 1
