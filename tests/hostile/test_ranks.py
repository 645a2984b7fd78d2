"""Ranks that are refused, raise or die in a call that communicates: others go on, or get an error
in time, and never a wrong result."""

import re
from pathlib import Path

import pytest

from support.ranks import run_ranks

TRAIN = """
import time, warnings

torch.manual_seed(0)
net = nn.Linear(8, 8)
is_faulty = [False]

def call(x):
    y = net(x)
    dist.all_reduce(y)
    if is_faulty[0] and rank == 1:
        FAULT
    z = y * 2
    dist.all_reduce(z)
    return z

x = torch.ones(4, 8) * (rank + 1)
with torch.no_grad():
    wanted = call(x)
    fast = ftax.capture(call, (x,), audit=False)
    assert all(torch.equal(fast(x), wanted) for _ in range(3))
    is_faulty[0] = rank == 1
    begin = time.monotonic()
    if rank == 1:
        fast(x)
        end(9)
    try:
        for _ in range(100):
            assert torch.equal(fast(x), wanted)
    except RuntimeError as error:
        print("ERROR", time.monotonic() - begin, getattr(error, "__notes__", ""))
        end(0)
end(8)
"""


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ("raise ValueError('planted')", 1),
        ("os._exit(3)", 3),
    ],
    ids=["raises", "dies"],
)
def test_other_ranks_get_an_error_in_time(tmp_path: Path, fault: str, code: int) -> None:
    """Two processes, which import torch: some seconds."""
    first, second = run_ranks(tmp_path, TRAIN.replace("FAULT", fault))
    assert second.code == code, second.output[-1000:]
    assert first.code == 0, first.output[-1000:]
    _, _, told = first.output.rpartition("ERROR ")
    seconds, _, note = told.partition(" ")
    assert float(seconds) < 60
    assert "another rank has raised or ended" in note


REFUSED = """
def call(x):
    if rank == 1:
        x = x * (1 + 0 * x.sum().item())  # which no replay can follow
    y = x + 1
    dist.all_reduce(y)
    return y

x = torch.ones(4)
with torch.no_grad():
    fast = ftax.capture(call, (x,))  # raises on rank 1 alone, which ends
    try:
        fast(x)
    except RuntimeError as error:  # of the original, by which the first call is checked
        print(error)
        end(7)
"""


def test_a_rank_that_is_refused_and_ends_is_no_hang(tmp_path: Path) -> None:
    """Two processes, which import torch: some seconds."""
    first, second = run_ranks(tmp_path, REFUSED)
    assert second.code == 1
    assert "UnsupportedError: cannot capture call" in second.output
    assert first.code == 7, first.output[-1000:]
    assert re.search("Connection (closed|reset) by peer", first.output)


LATE = """
import time

def call(x):
    y = x + 1
    dist.all_reduce(y)
    return y

x = torch.ones(4)
with torch.no_grad():
    if rank == 1:
        time.sleep(3)  # it records later, and calls later
    fast = ftax.capture(call, (x,))
    for _ in range(5):
        assert torch.equal(fast(x), torch.full((4,), 4.0))
        if rank == 0:
            time.sleep(0.3)
    assert fast.stats().replayed == 5
    if rank == 1:  # it goes on with the original alone
        fast.close()
        fast = call
    for _ in range(5):
        assert torch.equal(fast(x), torch.full((4,), 4.0))
"""


def test_a_rank_that_is_late_is_waited_for(tmp_path: Path) -> None:
    """Two processes, which import torch, and one waits: some seconds."""
    assert [rank.code for rank in run_ranks(tmp_path, LATE)] == [0, 0]
