"""Odd things to capture, and what is changed between their calls: each with what has to become of
it.

The surprising choice: an entry makes a whole scene, and the test plays it twice from the start,
once with the original and once with the capture. So nothing has to be copied, and globals may be
changed.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import inspect
import itertools
import os
import random
import time
import types
import weakref
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, library, nn
from torch.utils.checkpoint import checkpoint

import ftax
from support.small_models import normal

Outcome = Literal["right", "refused", "frozen"]
_T = TypeVar("_T", bound=Callable[..., Any])


def nothing(*_: Any) -> None:
    """What is done where nothing is."""


def one(seed: int) -> tuple[Any, ...]:
    return (normal(3, 4, seed=seed),)


@dataclass(slots=True, kw_only=True)
class Given:
    """Arguments of a call that are not all tensors in a tuple."""

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Scene:
    """``disturb(0)`` and ``disturb(1)`` are called between calls; ``watch()`` is all that a call
    may change; ``around()`` is the caller's mode; ``undo`` is called when all is over."""

    what: Any
    inputs: Callable[[int], Any] = one
    disturb: Callable[[int], object] = nothing
    watch: Callable[[], Any] = nothing
    around: Callable[[], Any] = torch.no_grad
    undo: Callable[[], object] = nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """``recorded``: how many times the capture may record; None: not looked at. ``replayed``: how
    many of the six calls have to be replays. ``moves``: an iterator moves on, and nobody can put it
    back."""

    make: Callable[[], Scene]
    outcome: Outcome
    words: str
    recorded: int | None
    replayed: int
    moves: bool
    options: dict[str, Any]
    marks: Sequence[Any]


TABLE: dict[str, Case] = {}


def _enter(
    outcome: Outcome,
    words: str,
    *,
    recorded: int | None = None,
    replayed: int = 1,
    moves: bool = False,
    marks: Sequence[Any] = (),
    **options: Any,
) -> Callable[[_T], _T]:
    def enter(what: _T) -> _T:
        name = what.__name__.replace("_", " ")
        if name in TABLE or not (words or outcome == "right"):
            raise ValueError(f"{name} is entered twice, or nothing is expected to be said of it")
        is_captured = not isinstance(what, type) and bool(inspect.signature(what).parameters)

        def make() -> Scene:
            torch.manual_seed(0)
            made = what if is_captured else what()
            return made if isinstance(made, Scene) else Scene(made)

        TABLE[name] = Case(
            make=make,
            outcome=outcome,
            words=words,
            recorded=recorded,
            replayed=replayed,
            moves=moves,
            options=options,
            marks=marks,
        )
        return what

    return enter


def right(**options: Any) -> Callable[[_T], _T]:
    """All calls are those of the original, and some of them are replays."""
    return _enter("right", "", **options)


def refused(words: str, **options: Any) -> Callable[[_T], _T]:
    """The first capture, or one that a later call needs, says what cannot be done, and all stays as
    it was."""
    return _enter("refused", words, **options)


def frozen(words: str, **options: Any) -> Callable[[_T], _T]:
    """Calls do differ from the original, and `explain` said that they might."""
    return _enter("frozen", words, **options)


DEPENDS = "number that depends on inputs or state"
MEMORY = "reads a tensor's memory by"
CHANGES = "each call changes"


# Values of tensors that Python looks at


@refused(DEPENDS)
def branch_on_sum(x: Tensor) -> Tensor:
    return x.exp() if x.sum() > 0 else x.neg()


@refused(DEPENDS)
def branch_that_is_seldom_taken(x: Tensor) -> Tensor:
    return x.exp() if x.sum() < 1e6 else x.neg()


@refused(DEPENDS)
def item_as_a_factor(x: Tensor) -> Tensor:
    return x * x[0, 0].item()


@refused(MEMORY)
def tolist_as_a_factor(x: Tensor) -> Tensor:
    return x * x.tolist()[0][0]


@refused(MEMORY)
def numpy_as_a_factor(x: Tensor) -> Tensor:
    return x * float(x.numpy().sum())


@refused(MEMORY)
def array_as_a_factor(x: Tensor) -> Tensor:
    return x * float(np.asarray(x).sum())


@refused(MEMORY)
def dlpack_as_a_factor(x: Tensor) -> Tensor:
    return x * float(np.from_dlpack(x).sum())


@refused(DEPENDS)
def float_as_a_factor(x: Tensor) -> Tensor:
    return x * float(x.sum())


@refused(DEPENDS)
def bool_as_a_branch(x: Tensor) -> Tensor:
    return x.exp() if bool((x > 0).any()) else x


@refused(DEPENDS)
def int_as_a_size() -> Scene:
    return Scene(
        lambda x, n: x[: int(n)] * 2,
        lambda seed: (normal(6, seed=seed), torch.tensor(1 + seed % 5)),
    )


@refused(DEPENDS)
def tensor_as_an_index_of_a_list() -> Scene:
    return Scene(
        lambda x, n: x + [1, 2, 3, 4][n],
        lambda seed: (normal(6, seed=seed), torch.tensor(seed % 4)),
    )


@refused(DEPENDS)
def equality_as_a_branch(x: Tensor) -> Tensor:
    return x.exp() if torch.equal(x, x.abs()) else x


@refused(DEPENDS)
def closeness_as_a_branch(x: Tensor) -> Tensor:
    return x.exp() if torch.allclose(x, x.abs()) else x


@refused("cannot capture")
def text_of_a_tensor(x: Tensor) -> Tensor:
    return x + len(str(x[0] * 1000))


@refused("cannot capture")
def value_in_its_storage(x: Tensor) -> Tensor:
    return x * x.untyped_storage()[3]


@refused("cannot capture")
def value_at_its_address(x: Tensor) -> Tensor:
    import ctypes

    return x * ctypes.c_float.from_address(x.data_ptr()).value


@refused(DEPENDS)
def index_with_a_tensor_in_a_slice() -> Scene:
    return Scene(
        lambda x, n: x[n:] * 2, lambda seed: (normal(9, seed=seed), torch.tensor(seed % 5))
    )


@refused(DEPENDS)
def repeats_of_a_tensor() -> Scene:
    return Scene(
        lambda x, n: x.repeat(n.item()), lambda seed: (normal(2, seed=seed), torch.tensor(1 + seed))
    )


@refused(DEPENDS)
def contains(x: Tensor) -> Tensor:
    return x.exp() if 0.0 in x.relu() else x


def masked(seed: int) -> tuple[Tensor, ...]:
    return (normal(3, 4, seed=seed).abs() * (torch.arange(12).view(3, 4) > seed),)


@right(recorded=1)
def nonzero_and_a_sum() -> Scene:
    return Scene(lambda x: x.nonzero().sum(0), masked)


@right(recorded=1)
def masked_select() -> Scene:
    return Scene(lambda x: x[x > 0.1] * 2, masked)


@refused("cannot capture")
def count_of_a_mask() -> Scene:
    return Scene(lambda x: x * x[x > 0.1].shape[0], masked)


@refused("cannot capture")
def count_of_what_is_unique() -> Scene:
    return Scene(
        lambda x: x * len(torch.unique(x)), lambda seed: (torch.arange(8) // (1 + seed % 5),)
    )


@refused("cannot capture")
def view_as_long_as_a_mask() -> Scene:
    def reshape(x: Tensor) -> Tensor:
        chosen = x.nonzero()
        return torch.zeros(len(chosen) * 2)

    return Scene(reshape, masked)


@refused("cannot capture")
def numel_of_nonzero_as_a_branch() -> Scene:
    return Scene(lambda x: x.exp() if x[x > 0.1].numel() > 5 else x, masked)


@refused("cannot capture")
def iterated_mask() -> Scene:
    return Scene(lambda x: sum((row for row in x[x > 0.1]), torch.zeros(())), masked)


@refused("cannot capture")
def nonzero_as_a_tuple() -> Scene:
    def gather(x: Tensor) -> Tensor:
        rows, _ = x.nonzero(as_tuple=True)
        return x.new_ones(rows.shape[0]).cumsum(0)

    return Scene(gather, masked)


@refused("cannot capture")
def bincount_that_is_measured() -> Scene:
    return Scene(
        lambda x: torch.bincount(x).shape[0] * x, lambda seed: (torch.arange(4) * (1 + seed),)
    )


@refused("replaying aten::linalg_cholesky failed")
def branch_by_an_error(x: Tensor) -> Tensor:
    try:
        return torch.linalg.cholesky(x[:, :3] @ x[:, :3].T * x[0, 0].sign())
    except RuntimeError:
        return x.neg()


class ReadsItsWeight(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale.item()


@refused(DEPENDS)
def number_in_a_weight() -> Any:
    return ReadsItsWeight()


@right(recorded=1)
def number_that_depends_on_nothing(x: Tensor) -> Tensor:
    return x * torch.linspace(0, 1, 5).sum().item()


@right(on_host_read="check", recorded=1)
def branch_that_is_checked() -> Scene:
    # Calls 0, 1 and 5 go one way, the others the other.
    return Scene(
        lambda x: x.exp() if x.sum() > 0 else x.neg(),
        lambda seed: (normal(3, 4, seed=seed).abs() * (-1 if seed in (3, 4) else 1),),
    )


@right(on_host_read="check", recorded=1)
def checked_branch_after_a_write() -> Scene:
    state = torch.zeros(4)

    def work(x: Tensor) -> Tensor:
        state.add_(x[0])
        x.mul_(2)
        y = F.dropout(x, 0.5)
        return y.exp() if state.sum() > 0 else y.neg()

    return Scene(work, watch=lambda: state)


@right(on_host_read="check")
def checked_number_that_is_nan() -> Scene:
    return Scene(
        lambda x: x + (1 if x.sum().item() > 0 else 2),
        lambda seed: (normal(3, 4, seed=seed) * (float("nan") if seed % 2 else 1),),
    )


# State that Python keeps


class Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.n = 0

    def forward(self, x: Tensor) -> Tensor:
        self.n += 1
        return x * self.n


@refused("n")
def counter_that_scales() -> Scene:
    module = Counts()
    return Scene(module, watch=lambda: module.n)


@refused(CHANGES)
def counter_that_nobody_reads() -> Scene:
    module = nn.Linear(4, 4)
    module.calls = 0

    def work(x: Tensor) -> Tensor:
        module.calls += 1
        return module(x)

    return Scene(work, watch=lambda: module.calls)


@refused(CHANGES)
def list_that_grows() -> Scene:
    seen: list[Tensor] = []

    def work(x: Tensor) -> Tensor:
        seen.append(x)
        return x * 2

    return Scene(work, watch=lambda: len(seen))


@refused(CHANGES)
def deque_that_turns() -> Scene:
    from collections import deque

    factors = deque([1.0, 2.0, 3.0])

    def work(x: Tensor) -> Tensor:
        factors.rotate(1)
        return x * factors[0]

    return Scene(work, watch=lambda: list(factors))


@refused("computed outside torch's operators", moves=True)
def iterator_that_moves_on() -> Scene:
    factors = itertools.count()
    return Scene(lambda x: x * next(factors))


@refused("computed outside torch's operators", moves=True)
def generator_that_moves_on() -> Scene:
    factors = (float(i) for i in range(100))
    return Scene(lambda x: x * next(factors))


@refused(CHANGES)
def attribute_bound_to_a_new_tensor() -> Scene:
    class Keeps(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            self.last = x * 2
            return self.last + 1

    module = Keeps()
    return Scene(module, watch=lambda: getattr(module, "last", None))


@refused("cannot capture")
def global_that_is_counted() -> Scene:
    global COUNT
    COUNT = 0

    def work(x: Tensor) -> Tensor:
        global COUNT
        COUNT += 1
        return x * COUNT

    return Scene(work, watch=lambda: COUNT)


COUNT = 0


@refused("cannot capture")
def nonlocal_that_is_counted() -> Scene:
    n = 0

    def work(x: Tensor) -> Tensor:
        nonlocal n
        n += 1
        return x * n

    return Scene(work, watch=lambda: n)


@refused("cannot capture")
def class_attribute_that_is_counted() -> Scene:
    class Scale:
        n = 0

    def work(x: Tensor) -> Tensor:
        Scale.n += 1
        return x * Scale.n

    return Scene(work, watch=lambda: Scale.n)


@refused("cannot capture")
def function_attribute_that_is_counted() -> Scene:
    def work(x: Tensor) -> Tensor:
        work.n += 1
        return x * work.n

    work.n = 0
    return Scene(work, watch=lambda: work.n)


@refused("cannot capture")
def slots_that_are_counted() -> Scene:
    class Slots:
        __slots__ = ("n",)

    slots = Slots()
    slots.n = 0

    def work(x: Tensor) -> Tensor:
        slots.n += 1
        return x * slots.n

    return Scene(work, watch=lambda: slots.n)


@refused("cannot capture")
def default_that_is_written() -> Scene:
    def work(x: Tensor, seen: list[int] = []) -> Tensor:  # noqa: B006
        seen.append(1)
        return x * len(seen)

    work.__defaults__ = ([],)
    return Scene(work, watch=lambda: len(work.__defaults__[0]))


@refused("cannot capture")
def array_of_numpy_that_counts() -> Scene:
    count = np.zeros(1)

    def work(x: Tensor) -> Tensor:
        count[0] += 1
        return x * float(count[0])

    return Scene(work, watch=lambda: count.copy())


@refused("cannot capture")
def dataclass_that_counts() -> Scene:
    @dataclass
    class State:
        n: int = 0

    state = State()

    def work(x: Tensor) -> Tensor:
        state.n += 1
        return x * state.n

    return Scene(work, watch=lambda: state.n)


@refused("cannot capture")
def every_third_call_is_another() -> Scene:
    calls = [0]

    def work(x: Tensor) -> Tensor:
        calls[0] += 1
        return x.exp() if calls[0] % 3 == 0 else x.neg()

    return Scene(work, watch=lambda: calls[0])


@right(replayed=0)
def cache_that_is_filled_once() -> Scene:
    cache: dict[str, Tensor] = {}

    def work(x: Tensor) -> Tensor:
        if "mask" not in cache:
            cache["mask"] = torch.ones(4).cumsum(0)
        return x * cache["mask"]

    return Scene(work)  # who replays does not fill it


@right(recorded=1)
def lru_cache_of_a_tensor() -> Scene:
    @functools.lru_cache
    def table(n: int) -> Tensor:
        return torch.arange(float(n))

    return Scene(lambda x: x * table(x.shape[-1]))


@refused("computed outside torch's operators", moves=True)
def clock_as_a_factor(x: Tensor) -> Tensor:
    return x * (time.perf_counter_ns() % 100_003)


@refused("random numbers of Python")
def random_numbers_of_python() -> Scene:
    random.seed(0)
    return Scene(lambda x: x * random.random())


@refused("random numbers of Python")
def own_random_numbers_of_python() -> Scene:
    source = random.Random(0)
    return Scene(lambda x: x * source.random())


@refused("random numbers of Python")
def choice_of_python() -> Scene:
    random.seed(0)
    return Scene(lambda x: x * random.choice([1, 2, 3, 4, 5, 6, 7]))


@refused("random numbers of numpy")
def random_numbers_of_numpy() -> Scene:
    np.random.seed(0)
    return Scene(lambda x: x * np.random.rand())


@refused("random numbers of numpy")
def own_random_numbers_of_numpy() -> Scene:
    source = np.random.default_rng(0)
    return Scene(lambda x: x * float(source.random()))


@right(recorded=3)
def environment_as_a_factor() -> Scene:
    os.environ["HOSTILE"] = "1"

    def disturb(_: int) -> None:
        os.environ["HOSTILE"] += "1"

    return Scene(
        lambda x: x * int(os.environ["HOSTILE"]),
        disturb=disturb,
        undo=lambda: os.environ.pop("HOSTILE"),
    )


@frozen("open")
def file_as_a_factor() -> Scene:
    import tempfile

    file = tempfile.NamedTemporaryFile("w+", delete=False)  # noqa: SIM115  (open until undo)
    file.write("1")
    file.flush()

    def work(x: Tensor) -> Tensor:
        with open(file.name) as opened:
            return x * len(opened.read())

    def disturb(_: int) -> None:
        file.write("1")
        file.flush()

    return Scene(work, disturb=disturb, undo=lambda: (file.close(), os.unlink(file.name)))


# Random numbers of torch


@right(recorded=1)
def dropout_in_training() -> Any:
    return nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)).train()


@right(recorded=1)
def random_numbers(x: Tensor) -> Tensor:
    return x + torch.rand_like(x) + torch.randn(4) + torch.bernoulli(x.sigmoid())


@right(recorded=1)
def seed_between_calls() -> Scene:
    return Scene(lambda x: x + torch.rand(4), disturb=lambda step: torch.manual_seed(step))


@right(recorded=1)
def generator_of_its_own() -> Scene:
    source = torch.Generator().manual_seed(3)
    return Scene(
        lambda x: x + torch.rand(4, generator=source),
        disturb=lambda step: source.manual_seed(step),
        watch=lambda: source.get_state(),
    )


@right()
def generator_that_is_replaced() -> Scene:
    holder = types.SimpleNamespace(source=torch.Generator().manual_seed(3))

    def disturb(step: int) -> None:
        holder.source = torch.Generator().manual_seed(step)

    return Scene(
        lambda x: x + torch.rand(4, generator=holder.source),
        disturb=disturb,
        watch=lambda: holder.source.get_state(),
    )


@right(recorded=1)
def generator_as_an_argument() -> Scene:
    source = torch.Generator().manual_seed(3)
    return Scene(
        lambda x, generator: x + torch.rand(4, generator=generator),
        lambda seed: Given(args=one(seed), kwargs={"generator": source}),
        watch=lambda: source.get_state(),
    )


@right()
def another_generator_as_an_argument() -> Scene:
    return Scene(
        lambda x, generator: x + torch.rand(4, generator=generator),
        lambda seed: Given(args=(*one(seed), torch.Generator().manual_seed(seed))),
    )


@refused("cannot capture")
def seed_inside(x: Tensor) -> Tensor:
    torch.manual_seed(5)
    return x + torch.rand(4)


@refused("cannot capture")
def random_state_that_is_kept_inside(x: Tensor) -> Tensor:
    with torch.random.fork_rng(devices=[]):
        y = x + torch.rand(4)
    return y + torch.rand(4)


@refused("cannot capture")
def random_permutation_as_a_list(x: Tensor) -> Tensor:
    return x[torch.randperm(3).tolist()]


@refused("changes from call to call")
def random_number_as_a_branch(x: Tensor) -> Tensor:
    return x.exp() if torch.rand(()) > 0.5 else x


@frozen("Generator.initial_seed")
def initial_seed_as_a_factor() -> Scene:
    return Scene(lambda x: x * torch.initial_seed(), disturb=lambda step: torch.manual_seed(step))


# Weights and modules that change between calls


def linear() -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 4)
    ).eval()


def _on_linear(change: Callable[[nn.Sequential, int], object]) -> Callable[[], Scene]:
    def make() -> Scene:
        module = linear()
        return Scene(module, disturb=lambda step: change(module, step))

    make.__name__ = change.__name__
    return make


def changed(**options: Any) -> Callable[[Callable[[Any, int], object]], Any]:
    """A change to a small network between two calls."""

    def enter(change: Callable[[Any, int], object]) -> Any:
        right(**options)(_on_linear(change))
        return change

    return enter


@changed(recorded=1)
def weight_written_in_place(module: Any, step: int) -> None:
    with torch.no_grad():
        module[0].weight.add_(step + 1)


@changed()
def weight_given_other_data(module: Any, step: int) -> None:
    module[0].weight.data = normal(4, 4, seed=40 + step)


@changed()
def weight_replaced(module: Any, step: int) -> None:
    module[0].weight = nn.Parameter(normal(4, 4, seed=40 + step))


@changed(recorded=1)
def weights_loaded(module: Any, step: int) -> None:
    module.load_state_dict({k: v + 1 + step for k, v in module.state_dict().items()})


@changed()
def weights_assigned(module: Any, step: int) -> None:
    module.load_state_dict({k: v + 1 + step for k, v in module.state_dict().items()}, assign=True)


@changed()
def weights_tied(module: Any, step: int) -> None:
    module[3].weight = module[0].weight if step == 0 else nn.Parameter(torch.ones(4, 4))


@changed()
def bias_removed(module: Any, step: int) -> None:
    module[step * 3].bias = None


@changed()
def buffer_replaced(module: Any, step: int) -> None:
    module[1].running_mean = torch.full((4,), step + 1.0)


@changed()
def training_toggled(module: Any, step: int) -> None:
    module.train(step == 0)


@changed()
def training_of_a_part_toggled(module: Any, step: int) -> None:
    module[1 + step].train()


@changed()
def training_set_by_hand(module: Any, step: int) -> None:
    module[2].training = step == 0


@changed()
def gradients_toggled(module: Any, step: int) -> None:
    module[0].weight.requires_grad_(step == 1)


@changed()
def part_replaced(module: Any, step: int) -> None:
    module[2] = nn.ReLU() if step == 0 else nn.Tanh()


@changed()
def part_added(module: Any, step: int) -> None:
    module.append(nn.ReLU())


@changed()
def part_removed(module: Any, step: int) -> None:
    del module[-1]


@changed()
def parts_reversed(module: Any, step: int) -> None:
    module._modules = OrderedDict(
        zip("0123", reversed(list(module._modules.values())), strict=True)
    )


@changed()
def number_of_a_part_changed(module: Any, step: int) -> None:
    module[1].eps = 0.5 + step


@changed()
def forward_replaced(module: Any, step: int) -> None:
    module[2].forward = lambda x: x * (step + 2)


@changed()
def forward_of_the_whole_replaced(module: Any, step: int) -> None:
    module.forward = lambda x: x * (step + 2)


@changed()
def hook_added(module: Any, step: int) -> None:
    module[0].register_forward_hook(lambda m, a, y: y * (step + 2))


@changed()
def pre_hook_added(module: Any, step: int) -> None:
    module[0].register_forward_pre_hook(lambda m, a: (a[0] * (step + 2),))


@changed()
def hook_added_to_the_whole(module: Any, step: int) -> None:
    module.register_forward_hook(lambda m, a, y: y * (step + 2))


@changed()
def class_of_a_part_replaced(module: Any, step: int) -> None:
    class Other(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            return super().forward(input) * (step + 2)

    module[0].__class__ = Other


@changed()
def parametrized_later(module: Any, step: int) -> None:
    class Double(nn.Module):
        def forward(self, w: Tensor) -> Tensor:
            return w * 2

    nn.utils.parametrize.register_parametrization(module[0], "weight", Double())


@changed()
def normed_later(module: Any, step: int) -> None:
    nn.utils.parametrizations.weight_norm(module[step * 3])


@changed()
def layout_changed(module: Any, step: int) -> None:
    module[0].weight.data = module[0].weight.data.t().contiguous().t()


@changed()
def weight_cut_off(module: Any, step: int) -> None:
    module[0].weight.data = module[0].weight.data[:, torch.tensor([1, 0, 2, 3])]


@right(recorded=3)
def module_to_double() -> Scene:
    module = linear()
    kind = {"dtype": torch.float32}

    def disturb(step: int) -> None:
        kind["dtype"] = (torch.float64, torch.bfloat16)[step]
        module.to(kind["dtype"])

    return Scene(module, lambda seed: (one(seed)[0].to(kind["dtype"]),), disturb)


@right()
def hook_removed() -> Scene:
    module = linear()
    handles = [module[i].register_forward_hook(lambda m, a, y: y * 3) for i in (0, 3)]
    return Scene(module, disturb=lambda step: handles[step].remove())


@right()
def global_hook() -> Scene:
    module = linear()
    handles: list[Any] = []

    def disturb(step: int) -> None:
        if step:
            handles.pop().remove()
        else:
            hook = torch.nn.modules.module.register_module_forward_hook
            handles.append(hook(lambda m, a, y: y * 2))

    return Scene(module, disturb=disturb, undo=lambda: [handle.remove() for handle in handles])


@right()
def global_pre_hook() -> Scene:
    module = linear()
    handles: list[Any] = []

    def disturb(step: int) -> None:
        hook = torch.nn.modules.module.register_module_forward_pre_hook
        handles.append(hook(lambda m, a: (a[0] * 2,)))

    return Scene(module, disturb=disturb, undo=lambda: [handle.remove() for handle in handles])


@right(recorded=1)
def weight_norm() -> Any:
    return nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))


@right(recorded=1)
def spectral_norm_in_training() -> Scene:
    module = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4)).train()
    return Scene(module)


@refused(CHANGES)
def old_spectral_norm_in_training() -> Any:
    return nn.utils.spectral_norm(nn.Linear(4, 4)).train()


@right(recorded=1)
def batch_norm_in_training() -> Any:
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).train()


@right(recorded=1)
def batch_norm_with_a_cumulative_mean() -> Any:
    # Its factor is a number that Python computes of a counter, so it may be refused, but not wrong.
    return nn.BatchNorm1d(4, momentum=0.1).train()


@refused(DEPENDS)
def batch_norm_without_momentum() -> Any:
    return nn.BatchNorm1d(4, momentum=None).train()


@right(recorded=1)
def lstm() -> Any:
    return nn.LSTM(4, 4, num_layers=2, batch_first=True)


@right()
def lstm_whose_weight_is_replaced() -> Scene:
    module = nn.LSTM(4, 4)

    def disturb(step: int) -> None:
        module.weight_hh_l0 = nn.Parameter(normal(16, 4, seed=60 + step))

    return Scene(module, disturb=disturb)


@right(recorded=1)
def gru_with_dropout() -> Any:
    return nn.GRU(4, 4, num_layers=2, dropout=0.5).train()


@right(recorded=1)
def embedding_with_a_largest_norm() -> Scene:
    return Scene(nn.Embedding(9, 4, max_norm=0.5), lambda seed: (torch.arange(3) * (seed % 3 + 1),))


@right(recorded=1)
def transformer_in_evaluation() -> Scene:
    module = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval()
    return Scene(module, lambda seed: (normal(2, 3, 4, seed=seed),))


@right(recorded=1, marks=(pytest.mark.filterwarnings("ignore"),))
def quantized_layer() -> Any:
    return torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(4, 4)), {nn.Linear})


@right(recorded=1)
def moving_average_of_weights() -> Scene:
    module, shadow = nn.Linear(4, 4), nn.Linear(4, 4)

    def work(x: Tensor) -> Tensor:
        for mine, theirs in zip(shadow.parameters(), module.parameters(), strict=True):
            mine.mul_(0.9).add_(theirs, alpha=0.1)
        return shadow(x)

    return Scene(work, watch=lambda: list(shadow.parameters()))


@right(recorded=1)
def buffer_that_counts() -> Scene:
    module = nn.Module()
    module.register_buffer("n", torch.zeros(()))
    module.forward = lambda x: x * module.n.add_(1)
    return Scene(module)


@right(recorded=1)
def functional_call() -> Scene:
    module = nn.Linear(4, 4)

    def work(x: Tensor, weight: Tensor) -> Tensor:
        return torch.func.functional_call(module, {"weight": weight}, (x,))

    return Scene(work, lambda seed: (normal(3, 4, seed=seed), normal(4, 4, seed=seed + 9)))


@refused("was not made by an operator call")
def vectorized_map() -> Scene:
    return Scene(lambda x: torch.func.vmap(lambda row: row.exp().sum())(x))


@right(recorded=1)
def captured_as_a_part() -> Scene:
    module = nn.Linear(4, 4)
    with torch.no_grad():
        inner = ftax.capture(module, one(9))
    return Scene(lambda x: inner(x) * 2)


# Names that code reads and somebody changes


FACTOR = 1.0
OTHER = types.SimpleNamespace(factor=1.0)
OUTSIDE = types.ModuleType("hostile_outside")
OUTSIDE.factor = 1.0
OUTSIDE.scale = lambda x: x * 2


@right()
def global_number() -> Scene:
    global FACTOR
    FACTOR = 1.0

    def disturb(step: int) -> None:
        global FACTOR
        FACTOR = step + 2.0

    return Scene(lambda x: x * FACTOR, disturb=disturb)


@right()
def sign_of_a_global_zero() -> Scene:
    global FACTOR
    FACTOR = 0.0

    def disturb(step: int) -> None:
        global FACTOR
        FACTOR = (-0.0, float("nan"))[step]

    return Scene(lambda x: x.abs() * FACTOR, disturb=disturb)


def _helper(x: Tensor) -> Tensor:
    return x * 2


@right()
def global_function_replaced() -> Scene:
    def disturb(step: int) -> None:
        globals()["_helper"] = lambda x: x * (step + 3)

    before = _helper
    return Scene(
        lambda x: _helper(x), disturb=disturb, undo=lambda: globals().update(_helper=before)
    )


@right()
def number_of_an_imported_module() -> Scene:
    OUTSIDE.factor = 1.0
    return Scene(
        lambda x: x * OUTSIDE.factor,
        disturb=lambda step: setattr(OUTSIDE, "factor", step + 2.0),
    )


@right()
def function_of_an_imported_module() -> Scene:
    OUTSIDE.scale = lambda x: x * 2
    return Scene(
        lambda x: OUTSIDE.scale(x),
        disturb=lambda step: setattr(OUTSIDE, "scale", lambda x: x * (step + 3)),
    )


@right()
def function_that_is_typed_in_again() -> Scene:
    space: dict[str, Any] = {"__name__": "__main__"}

    def enter(text: str) -> None:
        exec(compile(text, "<stdin>", "single"), space)

    enter("def helper(x): return x * 2\n")
    enter("def work(x): return helper(x)\n")
    return Scene(
        space["work"], disturb=lambda step: enter(f"def helper(x): return x * {step + 3}\n")
    )


@right()
def number_that_is_typed_in_again() -> Scene:
    space: dict[str, Any] = {"__name__": "__main__"}

    def enter(text: str) -> None:
        exec(compile(text, "<stdin>", "single"), space)

    enter("def work(x): return x * getattr(options, names[0]) * FACTOR\n")
    enter("import types; options = types.SimpleNamespace(a=1.0); names = ['a']; FACTOR = 2.0\n")

    def disturb(step: int) -> None:
        enter(("options.a = 3.0\n", "FACTOR = 5.0\n")[step])

    return Scene(space["work"], disturb=disturb)


@right()
def code_of_a_function_replaced() -> Scene:
    def inner(x: Tensor) -> Tensor:
        return x * 2

    def disturb(step: int) -> None:
        inner.__code__ = ((lambda x: x * 5), (lambda x: x * 7))[step].__code__

    return Scene(lambda x: inner(x), disturb=disturb)


@right()
def default_replaced() -> Scene:
    def inner(x: Tensor, factor: float = 2.0) -> Tensor:
        return x * factor

    def disturb(step: int) -> None:
        inner.__defaults__ = (step + 3.0,)

    return Scene(lambda x: inner(x), disturb=disturb)


@right()
def keyword_default_replaced() -> Scene:
    def inner(x: Tensor, *, factor: float = 2.0) -> Tensor:
        return x * factor

    def disturb(step: int) -> None:
        inner.__kwdefaults__ = {"factor": step + 3.0}

    return Scene(inner, disturb=disturb)


@right()
def closure_over_a_number() -> Scene:
    factor = 1.0

    def disturb(step: int) -> None:
        nonlocal factor
        factor = step + 2.0

    return Scene(lambda x: x * factor, disturb=disturb)


@right()
def closure_over_a_list() -> Scene:
    factors = [1.0]
    return Scene(lambda x: x * sum(factors), disturb=lambda step: factors.append(step + 2.0))


@right()
def closure_over_nested_containers() -> Scene:
    tree: Any = {"a": [{"b": (1.0, [2.0])}]}

    def disturb(step: int) -> None:
        tree["a"][0]["b"][1][0] = step + 3.0

    return Scene(lambda x: x * tree["a"][0]["b"][1][0], disturb=disturb)


@right()
def closure_over_a_set() -> Scene:
    names = {"a"}
    return Scene(lambda x: x * len(names), disturb=lambda step: names.add(step))


@right()
def closure_over_a_tensor_replaced() -> Scene:
    tensors = [normal(4, seed=50)]

    def disturb(step: int) -> None:
        tensors[0] = normal(4, seed=51 + step)

    return Scene(lambda x: x * tensors[0], disturb=disturb)


@right()
def class_attribute() -> Scene:
    class Scaled(nn.Module):
        factor = 2.0

        def forward(self, x: Tensor) -> Tensor:
            return x * self.factor

    return Scene(Scaled(), disturb=lambda step: setattr(Scaled, "factor", step + 3.0))


@right()
def class_attribute_hidden_by_the_instance() -> Scene:
    class Scaled(nn.Module):
        factor = 2.0

        def forward(self, x: Tensor) -> Tensor:
            return x * self.factor

    module = Scaled()
    return Scene(module, disturb=lambda step: setattr(module, "factor", step + 3.0))


@right()
def class_attribute_by_its_name() -> Scene:
    class Options:
        factor = 2.0

    return Scene(
        lambda x: x * Options.factor, disturb=lambda step: setattr(Options, "factor", step + 3.0)
    )


@right()
def class_attribute_of_a_base() -> Scene:
    class Base:
        factor = 2.0

    class Options(Base):
        pass

    return Scene(
        lambda x: x * Options().factor, disturb=lambda step: setattr(Base, "factor", step + 3.0)
    )


@right()
def method_of_the_class_replaced() -> Scene:
    class Scaled(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return self.scale(x)

        def scale(self, x: Tensor) -> Tensor:
            return x * 2

    return Scene(
        Scaled(), disturb=lambda step: setattr(Scaled, "scale", lambda self, x: x * (step + 3))
    )


@right()
def forward_of_the_class_replaced() -> Scene:
    class Scaled(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * 2

    return Scene(
        Scaled(), disturb=lambda step: setattr(Scaled, "forward", lambda self, x: x * (step + 3))
    )


@right()
def static_method_replaced() -> Scene:
    class Scaled:
        @staticmethod
        def scale(x: Tensor) -> Tensor:
            return x * 2

    def disturb(step: int) -> None:
        Scaled.scale = staticmethod(lambda x: x * (step + 3))

    return Scene(lambda x: Scaled.scale(x), disturb=disturb)


@right()
def method_of_the_instance_replaced() -> Scene:
    class Scaled(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return self.scale(x)

        def scale(self, x: Tensor) -> Tensor:
            return x * 2

    module = Scaled()
    return Scene(module, disturb=lambda step: setattr(module, "scale", lambda x: x * (step + 3)))


@right()
def property_of_an_attribute() -> Scene:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base = 1.0

        @property
        def factor(self) -> float:
            return self.base * 2

        def forward(self, x: Tensor) -> Tensor:
            return x * self.factor

    module = Scaled()
    return Scene(module, disturb=lambda step: setattr(module, "base", step + 3.0))


@right()
def attribute_by_getattr() -> Scene:
    class Lazy:
        def __init__(self) -> None:
            self.hidden = {"factor": 2.0}

        def __getattr__(self, name: str) -> Any:
            return self.hidden[name]

    lazy = Lazy()

    def disturb(step: int) -> None:
        lazy.hidden["factor"] = step + 3.0

    return Scene(lambda x: x * lazy.factor, disturb=disturb)


@right()
def attribute_by_a_made_up_name() -> Scene:
    holder = types.SimpleNamespace(a1=1.0, a2=2.0)
    return Scene(
        lambda x: x * getattr(holder, f"a{x.dim()}"),
        disturb=lambda step: setattr(holder, "a2", step + 3.0),
    )


@right()
def attribute_by_a_name_in_a_list() -> Scene:
    holder = types.SimpleNamespace(factor=1.0)
    names = ["factor"]

    def work(x: Tensor) -> Tensor:
        note = "another text"
        return x * getattr(holder, names[0]) + len(note)

    return Scene(work, disturb=lambda step: setattr(holder, "factor", step + 3.0))


@right()
def bound_method_of_a_dictionary() -> Scene:
    config = {"factor": 2.0}
    get = config.get
    return Scene(lambda x: x * get("factor"), disturb=lambda s: config.update(factor=s + 3.0))


@right(recorded=1)
def attributes_that_nobody_reads() -> Scene:
    module = linear()
    module.note = "a"

    def disturb(step: int) -> None:
        module.note += "a"
        module[0].other = step

    return Scene(module, disturb=disturb)


@right(recorded=1)
def module_of_the_user_that_grows() -> Scene:
    def disturb(step: int) -> None:
        globals()[f"HOSTILE_{step}"] = step
        OUTSIDE.other = step

    return Scene(
        lambda x: x * OUTSIDE.factor,
        disturb=disturb,
        undo=lambda: [globals().pop(f"HOSTILE_{step}", None) for step in range(2)],
    )


@right()
def named_tuple_that_is_replaced() -> Scene:
    holder = {"pair": Pair(2.0, [1.0])}

    def disturb(step: int) -> None:
        if step:
            holder["pair"].right[0] = 4.0
        else:
            holder["pair"] = Pair(3.0, [1.0])

    return Scene(lambda x: x * holder["pair"].left + holder["pair"].right[0], disturb=disturb)


@right()
def lazily_made_mask() -> Scene:
    class Masks(nn.Module):
        mask: Tensor | None = None

        def forward(self, x: Tensor) -> Tensor:
            if self.mask is None or self.mask.shape[0] < x.shape[0]:
                self.mask = torch.ones(x.shape[0], 4).tril()
            return x * self.mask[: x.shape[0]]

    return Scene(Masks(), lambda seed: (normal((3, 3, 2, 2, 5, 5)[seed], 4, seed=seed),))


@right()
def descriptor_of_the_user() -> Scene:
    class Doubled:
        def __init__(self) -> None:
            self.by = 2.0

        def __get__(self, owner: Any, kind: Any = None) -> float:
            return self.by * 2

    doubled = Doubled()

    class Scaled(nn.Module):
        factor = doubled

        def forward(self, x: Tensor) -> Tensor:
            return x * self.factor

    return Scene(Scaled(), disturb=lambda step: setattr(doubled, "by", step + 3.0))


@right()
def hash_of_a_set_of_numbers() -> Scene:
    factors = {2.0, 3.0}
    return Scene(
        lambda x: x * sum(factors), disturb=lambda s: (factors.discard(3.0), factors.add(5.0 + s))
    )


@right()
def true_replaced_by_one_in_a_set() -> Scene:
    factors: set[Any] = {True}

    def disturb(step: int) -> None:
        factors.clear()
        factors.add((1, 1.0)[step])

    return Scene(
        lambda x: x * (5 if next(iter(factors)) is True else 3),
        disturb=disturb,
    )


@right()
def options_of_a_command_line() -> Scene:
    import argparse

    options = argparse.Namespace(factor=2.0)
    return Scene(
        lambda x: x * options.factor, disturb=lambda step: setattr(options, "factor", step + 3.0)
    )


@right()
def global_by_a_name_in_a_text() -> Scene:
    global FACTOR
    FACTOR = 1.0

    def disturb(step: int) -> None:
        global FACTOR
        FACTOR = step + 2.0

    return Scene(lambda x: x * globals()["FACTOR"], disturb=disturb)


@right()
def module_inside_of_a_plain_object() -> Scene:
    holder = types.SimpleNamespace(net=nn.Linear(4, 4))

    def disturb(step: int) -> None:
        holder.net = nn.Linear(4, 4)

    return Scene(lambda x: holder.net(x), disturb=disturb)


@right()
def attribute_of_a_dictionary() -> Scene:
    holder = types.SimpleNamespace(factor=2.0)
    return Scene(
        lambda x: x * sum(vars(holder).values()),
        disturb=lambda step: setattr(holder, "factor", step + 3.0),
    )


@right()
def attribute_by_attrgetter() -> Scene:
    import operator

    holder = types.SimpleNamespace(inner=types.SimpleNamespace(factor=2.0))
    get = operator.attrgetter("inner.factor")
    return Scene(
        lambda x: x * get(holder), disturb=lambda step: setattr(holder.inner, "factor", step + 3.0)
    )


@right()
def slot_that_changes() -> Scene:
    class Slots:
        __slots__ = ("factor",)

    slots = Slots()
    slots.factor = 2.0
    return Scene(
        lambda x: x * slots.factor, disturb=lambda step: setattr(slots, "factor", step + 3.0)
    )


@right()
def slot_that_is_filled_later() -> Scene:
    class Slots:
        __slots__ = ("factor",)

    slots = Slots()
    return Scene(
        lambda x: x * getattr(slots, "factor", 1.0),
        disturb=lambda step: setattr(slots, "factor", step + 3.0),
    )


@right()
def attribute_that_appears() -> Scene:
    holder = types.SimpleNamespace()
    return Scene(
        lambda x: x * getattr(holder, "factor", 1.0),
        disturb=lambda step: setattr(holder, "factor", step + 3.0),
    )


@right()
def global_that_appears() -> Scene:
    def work(x: Tensor) -> Tensor:
        try:
            return x * HOSTILE_LATER
        except NameError:
            return x

    def disturb(step: int) -> None:
        globals()["HOSTILE_LATER"] = step + 3.0

    return Scene(work, disturb=disturb, undo=lambda: globals().pop("HOSTILE_LATER", None))


@right()
def builtin_that_is_hidden() -> Scene:
    def disturb(step: int) -> None:
        globals()["abs"] = lambda x: x * (step + 3)

    return Scene(lambda x: abs(x), disturb=disturb, undo=lambda: globals().pop("abs", None))


@right()
def partial_of_a_list() -> Scene:
    factors = [2.0]

    def scale(by: list[float], x: Tensor) -> Tensor:
        return x * by[0]

    def disturb(step: int) -> None:
        factors[0] = step + 3.0

    return Scene(functools.partial(scale, factors), disturb=disturb)


@right()
def bound_method() -> Scene:
    class Scaled:
        factor = 2.0

        def scale(self, x: Tensor) -> Tensor:
            return x * self.factor

    scaled = Scaled()
    return Scene(scaled.scale, disturb=lambda step: setattr(scaled, "factor", step + 3.0))


@right()
def object_that_is_called() -> Scene:
    class Scaled:
        def __init__(self) -> None:
            self.factor = 2.0

        def __call__(self, x: Tensor) -> Tensor:
            return x * self.factor

    scaled = Scaled()
    return Scene(scaled, disturb=lambda step: setattr(scaled, "factor", step + 3.0))


@right()
def decorated_function() -> Scene:
    holder = {"factor": 2.0}

    def scaled(function: Any) -> Any:
        @functools.wraps(function)
        def inner(*args: Any) -> Any:
            return function(*args) * holder["factor"]

        return inner

    @scaled
    def work(x: Tensor) -> Tensor:
        return x + 1

    return Scene(work, disturb=lambda step: holder.update(factor=step + 3.0))


@frozen("a _lru_cache_wrapper")
def lru_cache_that_is_cleared() -> Scene:
    holder = {"factor": 2.0}

    @functools.lru_cache
    def factor() -> float:
        return holder["factor"]

    def disturb(step: int) -> None:
        holder["factor"] = step + 3.0
        factor.cache_clear()

    return Scene(lambda x: x * factor(), disturb=disturb)


@right()
def cached_property() -> Scene:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base = 2.0

        @functools.cached_property
        def factor(self) -> float:
            return self.base * 2

        def forward(self, x: Tensor) -> Tensor:
            return x * self.factor

    module = Scaled()
    _ = module.factor

    def disturb(step: int) -> None:
        module.base = step + 3.0
        del module.factor
        _ = module.factor

    return Scene(module, disturb=disturb)


@right()
def enum_that_changes() -> Scene:
    class Kind(enum.Enum):
        A = 1
        B = 2

    holder = types.SimpleNamespace(kind=Kind.A)
    return Scene(
        lambda x: x.exp() if holder.kind is Kind.A else x.neg(),
        disturb=lambda step: setattr(holder, "kind", (Kind.B, Kind.A)[step]),
    )


@right()
def flags_of_integers() -> Scene:
    class Factor(enum.IntEnum):
        TWO = 2
        THREE = 3

    holder = types.SimpleNamespace(factor=Factor.TWO)
    return Scene(
        lambda x: x * holder.factor,
        disturb=lambda step: setattr(holder, "factor", (Factor.THREE, Factor.TWO)[step]),
    )


@right(recorded=3)
def array_of_numpy_that_changes() -> Scene:
    module = nn.Linear(4, 4)
    module.factor = np.ones(4, dtype=np.float32)
    module.forward = lambda x: x * torch.tensor(module.factor)

    def disturb(step: int) -> None:
        module.factor[0] = step + 3

    return Scene(module, disturb=disturb)


@right()
def array_of_numpy_that_is_replaced() -> Scene:
    module = nn.Linear(4, 4)
    module.factor = np.ones(4, dtype=np.float32)
    module.forward = lambda x: x * torch.tensor(module.factor)
    return Scene(
        module,
        disturb=lambda step: setattr(module, "factor", np.full(4, step + 3, dtype=np.float32)),
    )


@right()
def array_of_one_number() -> Scene:
    holder = {"factor": np.array(2.0)}

    def disturb(step: int) -> None:
        holder["factor"][...] = step + 3.0

    return Scene(lambda x: x * float(holder["factor"]), disturb=disturb)


@frozen("the 10,000 items of table")
def large_array_that_changes() -> Scene:
    table = np.full((10, 1000), 2.0)

    def disturb(step: int) -> None:
        table[3, 7] = step + 3.0

    return Scene(lambda x: x * float(table[3, 7]), disturb=disturb)


@right()
def number_of_numpy() -> Scene:
    holder = {"factor": np.float64(2.0)}
    return Scene(
        lambda x: x * holder["factor"], disturb=lambda s: holder.update(factor=np.float64(s + 3))
    )


@right(recorded=1)
def array_that_a_tensor_shares() -> Scene:
    array = np.ones(4, dtype=np.float32)
    tensor = torch.from_numpy(array)

    def disturb(step: int) -> None:
        array[0] = step + 3

    return Scene(lambda x: x * tensor, disturb=disturb)


@right()
def bytearray_that_changes() -> Scene:
    data = bytearray(b"a")
    return Scene(lambda x: x * len(data), disturb=lambda step: data.extend(b"b"))


@frozen("a ReferenceType")
def weak_reference() -> Scene:
    class Holder:
        factor = 2.0

    holder = Holder()
    reference = weakref.ref(holder)

    def disturb(step: int) -> None:
        holder.factor = step + 3.0

    return Scene(lambda x: x * reference().factor, disturb=disturb)


@frozen("a ContextVar")
def context_variable() -> Scene:
    import contextvars

    variable = contextvars.ContextVar("hostile", default=2.0)
    return Scene(lambda x: x * variable.get(), disturb=lambda step: variable.set(step + 3.0))


@frozen("a _local")
def thread_local() -> Scene:
    import threading

    local = threading.local()
    local.factor = 2.0
    return Scene(
        lambda x: x * local.factor, disturb=lambda step: setattr(local, "factor", step + 3.0)
    )


@frozen("the 2,000 items of factors")
def large_list_that_changes() -> Scene:
    factors = [2.0] * 2000

    def disturb(step: int) -> None:
        factors[7] = step + 3.0

    return Scene(lambda x: x * factors[7], disturb=disturb)


@right()
def dictionary_of_a_subclass() -> Scene:
    class Config(dict):  # type: ignore[type-arg]
        def __getattr__(self, name: str) -> Any:
            return self[name]

    config = Config(factor=2.0)
    return Scene(lambda x: x * config.factor, disturb=lambda s: config.update(factor=s + 3.0))


@right()
def list_of_a_subclass_with_an_attribute() -> Scene:
    class Config(list):  # type: ignore[type-arg]
        factor = 2.0

    config = Config([1])
    return Scene(
        lambda x: x * config.factor * config[0],
        disturb=lambda s: setattr(config, "factor", s + 3.0),
    )


@right()
def user_dictionary() -> Scene:
    from collections import UserDict

    config = UserDict(factor=2.0)

    def disturb(step: int) -> None:
        config["factor"] = step + 3.0

    return Scene(lambda x: x * config["factor"], disturb=disturb)


@right()
def chain_of_dictionaries() -> Scene:
    from collections import ChainMap

    inner = {"factor": 2.0}
    config = ChainMap({}, inner)
    return Scene(lambda x: x * config["factor"], disturb=lambda s: inner.update(factor=s + 3.0))


@right()
def deque_that_changes() -> Scene:
    from collections import deque

    factors = deque([2.0])
    return Scene(lambda x: x * sum(factors), disturb=lambda s: factors.append(s + 3.0))


@right()
def counter_of_collections() -> Scene:
    from collections import Counter

    counts = Counter("a")
    return Scene(lambda x: x * counts["a"], disturb=lambda s: counts.update("a"))


@right()
def proxy_of_a_dictionary() -> Scene:
    inner = {"factor": 2.0}
    config = types.MappingProxyType(inner)
    return Scene(lambda x: x * config["factor"], disturb=lambda s: inner.update(factor=s + 3.0))


@right()
def function_with_an_attribute() -> Scene:
    def scale(x: Tensor) -> Tensor:
        return x * scale.factor

    scale.factor = 2.0
    return Scene(lambda x: scale(x), disturb=lambda s: setattr(scale, "factor", s + 3.0))


@frozen("functions and classes of torch")
def module_of_torch_that_is_patched() -> Scene:
    before = F.relu

    def disturb(step: int) -> None:
        F.relu = lambda x: x * (step + 3)

    return Scene(lambda x: F.relu(x), disturb=disturb, undo=lambda: setattr(F, "relu", before))


# Arguments


@right()
def keywords_in_another_order() -> Scene:
    def inputs(seed: int) -> Given:
        pairs = [("x", normal(3, seed=seed)), ("y", normal(3, seed=seed + 9))]
        return Given(kwargs=dict(pairs if seed % 2 else reversed(pairs)))

    return Scene(lambda x, y: x - y, inputs)


@right(recorded=2)
def default_that_is_given() -> Scene:
    def work(x: Tensor, factor: float = 2.0) -> Tensor:
        return x * factor

    return Scene(work, lambda seed: Given(args=(*one(seed), *((3.0,) if seed % 2 else ()))))


Pair = namedtuple("Pair", "left right")


@right(recorded=1)
def nested_arguments() -> Scene:
    return Scene(
        lambda tree: {"sum": tree["a"][0] + tree["b"][1]["c"], "same": [tree["a"]]},
        lambda seed: ({"a": [normal(3, seed=seed)], "b": (1, {"c": normal(3, seed=seed + 9)})},),
    )


@right(replayed=0)  # each is another object, so each call is recorded
def arguments_with_names() -> Scene:
    return Scene(
        lambda pair: pair.left - pair.right,
        lambda seed: (Pair(normal(3, seed=seed), normal(3, seed=seed + 9)),),
    )


@right(recorded=1)
def results_with_names() -> Scene:
    return Scene(lambda x: Pair(x + 1, [x - 1, None, 3]))


@refused("returns a Result")
def result_of_a_dataclass() -> Scene:
    @dataclass
    class Result:
        value: Tensor

    return Scene(lambda x: Result(x + 1))


@right(replayed=0)  # each is another object, so each call is recorded
def argument_of_a_dataclass() -> Scene:
    @dataclass
    class Batch:
        value: Tensor

    return Scene(lambda batch: batch.value * 2, lambda seed: (Batch(*one(seed)),))


@right(replayed=0)  # each is another object, so each call is recorded
def tensor_inside_of_an_argument() -> Scene:
    batch = types.SimpleNamespace(value=normal(3))

    def inputs(seed: int) -> Given:
        batch.value = normal(3, seed=seed)
        return Given(args=(batch,))

    return Scene(lambda b: b.value * 2, inputs)


@right()
def object_as_an_argument() -> Scene:
    options = types.SimpleNamespace(factor=2.0)
    return Scene(
        lambda x, o: x * o.factor,
        lambda seed: Given(args=(*one(seed), options)),
        disturb=lambda step: setattr(options, "factor", step + 3.0),
    )


@right(recorded=1)
def list_of_numbers_as_an_argument() -> Scene:
    return Scene(lambda x, shape: x.reshape(shape), lambda seed: Given(args=(*one(seed), [2, -1])))


def _arguments(*values: Any) -> Callable[[int], Given]:
    return lambda seed: Given(args=(*one(seed), values[seed % len(values)]))


@right(recorded=2)
def signs_of_zero() -> Scene:
    return Scene(lambda x, v: x.abs() * v, _arguments(0.0, -0.0))


@right(recorded=1)
def not_a_number() -> Scene:
    return Scene(lambda x, v: x * v, lambda seed: Given(args=(*one(seed), float("nan"))))


@right(recorded=2)
def true_and_one() -> Scene:
    return Scene(lambda x, v: x * 2 if v is True else x * v, _arguments(True, 1))


@right(recorded=3)
def one_of_three_types() -> Scene:
    return Scene(lambda x, v: torch.full((2,), v), _arguments(1, 1.0, 1 + 0j))


@right(recorded=3)
def none_and_texts() -> Scene:
    return Scene(lambda x, v: x if v is None else getattr(x, v)(), _arguments(None, "exp", "neg"))


@right(recorded=2)
def members_of_an_enum() -> Scene:
    class Kind(enum.Enum):
        A = 1
        B = 2

    return Scene(lambda x, v: x.exp() if v is Kind.A else x.neg(), _arguments(Kind.A, Kind.B))


@right(recorded=2)
def dtypes_as_arguments() -> Scene:
    return Scene(lambda x, v: x.to(v), _arguments(torch.float64, torch.int32))


@right(recorded=2)
def slices_as_arguments() -> Scene:
    return Scene(lambda x, v: x[v] * 2, _arguments(slice(0, 1), slice(1, 3)))


@right()
def functions_as_arguments() -> Scene:
    return Scene(lambda x, v: v(x), _arguments(torch.exp, torch.neg))


@right(recorded=2)
def dictionary_whose_order_matters() -> Scene:
    def inputs(seed: int) -> Given:
        pairs = [("a", normal(3, seed=seed)), ("b", normal(3, seed=seed + 9))]
        return Given(args=(dict(pairs if seed % 2 else reversed(pairs)),))

    return Scene(lambda d: torch.cat(list(d.values())), inputs)


@right(recorded=2)
def keywords_whose_order_matters() -> Scene:
    def inputs(seed: int) -> Given:
        pairs = [("a", normal(3, seed=seed)), ("b", normal(3, seed=seed + 9))]
        return Given(kwargs=dict(pairs if seed % 2 else reversed(pairs)))

    return Scene(lambda **d: torch.cat(list(d.values())), inputs)


@right(recorded=2)
def key_that_is_true_or_one() -> Scene:
    return Scene(
        lambda d: d[1] * (2 if next(iter(d)) is True else 3),
        lambda seed: ({True if seed % 2 else 1: normal(3, seed=seed)},),
    )


@right(recorded=2)
def shapes() -> Scene:
    return Scene(lambda x: x * x.shape[0], lambda seed: (normal(2 + seed % 2, 4, seed=seed),))


@right(recorded=2)
def layouts() -> Scene:
    return Scene(
        lambda x: x * 2,
        lambda seed: (normal(4, 4, seed=seed).t() if seed % 2 else normal(4, 4, seed=seed),),
    )


@right(recorded=2)
def channels_last() -> Scene:
    module = nn.Conv2d(3, 4, 3).eval()

    def inputs(seed: int) -> tuple[Tensor, ...]:
        x = normal(2, 3, 5, 5, seed=seed)
        return (x.to(memory_format=torch.channels_last) if seed % 2 else x,)

    return Scene(module, inputs)


@right(recorded=1)
def expanded() -> Scene:
    return Scene(lambda x: x * 2, lambda seed: (normal(1, 4, seed=seed).expand(3, 4),))


@right()
def strides_of_single_dimensions() -> Scene:
    # What has one channel is contiguous in either layout, and torch chooses that of results.
    def inputs(seed: int) -> tuple[Tensor, ...]:
        x = normal(4, 1, 3, 3, seed=seed)
        return (x.as_strided(x.shape, (9, 1, 3, 1)) if seed % 2 else x,)

    return Scene(lambda x: F.conv2d(x, torch.ones(2, 1, 2, 2)), inputs)


@right(recorded=1)
def no_dimensions_and_no_items() -> Scene:
    return Scene(
        lambda x, y: (x * 2, y.exp(), torch.cat([y, y])),
        lambda seed: (normal(1, seed=seed)[0], normal(0, 3, seed=seed)),
    )


@right(recorded=2)
def types_of_tensors() -> Scene:
    return Scene(
        lambda x: x * 2,
        lambda seed: (normal(3, seed=seed).to((torch.float32, torch.float64)[seed % 2]),),
    )


@refused("disagree on the operators")
def complex_numbers() -> Scene:
    return Scene(
        lambda x: torch.view_as_real(x.conj() * x), lambda seed: (normal(3, 2, seed=seed) * 1j,)
    )


@refused("strided")
def conjugated() -> Scene:
    return Scene(lambda x: x * 2, lambda seed: ((normal(3, seed=seed) * 1j).conj(),))


@refused("conjugated or negated")
def results_that_are_conjugated() -> Scene:
    return Scene(lambda x: (x.conj(), x.imag.neg()), lambda seed: (normal(3, seed=seed) * 1j,))


@refused("strided")
def sparse() -> Scene:
    return Scene(lambda x: x @ torch.ones(4, 2), lambda seed: (one(seed)[0].relu().to_sparse(),))


@refused("strided")
def meta() -> Scene:
    return Scene(lambda x: x * 2, lambda seed: (one(seed)[0].to("meta"),))


@refused("strided")
def subclass() -> Scene:
    class Mine(Tensor):
        pass

    return Scene(lambda x: x * 2, lambda seed: (one(seed)[0].as_subclass(Mine),))


@right()
def parameter_as_an_argument() -> Scene:
    return Scene(lambda x: x * 2, lambda seed: (nn.Parameter(one(seed)[0]),))


@right(recorded=2)
def same_tensor_twice() -> Scene:
    def inputs(seed: int) -> tuple[Tensor, ...]:
        x, y = normal(3, seed=seed), normal(3, seed=seed + 9)
        return (x, x if seed % 2 else y)

    return Scene(lambda x, y: x.add_(1) + y, inputs)


@right(recorded=2)
def arguments_that_overlap() -> Scene:
    def inputs(seed: int) -> tuple[Tensor, ...]:
        x = normal(6, seed=seed)
        return (x[:4], x[2:] if seed % 2 else x[2:].clone())

    return Scene(lambda x, y: x.add_(1) + y, inputs)


@right()
def arguments_that_overlap_elsewhere() -> Scene:
    def inputs(seed: int) -> tuple[Tensor, ...]:
        x = normal(8, seed=seed)
        first = seed % 3
        return (x[:4], x[first : first + 4])

    return Scene(lambda x, y: x.add_(1) + y, inputs)


@right()
def argument_that_is_a_weight() -> Scene:
    weight = normal(3, seed=70)

    def inputs(seed: int) -> tuple[Tensor, ...]:
        return (weight if seed % 2 else normal(3, seed=seed),)

    return Scene(lambda x: x.add_(1) + weight, inputs, watch=lambda: weight)


@right()
def argument_that_is_a_view_of_a_weight() -> Scene:
    weight = normal(3, seed=70)

    def inputs(seed: int) -> tuple[Tensor, ...]:
        return (weight[:] if seed % 2 else normal(3, seed=seed),)

    return Scene(lambda x: weight.add_(1) * x, inputs, watch=lambda: weight)


@right()
def last_result_as_an_argument() -> Scene:
    last = [normal(3, seed=80)]

    def work(x: Tensor) -> Tensor:
        return x * 2 + 1

    def inputs(seed: int) -> tuple[Tensor, ...]:
        last[0] = last[0] * 0.5
        return (last[0],)

    return Scene(work, inputs)


@right(recorded=1)
def misaligned_memory() -> Scene:
    return Scene(
        nn.Linear(4, 4), lambda seed: (normal(13 + 12, seed=seed)[seed % 3 :][:12].view(3, 4),)
    )


@right()
def writes_into_an_argument(x: Tensor) -> Tensor:
    x.mul_(2)
    return x + 1


@right()
def writes_into_a_view_of_an_argument(x: Tensor) -> Tensor:
    x[1].fill_(7)
    x.t()[0] += 1
    return x + 1


@refused("cannot capture")
def resizes_an_argument(x: Tensor) -> Tensor:
    x.resize_(5, 4).fill_(1)
    return x + 1


@refused("cannot capture")
def data_of_an_argument(x: Tensor) -> Tensor:
    x.data = torch.ones(2, 2)
    return x + 1


@refused("on a second input")
def weight_that_becomes_an_argument() -> Scene:
    net = nn.Linear(4, 4)

    def inputs(seed: int) -> tuple[Tensor, ...]:
        return (net.weight if seed % 3 else normal(4, 4, seed=seed),)

    def work(x: Tensor) -> Tensor:
        net.weight.add_(1)
        return net(x)

    return Scene(work, inputs, watch=lambda: net.weight)


@right()
def argument_with_another_gradient_flag() -> Scene:
    return Scene(lambda x: x * 2, lambda seed: (one(seed)[0].requires_grad_(seed % 2 == 1),))


@right()
def inference_tensors_as_arguments() -> Scene:
    def inputs(seed: int) -> tuple[Tensor, ...]:
        with torch.inference_mode(seed % 2 == 1):
            return (one(seed)[0] + 0,)

    return Scene(lambda x: x * 2, inputs)


@right(recorded=1)
def numbers_as_tensors() -> Scene:
    return Scene(lambda x, t: x * t + t, lambda seed: (*one(seed), torch.tensor(seed)))


@right()
def scalars_of_other_types() -> Scene:
    return Scene(
        lambda x, t: x * t, lambda seed: Given(args=(*one(seed), (np.float32(2), 2, 2.0)[seed % 3]))
    )


@right()
def changed_list_as_an_argument() -> Scene:
    sizes = [3, 4]

    def disturb(step: int) -> None:
        sizes[:] = [(12, 1), (2, 6)][step]

    return Scene(
        lambda x, shape: x.reshape(shape) * 1,
        lambda seed: Given(args=(*one(seed), sizes)),
        disturb=disturb,
    )


# Results


@right()
def result_that_is_the_argument(x: Tensor) -> Tensor:
    return x


@right()
def result_that_is_the_written_argument(x: Tensor) -> Tensor:
    return x.add_(1)


@right()
def result_that_is_a_view(x: Tensor) -> Tensor:
    return x[1:].t()


@right()
def results_that_share(x: Tensor) -> Any:
    y = x * 2
    return y, y[0], y, x.view(-1)


@right()
def result_that_is_a_weight() -> Scene:
    module = nn.Linear(4, 4)
    return Scene(lambda x: (module(x), module.weight), watch=lambda: list(module.parameters()))


@right()
def result_that_is_a_view_of_a_weight() -> Scene:
    module = nn.Linear(4, 4)
    return Scene(lambda x: (module(x), module.weight[0]))


@right()
def result_that_is_written_by_the_caller() -> Scene:
    kept: list[Tensor] = []
    table = torch.ones(4)

    def work(x: Tensor) -> Tensor:
        y = x * table
        kept[:] = kept[:0]
        return y

    return Scene(work)


@right()
def result_that_is_a_constant() -> Scene:
    # Made anew by each call, so a caller may write into it.
    def work(x: Tensor) -> Tensor:
        return torch.zeros(3)

    return Scene(work)


@right()
def no_result() -> Scene:
    table = torch.zeros(3, 4)

    def work(x: Tensor) -> None:
        table.add_(x)

    return Scene(work, watch=lambda: table)


@right()
def plain_results(x: Tensor) -> Any:
    return {"loss": x.sum(), "n": 3, "name": "a", "none": None, "list": [x, (x * 2,)], "flag": True}


@right()
def size_as_a_result(x: Tensor) -> Any:
    return x * 2, x.shape, x.dtype, x.device


@refused("cannot capture")
def number_as_a_result(x: Tensor) -> Any:
    return x * 2, x.sum().item()


@refused("returns")
def object_as_a_result(x: Tensor) -> Any:
    return types.SimpleNamespace(x=x)


@refused("returns")
def generator_as_a_result(x: Tensor) -> Any:
    return (row for row in x)


@right()
def sparse_result(x: Tensor) -> Any:
    return x.relu().to_sparse()


@right()
def list_that_the_caller_changes() -> Scene:
    return Scene(lambda x: [x, [1, 2]])


@refused("autograd would have to follow")
def result_that_needs_gradients() -> Scene:
    return Scene(nn.Linear(4, 4), around=contextlib.nullcontext)


@refused("autograd would have to follow")
def result_of_an_argument_that_needs_gradients() -> Scene:
    return Scene(
        lambda x: x * 2,
        lambda seed: (one(seed)[0].requires_grad_(),),
        around=contextlib.nullcontext,
    )


@right()
def containers_of_results_are_new() -> Scene:
    return Scene(lambda x: {"a": [x + 1], "b": OrderedDict(c=x)})


# Switches


class Switch:
    """The caller's mode, which changes between calls."""

    def __init__(self, *modes: Callable[[], Any]) -> None:
        self.modes, self.at = modes, 0

    def __call__(self) -> Any:
        return self.modes[self.at]()

    def disturb(self, step: int) -> None:
        self.at = step + 1


def _switched(*modes: Callable[[], Any], what: Any = None) -> Scene:
    around = Switch(*modes)
    return Scene(what or linear(), disturb=around.disturb, around=around)


@contextlib.contextmanager
def autocast() -> Any:
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        yield


@contextlib.contextmanager
def default_double() -> Any:
    torch.set_default_dtype(torch.float64)
    try:
        with torch.no_grad():
            yield
    finally:
        torch.set_default_dtype(torch.float32)


@contextlib.contextmanager
def deterministic() -> Any:
    torch.use_deterministic_algorithms(True)
    try:
        with torch.no_grad():
            yield
    finally:
        torch.use_deterministic_algorithms(False)


@contextlib.contextmanager
def on_meta() -> Any:
    with torch.no_grad(), torch.device("meta"):
        yield


@right(recorded=2)
def autocast_around_calls() -> Any:
    return _switched(torch.no_grad, autocast, torch.no_grad)


@refused("changes autocast on the CPU, at operator aten::linear")
def autocast_inside() -> Scene:
    module = nn.Linear(4, 4)

    def work(x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = module(x)
        return module(y.float())

    return Scene(work)


@right()
def inference_mode_around_calls() -> Any:
    return _switched(torch.no_grad, torch.inference_mode, torch.no_grad)


@right()
def inference_mode_first() -> Any:
    return _switched(torch.inference_mode, torch.no_grad, torch.inference_mode)


@refused("autograd would have to follow")
def gradients_switched_on_later() -> Any:
    return _switched(torch.no_grad, contextlib.nullcontext, torch.no_grad)


@frozen("is_inference_mode_enabled")
def mode_that_code_reads() -> Any:
    return _switched(
        torch.no_grad,
        torch.inference_mode,
        torch.no_grad,
        what=lambda x: x * (2 if torch.is_inference_mode_enabled() else 3),
    )


@right()
def default_type_around_calls() -> Any:
    return _switched(torch.no_grad, default_double, torch.no_grad, what=lambda x: x + torch.ones(4))


@right()
def deterministic_around_calls() -> Any:
    return _switched(torch.no_grad, deterministic, torch.no_grad, what=lambda x: x.cumsum(0))


@refused("inside a TorchDispatchMode or TorchFunctionMode")
def default_device_around_calls() -> Any:
    return _switched(torch.no_grad, on_meta, torch.no_grad, what=lambda x: torch.ones(x.shape[0]))


@frozen("get_num_threads")
def number_of_threads() -> Scene:
    before = torch.get_num_threads()
    return Scene(
        lambda x: x * torch.get_num_threads(),
        disturb=lambda step: torch.set_num_threads(step + 2),
        undo=lambda: torch.set_num_threads(before),
    )


class Doubles(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        return result * 2 if func is torch.exp else result


class DoublesBelow(torch.utils._python_dispatch.TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        return result * 2 if func is torch.ops.aten.exp.default else result


@right(on_refusal="eager", marks=(pytest.mark.filterwarnings("ignore"),))
def function_mode_around_calls() -> Any:
    return _switched(torch.no_grad, Doubles, torch.no_grad, what=lambda x: torch.exp(x))


@right(on_refusal="eager", marks=(pytest.mark.filterwarnings("ignore"),))
def dispatch_mode_around_calls() -> Any:
    return _switched(torch.no_grad, DoublesBelow, torch.no_grad, what=lambda x: torch.exp(x))


@refused("cannot capture")
def mode_changed_inside(x: Tensor) -> Tensor:
    torch.set_grad_enabled(True)
    return x * 2


# Training


def _train(
    make: Callable[[list[Tensor]], Any] | None = None,
    *,
    disturb: Callable[[Any, Any, int], object] = nothing,
    after: Callable[[nn.Module, Any], object] = nothing,
    clear: Callable[[Any], object] = lambda optimizer: optimizer.zero_grad(),
    module: Callable[[], nn.Module] = lambda: nn.Linear(4, 2),
) -> Scene:
    net = module()
    optimizer = (make or (lambda weights: torch.optim.SGD(weights, 0.1)))(list(net.parameters()))

    def step(x: Tensor) -> Tensor:
        clear(optimizer)
        loss = net(x).square().mean()
        loss.backward()
        after(net, optimizer)
        optimizer.step()
        return loss.detach()

    return Scene(
        step,
        disturb=lambda at: disturb(net, optimizer, at),
        watch=lambda: (
            net.state_dict(),
            [item.grad for item in net.parameters()],
            optimizer.state_dict(),
        ),
        around=contextlib.nullcontext,
    )


def _optimizer(name: str, *, of: str, words: str = "", **given: Any) -> None:
    def make() -> Scene:
        return _train(lambda weights: getattr(torch.optim, of)(weights, **given))

    make.__name__ = name
    (refused(words) if words else right())(make)


_optimizer("train_sgd", of="SGD", lr=0.1)
_optimizer("train_sgd_momentum", of="SGD", lr=0.1, momentum=0.9, nesterov=True)
_optimizer("train_adam_for_loop", of="AdamW", lr=0.1, foreach=False, words="cannot capture")
_optimizer("train_adam_foreach", of="AdamW", lr=0.1, foreach=True, words="cannot capture")
_optimizer("train_adam_fused", of="AdamW", lr=0.1, fused=True)
_optimizer("train_adam_amsgrad", of="Adam", lr=0.1, fused=True, amsgrad=True)
_optimizer("train_rmsprop", of="RMSprop", lr=0.1)
_optimizer("train_adagrad", of="Adagrad", lr=0.1, words="cannot capture")


@refused("changes from call to call")
def train_lbfgs() -> Scene:
    net = nn.Linear(4, 2)
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=3)

    def step(x: Tensor) -> Tensor:
        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            return loss

        return optimizer.step(closure).detach()

    return Scene(step, watch=lambda: list(net.parameters()), around=contextlib.nullcontext)


def _scale_gradient(factor: float) -> Callable[[Tensor], None]:
    def scale(weight: Tensor) -> None:
        weight.grad.mul_(factor)

    return scale


def trained(**options: Any) -> Callable[[Callable[[Any, Any, int], object]], Any]:
    """A change to a network with SGD and momentum between two steps."""

    def enter(change: Callable[[Any, Any, int], object]) -> Any:
        def make() -> Scene:
            return _train(
                lambda weights: torch.optim.SGD(weights, 0.1, momentum=0.9), disturb=change
            )

        make.__name__ = change.__name__
        right(**options)(make)
        return change

    return enter


@trained()
def rate_changed(net: Any, optimizer: Any, step: int) -> None:
    optimizer.param_groups[0]["lr"] = 0.5 + step


@trained()
def momentum_changed(net: Any, optimizer: Any, step: int) -> None:
    optimizer.param_groups[0]["momentum"] = 0.5 - step / 4


@trained()
def group_added(net: Any, optimizer: Any, step: int) -> None:
    extra = nn.Parameter(torch.ones(2))
    extra.grad = torch.ones(2)
    optimizer.add_param_group({"params": [extra]})


@trained()
def optimizer_state_loaded(net: Any, optimizer: Any, step: int) -> None:
    state = optimizer.state_dict()
    for item in state["state"].values():
        item["momentum_buffer"] = item["momentum_buffer"] * (step + 2)
    optimizer.load_state_dict(state)


@trained()
def optimizer_state_cleared(net: Any, optimizer: Any, step: int) -> None:
    optimizer.state.clear()


@trained()
def gradients_dropped_outside(net: Any, optimizer: Any, step: int) -> None:
    optimizer.zero_grad()


@trained()
def gradients_zeroed_outside(net: Any, optimizer: Any, step: int) -> None:
    optimizer.zero_grad(set_to_none=False)


@trained()
def gradients_planted_outside(net: Any, optimizer: Any, step: int) -> None:
    net.weight.grad = torch.ones_like(net.weight)


@trained()
def layer_frozen(net: Any, optimizer: Any, step: int) -> None:
    net.weight.requires_grad_(step == 1)


@trained()
def weight_hooked(net: Any, optimizer: Any, step: int) -> None:
    net.weight.register_hook(lambda grad: grad * (step + 2))


@trained()
def backward_hooked(net: Any, optimizer: Any, step: int) -> None:
    net.register_full_backward_hook(lambda m, gi, go: None)


@trained()
def backward_hooked_with_an_effect(net: Any, optimizer: Any, step: int) -> None:
    net.register_full_backward_pre_hook(lambda m, go: (go[0] * (step + 2),))


@trained()
def accumulated_hooked(net: Any, optimizer: Any, step: int) -> None:
    net.weight.register_post_accumulate_grad_hook(_scale_gradient(step + 2))


@trained()
def optimizer_hooked(net: Any, optimizer: Any, step: int) -> None:
    optimizer.register_step_pre_hook(lambda *_: _scale_gradient(step + 2)(net.weight))


@trained()
def optimizer_step_replaced(net: Any, optimizer: Any, step: int) -> None:
    optimizer.step = lambda: None


@trained()
def weight_replaced_in_training(net: Any, optimizer: Any, step: int) -> None:
    net.weight = nn.Parameter(net.weight.detach() * 2)


@trained()
def weights_loaded_in_training(net: Any, optimizer: Any, step: int) -> None:
    net.load_state_dict({k: v * 2 for k, v in net.state_dict().items()})


@right()
def rate_as_a_tensor() -> Scene:
    return _train(
        lambda weights: torch.optim.AdamW(weights, lr=torch.tensor(0.1), fused=True),
        disturb=lambda net, optimizer, step: optimizer.param_groups[0]["lr"].fill_(0.5 + step),
    )


@right()
def scheduler_outside() -> Scene:
    schedulers: dict[int, Any] = {}

    def disturb(net: Any, optimizer: Any, step: int) -> None:
        found = schedulers.get(id(optimizer))
        if found is None:
            optimizer._opt_called = True  # torch looks for it, to say that the order is wrong
            found = schedulers[id(optimizer)] = torch.optim.lr_scheduler.ExponentialLR(
                optimizer, 0.5
            )
        found.step()

    return _train(disturb=disturb)


@refused(CHANGES, marks=(pytest.mark.filterwarnings("ignore"),))
def scheduler_inside() -> Scene:
    schedulers: list[Any] = []

    def make(weights: list[Tensor]) -> Any:
        optimizer = torch.optim.SGD(weights, 0.1)
        schedulers.append(torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5))
        return optimizer

    return _train(make, after=lambda net, optimizer: schedulers[0].step())


@right()
def gradients_clipped() -> Scene:
    return _train(after=lambda net, _: nn.utils.clip_grad_norm_(net.parameters(), 0.01))


@right()
def gradient_values_clipped() -> Scene:
    return _train(after=lambda net, _: nn.utils.clip_grad_value_(net.parameters(), 0.01))


@right()
def gradients_set_to_zero() -> Scene:
    return _train(clear=lambda optimizer: optimizer.zero_grad(set_to_none=False))


@right()
def gradients_cleared_after() -> Scene:
    net = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)

    def step(x: Tensor) -> Tensor:
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return Scene(
        step,
        watch=lambda: [(w, w.grad) for w in net.parameters()],
        around=contextlib.nullcontext,
    )


@right()
def gradients_accumulated() -> Scene:
    net = nn.Linear(4, 2)

    def step(x: Tensor) -> None:
        net(x).square().mean().backward()

    def disturb(at: int) -> None:
        net.zero_grad(set_to_none=bool(at))

    return Scene(
        step,
        disturb=disturb,
        watch=lambda: [(w, w.grad) for w in net.parameters()],
        around=contextlib.nullcontext,
    )


@refused("leaves a gradient in .grad of an argument")
def gradient_of_an_argument() -> Scene:
    def step(x: Tensor) -> Tensor:
        loss = x.square().sum()
        loss.backward()
        return loss.detach()

    return Scene(step, lambda seed: (one(seed)[0].requires_grad_(),), around=contextlib.nullcontext)


@right()
def gradients_as_results() -> Scene:
    net = nn.Linear(4, 2)

    def step(x: Tensor) -> Any:
        return torch.autograd.grad(net(x).square().sum(), list(net.parameters()))

    return Scene(step, around=contextlib.nullcontext)


@refused("leaves a gradient in .grad of an argument")
def gradient_of_a_gradient() -> Scene:
    net = nn.Sequential(nn.Linear(4, 2), nn.Tanh())

    def step(x: Tensor) -> Any:
        x = x.requires_grad_()
        (first,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)
        first.square().sum().backward()
        return first.detach()

    return Scene(
        step,
        lambda seed: (one(seed)[0].requires_grad_(),),
        watch=lambda: [w.grad for w in net.parameters()],
        around=contextlib.nullcontext,
    )


@right()
def gradient_of_an_argument_as_a_result() -> Scene:
    net = nn.Linear(4, 2)

    def step(x: Tensor) -> Any:
        return torch.autograd.grad(net(x).square().sum(), x)[0]

    return Scene(step, lambda s: (one(s)[0].requires_grad_(),), around=contextlib.nullcontext)


@right()
def argument_made_to_need_gradients() -> Scene:
    net = nn.Linear(4, 2)

    def step(x: Tensor) -> Any:
        x = x.detach().clone().requires_grad_()
        net(x).square().sum().backward()
        return x.grad

    return Scene(
        step,
        disturb=lambda _: net.zero_grad(),
        watch=lambda: [w.grad for w in net.parameters()],
        around=contextlib.nullcontext,
    )


@right()
def gradients_without_a_graph_in_between() -> Scene:
    net = nn.Linear(4, 4)

    def step(x: Tensor) -> Any:
        with torch.no_grad():
            target = net(x)
        loss = (net(x + 1) - target).square().sum()
        loss.backward()
        with torch.no_grad():
            for weight in net.parameters():
                weight.sub_(weight.grad, alpha=0.1)
                weight.grad = None
        return loss.detach()

    return Scene(step, watch=lambda: list(net.parameters()), around=contextlib.nullcontext)


@right()
def frozen_layers_in_training() -> Scene:
    def module() -> nn.Module:
        net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
        net[0].requires_grad_(False)
        return net

    return _train(module=module)


@right()
def two_groups_of_rates() -> Scene:
    def make(weights: list[Tensor]) -> Any:
        groups = [{"params": weights[:1], "lr": 0.1}, {"params": weights[1:], "lr": 0.2}]
        return torch.optim.SGD(groups, lr=0.3)

    def disturb(net: Any, optimizer: Any, step: int) -> None:
        optimizer.param_groups[step]["lr"] = 0.7

    return _train(make, disturb=disturb)


@right()
def weight_decayed_later() -> Scene:
    def disturb(net: Any, optimizer: Any, step: int) -> None:
        optimizer.param_groups[0]["weight_decay"] = 0.1 * (step + 1)
        optimizer.param_groups[0]["maximize"] = step == 1

    return _train(disturb=disturb)


@right()
def checkpointed() -> Scene:
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh())

    def step(x: Tensor) -> Tensor:
        net.zero_grad()
        loss = checkpoint(net, x, use_reentrant=False, preserve_rng_state=False).sum()
        loss.backward()
        return loss.detach()

    return Scene(
        step, watch=lambda: [w.grad for w in net.parameters()], around=contextlib.nullcontext
    )


@refused("cannot capture")
def checkpointed_with_dropout() -> Scene:
    net = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))

    def step(x: Tensor) -> Tensor:
        net.zero_grad()
        loss = checkpoint(net, x, use_reentrant=False).sum()
        loss.backward()
        return loss.detach()

    return Scene(
        step, watch=lambda: [w.grad for w in net.parameters()], around=contextlib.nullcontext
    )


class Cube(torch.autograd.Function):
    factor = 3.0

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return grad * x.square() * Cube.factor


@right()
def function_of_autograd() -> Scene:
    Cube.factor = 3.0
    weight = nn.Parameter(normal(4, seed=5))

    def step(x: Tensor) -> Tensor:
        weight.grad = None
        loss = Cube.apply(x * weight).sum()
        loss.backward()
        return loss.detach()

    return Scene(
        step,
        disturb=lambda at: setattr(Cube, "factor", at + 4.0),
        watch=lambda: weight.grad,
        around=contextlib.nullcontext,
    )


@right()
def two_optimizers() -> Scene:
    maker, judge = nn.Linear(4, 4), nn.Linear(4, 1)
    first = torch.optim.SGD(maker.parameters(), 0.1, momentum=0.9)
    second = torch.optim.AdamW(judge.parameters(), 0.1, fused=True)

    def step(x: Tensor) -> Any:
        second.zero_grad()
        lost = judge(maker(x).detach()).mean() - judge(x).mean()
        lost.backward()
        second.step()
        first.zero_grad()
        made = -judge(maker(x)).mean()
        made.backward()
        first.step()
        return lost.detach(), made.detach()

    def watch() -> Any:
        weights = [*maker.parameters(), *judge.parameters()]
        return [(w, w.grad) for w in weights], first.state_dict(), second.state_dict()

    return Scene(step, watch=watch, around=contextlib.nullcontext)


@refused("cannot capture")
def sparse_gradients() -> Scene:
    table = nn.Embedding(9, 4, sparse=True)
    optimizer = torch.optim.SparseAdam(table.parameters(), 0.1)

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = table(x).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Scene(
        step,
        lambda seed: (torch.arange(3) * (seed % 3 + 1),),
        watch=lambda: table.weight,
        around=contextlib.nullcontext,
    )


@refused("cannot capture")
def scaled_gradients() -> Scene:
    net = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu")

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = net(x).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    return Scene(step, watch=lambda: list(net.parameters()), around=contextlib.nullcontext)


@right()
def dropout_and_batch_norm_trained() -> Scene:
    return _train(module=lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.3)))


@right()
def step_of_ftax() -> Scene:
    torch.manual_seed(0)
    net = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    made = ftax.step(step, inputs=one(0))
    return Scene(
        made,
        watch=lambda: ([(w, w.grad) for w in net.parameters()], optimizer.state_dict()),
        around=contextlib.nullcontext,
    )


# Operators of others, and what raises


_LIBRARY = library.Library("hostile_capture", "DEF")
_LIBRARY.define("scale(Tensor x) -> Tensor")
_LIBRARY.define("bump(Tensor(a!) x) -> ()")


@library.impl(_LIBRARY, "scale", "CPU")
def _scale(x: Tensor) -> Tensor:
    return x * FACTOR


@library.impl(_LIBRARY, "bump", "CPU")
def _bump(x: Tensor) -> None:
    x.add_(1)


@right()
def operator_of_a_library() -> Scene:
    global FACTOR
    FACTOR = 1.0

    def disturb(step: int) -> None:
        global FACTOR
        FACTOR = step + 2.0

    return Scene(lambda x: torch.ops.hostile_capture.scale(x), disturb=disturb)


@right()
def operator_that_writes() -> Scene:
    table = torch.zeros(4)

    def work(x: Tensor) -> Tensor:
        torch.ops.hostile_capture.bump(table)
        return x + table

    return Scene(work, watch=lambda: table)


@right()
def operator_that_python_writes() -> Scene:
    @library.custom_op("hostile_capture::twice", mutates_args=())
    def twice(x: Tensor) -> Tensor:
        return torch.from_numpy(x.numpy() * 2)

    return Scene(lambda x: twice(x))


@right(marks=(pytest.mark.filterwarnings("ignore::DeprecationWarning"),))
def scripted() -> Any:
    return torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))


@refused("cannot capture", marks=(pytest.mark.filterwarnings("ignore::DeprecationWarning"),))
def scripted_branch() -> Scene:
    source = "def branch(x):\n  if bool(x.sum() > 0):\n    return x.exp()\n  return x.neg()\n"
    unit = torch.jit.CompilationUnit(source)
    return Scene(lambda x: unit.branch(x))


@refused("later")
def raises_always() -> Scene:
    def fail(x: Tensor) -> Tensor:
        raise ValueError("later")

    return Scene(fail)


@right(recorded=1)
def raises_for_another_shape() -> Scene:
    module = nn.Linear(4, 4)
    return Scene(module, lambda seed: (normal(3, 5 if seed == 3 else 4, seed=seed),))


@right()
def recursion() -> Scene:
    def power(x: Tensor, n: int) -> Tensor:
        return x if n == 0 else power(x, n - 1) * x

    return Scene(lambda x: power(x, 5))


@refused("disagree on the operators")
def exception_inside() -> Scene:
    def work(x: Tensor) -> Tensor:
        with contextlib.suppress(RuntimeError):
            _ = x @ torch.ones(7)
        return x * 2

    return Scene(work)
