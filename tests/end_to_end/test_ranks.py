"""Two ranks that measure a step in which they communicate: each gets a receipt, of the same rounds.

Two processes each, which import torch: some seconds."""

from pathlib import Path

import pytest

import ftax
from support.ranks import find_waiting, read_receipts, run_ranks

LATE_S = 0.01  # that the other rank sleeps before the collective
STEP = """
import json, signal, time

torch.manual_seed(0)
net = nn.Linear(64, 64)
late_s = 0.0

def step(x):
    y = net(x).relu()
    if rank == 1:
        time.sleep(late_s)
    dist.all_reduce(y)
    return net(y)

def measure(rounds):
    plan = ftax.Plan(rounds=rounds, round_ms=20)
    with torch.no_grad():
        return ftax.tax(step, (torch.ones(4, 64) * (rank + 1),), plan=plan, progress=False)
"""
RECEIPTS = """
for late_s in (0.0, LATE_S):
    receipt = measure(4)
    print("RECEIPT", json.dumps(receipt.to_dict()))
x = torch.ones(3)
dist.all_reduce(x)
assert x.tolist() == [2, 2, 2]
"""


@pytest.fixture(scope="module")
def receipts(tmp_path_factory: pytest.TempPathFactory) -> list[list[ftax.Receipt]]:
    """Of each rank: in time, and with rank 1 late in each call."""
    ended = run_ranks(
        tmp_path_factory.mktemp("ranks"), STEP + RECEIPTS.replace("LATE_S", str(LATE_S))
    )
    assert [rank.code for rank in ended] == [0, 0], (
        ended[0].output[-2000:] + ended[1].output[-2000:]
    )
    return [read_receipts(rank) for rank in ended]


def test_all_ranks_make_the_same_requests(receipts: list[list[ftax.Receipt]]) -> None:
    for first, second in zip(*receipts, strict=True):
        for own, other in zip(first.rungs, second.rungs, strict=True):
            assert own.place == other.place
            assert [*map(len, own.samples_ns)] == [*map(len, other.samples_ns)]
            assert own.dropped_per_round == other.dropped_per_round
            assert own.checks["warmup"]["iterations"] == other.checks["warmup"]["iterations"]


def test_every_rung_communicates_and_lines_sum(receipts: list[list[ftax.Receipt]]) -> None:
    for receipt in (item for rank in receipts for item in rank):
        places = [str(rung.place) for rung in receipt.rungs]
        assert places == ["eager/python", "eager/cpp"]
        assert [item.calls for item in receipt.collectives] == [1, 1]
        assert sum(line.time_ns for line in receipt.lines) == pytest.approx(receipt.latency_ns)
        assert receipt.others == ()


@pytest.mark.timing
def test_a_rank_that_is_late_is_seen_by_the_other(receipts: list[list[ftax.Receipt]]) -> None:
    in_time, late = map(find_waiting, receipts[0])
    assert late > LATE_S / 2 * 1e9  # what else has the CPUs may keep this rank from waiting
    assert in_time < late / 2
    assert find_waiting(receipts[1][1]) < late / 2  # it waits for none


def run(folder: Path, script: str) -> tuple[str, str]:
    first, second = run_ranks(folder, STEP + script, limit_s=120)
    assert (first.code, second.code) == (0, 0), first.output[-2000:] + second.output[-2000:]
    return first.output, second.output


INTERRUPTED = """
def interrupt(phase, done, total):
    if rank == 1 and phase == "round" and done == 3:
        signal.raise_signal(signal.SIGINT)

receipt = ftax.tax(
    step, (torch.ones(4, 64),), plan=ftax.Plan(rounds=50, round_ms=5), progress=interrupt
)
print("ROUNDS", len(receipt.rungs[0].samples_ns), receipt.rungs[0].stop_reason)
"""


def test_an_interruption_of_one_rank_ends_the_rounds_of_both(tmp_path: Path) -> None:
    first, second = (output.splitlines()[-1] for output in run(tmp_path, INTERRUPTED))
    assert first == second == "ROUNDS 4 interrupted"  # it is seen before the next round


LATE_INTERRUPT = """
is_timed, calls = False, 0

def step(x):
    global calls
    y = net(x)
    calls += is_timed
    if rank == 1 and calls == 3:
        signal.raise_signal(signal.SIGINT)
    dist.all_reduce(y)
    return y

def begin(phase, done, total):
    global is_timed
    is_timed = phase == "timing collectives with the other ranks"

receipt = ftax.tax(step, (torch.ones(4, 64),), plan=ftax.Plan(rounds=3, round_ms=5), progress=begin)
x = torch.tensor([1.0 + rank])
dist.all_reduce(x)
print("SUM", x.item(), "CALLS", calls, "TIMED", len(receipt.collectives), receipt.interrupted)
"""


def test_one_while_collectives_are_timed_leaves_no_collective_behind(tmp_path: Path) -> None:
    first, second = (output.splitlines()[-1] for output in run(tmp_path, LATE_INTERRUPT))
    assert first == second
    assert first.startswith("SUM 3.0 CALLS ") and first.endswith(" TIMED 0 True")


FAILS = """
def step(x):
    y = net(x)
    dist.all_reduce(y)
    if is_measured and rank == 1:
        raise ValueError("planted")
    return y

is_measured = False

def begin(phase, done, total):
    global is_measured
    is_measured = is_measured or (phase == "round" and done == 2)

begun = time.monotonic()
try:
    ftax.tax(step, (torch.ones(4, 64),), plan=ftax.Plan(rounds=50, round_ms=5), progress=begin)
except ftax.FtaxError as error:
    print("ERROR", error, flush=True)
    if rank == 1:  # lives on: its connections alone are closed
        time.sleep(5)
    assert time.monotonic() - begun < 60
    end()
end(1)
"""


def test_a_rank_that_fails_in_a_round_ends_both(tmp_path: Path) -> None:
    first, second = run(tmp_path, FAILS)
    assert "ERROR rank 1 has ended its measurement" in first
    assert "planted" in first
    assert "planted" in second


OTHER_PLAN = """
try:
    measure(3 + rank)
except ftax.InvalidArgumentError as error:
    print(error)
receipt = measure(3)  # a further one has nothing left of the first
assert len(receipt.rungs) == 2
"""


def test_after_a_refusal_ranks_meet_again(tmp_path: Path) -> None:
    first, second = run(tmp_path, OTHER_PLAN)
    assert "rounds is 3 here and 4 on rank 1" in first
    assert "rounds is 4 here and 3 on rank 0" in second


ONE_READS = """
def step(x):
    y = net(x)
    if rank == 1:
        y = y * y.sum().item()
    dist.all_reduce(y)
    return y

receipt = measure(3)
print("RUNGS", *(rung.place for rung in receipt.rungs))
print("CALLS", *(item.calls for item in receipt.collectives))
"""


def test_ranks_of_which_one_has_no_tape_make_the_same_calls(tmp_path: Path) -> None:
    for output in run(tmp_path, ONE_READS):
        assert "RUNGS eager/python\nCALLS 1\n" in output


TRAIN = """
import math
from torch.nn.parallel import DistributedDataParallel

model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4)))
optimizer = torch.optim.SGD(model.parameters(), 0.1)

def train(x):
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss

x = torch.ones(4, 16) * (rank + 1)
for _ in range(2):
    train(x)
before = [item.clone() for item in model.parameters()]
receipt = ftax.tax(train, (x,), plan=ftax.Plan(rounds=3, round_ms=5), progress=False)
assert all(map(torch.equal, model.parameters(), before))
print("RUNGS", *(rung.place for rung in receipt.rungs))
print("CALLS", *(item.calls for item in receipt.collectives))
print("LINES", *(line.name for line in receipt.lines), sep="; ")
assert math.isclose(sum(line.time_ns for line in receipt.lines), receipt.latency_ns)
train(x)
"""


def test_a_step_with_data_parallel_has_a_receipt(tmp_path: Path) -> None:
    for output in run(tmp_path, TRAIN):
        rungs = output.partition("RUNGS ")[2].splitlines()[0].split()
        assert rungs[0] == "eager/python"
        assert rungs[-1] == "eager/cpp"
        assert output.partition("CALLS ")[2].splitlines()[0].split() == ["1"] * len(rungs)
        assert "; waiting for other ranks; communication; " in output
