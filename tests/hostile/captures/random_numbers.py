"""Random numbers of torch. See `table.py`."""

from __future__ import annotations

import types
from typing import Any

import torch
from hostile.captures.table import (
    Given,
    Scene,
    frozen,
    one,
    refused,
    right,
)
from torch import Tensor, nn


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


@refused("it sets a random generator (Generator.manual_seed in random_numbers.py")
def the_same_noise_each_time() -> Scene:
    generator = torch.Generator().manual_seed(3)

    def work(x: Tensor) -> Tensor:
        generator.manual_seed(0)
        return x + torch.randn(x.shape, generator=generator)

    return Scene(work, watch=lambda: generator.get_state())


@refused("it sets a random generator (Generator.set_state in random_numbers.py")
def random_numbers_in_a_fork() -> Scene:
    def work(x: Tensor) -> Tensor:
        with torch.random.fork_rng(devices=[]):
            return x + torch.randn(x.shape)

    return Scene(work, watch=torch.get_rng_state)


@refused("it sets a random generator (Generator.manual_seed in random_numbers.py")
def seed_that_is_set_after_drawing() -> Scene:
    def work(x: Tensor) -> Tensor:
        result = x + torch.randn(x.shape)
        torch.manual_seed(0)
        return result

    return Scene(work, watch=torch.get_rng_state)


@right(on_host_read="check")
def generator_of_its_own_where_a_number_is_another() -> Scene:
    source = torch.Generator().manual_seed(3)

    def work(x: Tensor) -> Tensor:
        noise = torch.rand(4, generator=source)
        return x + noise if x.sum() > 0 else x - noise

    return Scene(work, lambda seed: (torch.ones(3, 4) * (-1) ** seed,))
