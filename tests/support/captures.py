"""What the tests of captures share."""

import functools
from collections.abc import Callable

import torch
from torch import nn

from ftax.captures.captured import Captured


def make_model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)).eval()


def count(captured: Captured, how: str) -> int:
    return captured.explain().calls.get(how, 0)


def assert_same(captured: Captured, original: Callable[..., torch.Tensor], *args: object) -> None:
    assert torch.equal(captured(*args), original(*args))


class Hidden:
    """A number that code can read and no guard can see."""

    def __init__(self) -> None:
        self.place = [2.0]
        self.read = functools.lru_cache(lambda: self.place[0])

    def set(self, number: float) -> None:
        self.place[0] = number
        self.read.cache_clear()
