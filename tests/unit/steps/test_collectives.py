"""A call that communicates with other processes is refused before it does, on every rank."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

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


def test_a_collective_is_refused_before_it_is_issued(group: None) -> None:
    passed: list[int] = []

    def reduce(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        dist.all_reduce(y)
        passed.append(1)
        return y

    with torch.no_grad(), pytest.raises(ftax.UnsupportedError, match=r"c10d::allreduce_.*one rank"):
        ftax.capture(reduce, X)
    with pytest.raises(ftax.UnsupportedError, match="communicates with other processes"):
        ftax.tax(ftax.step(reduce, X), runtimes="none")
    assert not passed


def test_a_module_that_communicates_is_refused(group: None) -> None:
    class Parallel(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            dist.broadcast(x, 0)
            return x + 1

    for measure in (ftax.py_bench, ftax.cpp_bench, ftax.tax):
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
        ftax.capture(step, X)
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
        ftax.capture(careful, X)


def test_a_call_of_one_rank_is_captured_in_a_process_group(group: None) -> None:
    net = nn.Linear(4, 4)
    with torch.no_grad():
        fast = ftax.capture(net, X)
        assert torch.equal(fast(*X), net(*X))


def test_a_miss_in_the_middle_runs_the_original_without_another_collective(
    group: None, record_at_once: None
) -> None:
    """One rank may record when another does not: it must not issue a collective more."""
    issued: list[int] = []

    def call(x: torch.Tensor) -> torch.Tensor:
        if len(x) > 2:
            dist.all_reduce(x)
            issued.append(1)
        return x + 1

    long = torch.ones(3, 4)
    with torch.no_grad():
        fast = ftax.capture(call, X, on_refusal="eager")
        with pytest.warns(UserWarning, match="communicates"):
            assert torch.equal(fast(long), long + 1)
        assert torch.equal(fast(long), long + 1)
    assert issued == [1, 1]


RANK = """
import os, sys
import torch, torch.distributed as dist
from torch import nn
import ftax

store = dist.FileStore(sys.argv[2], 2)
dist.init_process_group("gloo", store=store, rank=int(sys.argv[1]), world_size=2)
model = nn.parallel.DistributedDataParallel(nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), 0.1)

def step(x):
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss.detach()

x = torch.randn(4, 8)
step(x)
refused = 0
for measure in (lambda: ftax.capture(step, (x,)), lambda: ftax.tax(ftax.step(step, (x,)))):
    try:
        measure()
    except ftax.UnsupportedError as error:
        refused += "a DistributedDataParallel" in str(error)
step(x)
dist.barrier()
os._exit(0 if refused == 2 else 1)  # one in 50 exits with a process group aborts, without ftax too
"""


def test_no_rank_waits_for_another(tmp_path: Path) -> None:
    """Two processes, which import torch: some seconds."""
    code = tmp_path / "rank.py"
    code.write_text(RANK)
    store = str(tmp_path / "store")
    ranks = [subprocess.Popen([sys.executable, str(code), str(rank), store]) for rank in range(2)]
    try:
        assert [rank.wait(100) for rank in ranks] == [0, 0]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
