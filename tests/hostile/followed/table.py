"""Odd programs around a module whose result autograd goes on from: each with what becomes of it.

A program is given `take`, which hands it the module itself the first time and the module's capture
the second time. What it returns, and the weights, buffers and gradients of all modules that it
took, must be equal bit for bit.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

import ftax
from support.small_models import normal

_T = TypeVar("_T", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What becomes of one.

    Attributes:
        words: of the refusal; "" for none.
        warns: of what the capture warns.
        replayed: how many calls have to be replays, at least.
        rounded: gradients are sums that were added up in another order.
        threads: it starts some.
        found: what differs is found by a check, which ends the replays.
    """

    run: Callable[[Take], Any]
    words: str = ""
    warns: str = ""
    replayed: int = 1
    rounded: bool = False
    threads: bool = False
    found: bool = False


TABLE: dict[str, Program] = {}


def program(**facts: Any) -> Callable[[_T], _T]:
    """Enter one; see `Program`."""

    def enter(run: _T) -> _T:
        name = run.__name__.replace("_", " ")
        if name in TABLE:
            raise ValueError(f"{name} is entered twice")
        TABLE[name] = Program(run=run, **facts)
        return run

    return enter


class Take:
    """Hands out modules, or their captures."""

    def __init__(self, *, captures: bool) -> None:
        self._captures = captures
        self.modules: list[nn.Module] = []
        self.taken: list[Any] = []
        self.refusal = ""

    def __call__(self, what: Any, *inputs: Any, **options: Any) -> Any:
        """What is to be called in the place of ``what``."""
        self._note(what)
        return self._capture(lambda: ftax.capture(what, inputs, **options)) or what

    def in_place(self, module: nn.Module, *inputs: Any) -> None:
        """Have it replay where it is."""
        self._note(module)
        self._capture(lambda: ftax.capture_(module, inputs))

    def _note(self, what: Any) -> None:
        if isinstance(what, nn.Module):
            self.modules.append(what)

    def _capture(self, capture: Callable[[], Any]) -> Any:
        if not self._captures:
            return None
        try:
            self.taken.append(capture())
        except ftax.errors.FtaxError as error:
            self.refusal = str(error)
            return None
        return self.taken[-1]


def rows(seed: int, count: int = 4) -> Tensor:
    """An input."""
    return normal(count, 8, seed=seed)


def make_net(last: int = 4) -> nn.Module:
    """With random numbers, and values that its backward pass needs."""
    return nn.Sequential(
        nn.Linear(8, 16), nn.Tanh(), nn.Dropout(0.2), nn.LayerNorm(16), nn.Linear(16, last)
    )


def read_grads(module: nn.Module) -> list[Tensor | None]:
    """Copies of the gradients there are."""
    return [copy.deepcopy(weight.grad) for weight in module.parameters()]


def drop_grads(module: nn.Module) -> None:
    """Have none."""
    module.zero_grad(set_to_none=True)


def name_error(run: Callable[[], Any]) -> str:
    """What it raises, without what torch names the node."""
    try:
        run()
    except RuntimeError as error:
        return str(error).split(", which is")[0].split(" is at version")[0].split(":")[0]
    return "nothing"


class Heads(nn.Module):
    """Two results with a graph, one without, and a weight that no result needs."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk, self.unused = nn.Linear(8, 8), nn.Linear(2, 2)
        self.left, self.right = nn.Linear(8, 3), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Any:
        h = torch.tanh(self.trunk(x))
        return {"left": self.left(h), "rest": (self.right(h), h.argmax(-1), None, 3)}


class Around(nn.Module):
    """A layer, and what ``function`` makes of its result."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.layer, self.function = nn.Linear(8, 8), function

    def forward(self, x: Tensor) -> Any:
        return self.function(self.layer(x))


def train(take: Take, net: Any, calls: int = 6) -> Any:
    """Gradients of calls, one by one."""
    call = take(net, rows(0))
    found = []
    for seed in range(calls):
        drop_grads(net)
        call(rows(seed)).square().sum().backward()
        found.append(read_grads(net))
    return found
