"""A call that communicates with other processes is refused before it does, on every rank, but by
`ftax.tax`, which measures it on all ranks together."""

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import ftax


@pytest.fixture
def group() -> Iterator[None]:
    """A process group of this process alone."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


X = (torch.ones(2, 4),)


def test_a_collective_is_refused_before_it_is_measured(group: None) -> None:
    passed: list[int] = []

    def reduce(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        dist.all_reduce(y)
        passed.append(1)
        return y

    with pytest.raises(ftax.UnsupportedError, match=r"c10d::allreduce_.*one rank"):
        ftax.py_bench(ftax.step(reduce, X))
    assert not passed


def test_a_module_that_communicates_is_refused(group: None) -> None:
    class Parallel(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            dist.broadcast(x, 0)
            return x + 1

    for measure in (ftax.py_bench, ftax.cpp_bench):
        with pytest.raises(ftax.UnsupportedError, match="c10d::broadcast_"):
            measure(Parallel(), X)


def test_a_wrapper_is_refused_before_it_is_called(group: None) -> None:
    wrapped = DistributedDataParallel(nn.Linear(4, 4))
    entered: list[int] = []
    wrapped.register_forward_pre_hook(lambda *_: entered.append(1))
    holder = {"deep": [{"deeper": [[[[wrapped]]]]}]}

    def step(x: torch.Tensor) -> torch.Tensor:
        loss = holder["deep"][0]["deeper"][0][0][0][0](x).sum()  # type: ignore[index]
        loss.backward()
        return loss.detach()

    with pytest.raises(ftax.UnsupportedError, match="a DistributedDataParallel"):
        ftax.py_bench(ftax.step(step, X))
    assert not entered
    step(*X)  # and it can still be trained
    step(*X)


def test_an_error_that_the_call_catches_is_raised_again(group: None) -> None:
    def careful(x: torch.Tensor) -> torch.Tensor:
        try:
            dist.all_reduce(x)
        except Exception:
            return x + 1
        return x

    with torch.no_grad(), pytest.raises(ftax.UnsupportedError, match="communicates"):
        ftax.py_bench(ftax.step(careful, X))


def test_a_call_of_one_rank_is_captured_in_a_process_group(group: None) -> None:
    net = nn.Linear(4, 4)
    with torch.no_grad():
        fast = ftax.capture(net, X)
        assert torch.equal(fast(*X), net(*X))
