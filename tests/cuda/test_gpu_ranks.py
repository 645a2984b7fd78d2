"""Calls that communicate by NCCL: CUDA graphs between collectives."""

from collections.abc import Callable, Iterator

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

import ftax
from support.communicating import Results, run_communicating
from support.ranks import find_waiting, read_receipts, run_ranks

pytestmark = [pytest.mark.needs_cuda, pytest.mark.usefixtures("alone", "record_at_once")]
needs_two_gpus = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")


@pytest.fixture
def group() -> Iterator[None]:
    """Of one rank."""
    device = torch.device("cuda:0")
    store = dist.HashStore()
    dist.init_process_group("nccl", store=store, rank=0, world_size=1, device_id=device)
    yield
    dist.destroy_process_group()


def draw() -> Tensor:
    return torch.randn(4, 8, device="cuda")


def compare(call: Callable[[Tensor], Tensor], fast: ftax.Captured, calls: int = 12) -> bool:
    return all(torch.equal(call(x), fast(x)) for x in (draw() for _ in range(calls)))


def find_kinds(fast: ftax.Captured) -> set[str]:
    return {program.kind for program in fast.explain().programs}


def test_graphs_stand_between_collectives(group: None) -> None:
    first, second = (nn.Linear(8, 8, device="cuda") for _ in range(2))

    def twice(x: Tensor) -> Tensor:
        y = first(x).relu()
        dist.all_reduce(y)
        work = dist.all_reduce(y, async_op=True)
        z = x * 2
        work.wait()
        return second(y) + z

    with torch.no_grad():
        fast = ftax.capture(twice, (draw(),))
        assert compare(twice, fast)
    assert find_kinds(fast) == {"graph"}
    assert fast.stats().replayed == 12


def test_random_numbers_move_on_across_collectives(group: None) -> None:
    def drop(x: Tensor) -> Tensor:
        y = torch.nn.functional.dropout(x, 0.5)
        dist.all_reduce(y)
        return torch.nn.functional.dropout(y, 0.5)

    with torch.no_grad():
        fast, x = ftax.capture(drop, (draw(),)), draw()
        for seed in range(8):
            torch.manual_seed(seed)
            wanted = [drop(x) for _ in range(3)]
            torch.manual_seed(seed)
            assert all(torch.equal(item, fast(x)) for item in wanted)
    assert find_kinds(fast) == {"graph"}


def test_a_call_that_is_nothing_but_a_collective(group: None) -> None:
    def reduce(x: Tensor) -> Tensor:
        dist.all_reduce(x)
        return x

    with torch.no_grad():
        fast = ftax.capture(reduce, (draw(),))
        assert compare(reduce, fast, 6)


def test_a_result_that_is_new_each_time_is_replayed_from_cpp(group: None) -> None:
    functional = torch.ops._c10d_functional

    def reduce(x: Tensor) -> Tensor:
        name = dist.group.WORLD.group_name  # type: ignore[union-attr]
        return functional.wait_tensor(functional.all_reduce(x, "sum", name)) + 1  # type: ignore[no-any-return]

    with torch.no_grad():
        fast = ftax.capture(reduce, (draw(),))
        assert compare(reduce, fast, 6)
        assert find_kinds(fast) == {"tape"}
        assert "gives a new tensor each time" in str(fast.explain())
        with pytest.raises(ftax.UnsupportedError, match="write in place"):
            ftax.capture(reduce, (draw(),), kind="graph")


def test_a_group_is_destroyed_before_its_graphs(group: None) -> None:
    def reduce(x: Tensor) -> Tensor:
        y = x * 2
        dist.all_reduce(y)
        return y

    with torch.no_grad():
        fast = ftax.capture(reduce, (draw(),))
        assert compare(reduce, fast, 6)
        dist.destroy_process_group()
        device = torch.device("cuda:0")
        dist.init_process_group(
            "nccl", store=dist.HashStore(), rank=0, world_size=1, device_id=device
        )
        assert compare(reduce, fast, 6)


NCCL = pytest.param("nccl", marks=[pytest.mark.two_gpus, needs_two_gpus])


@pytest.fixture(scope="module", params=["gloo", NCCL])
def results(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Of two ranks, on one GPU where gloo communicates."""
    return run_communicating(tmp_path_factory.mktemp("ranks"), "cuda", request.param)


@pytest.mark.parametrize(
    ("name", "calls", "kind"),
    [
        *(("tensor_parallel", 20, "graph"), ("overlapping", 20, "graph")),
        *(("functional_sum", 20, "tape"), ("in_a_group", 20, "graph")),
        *(("ddp", 28, "graph"), ("ddp_with_views", 28, "graph"), ("ddp_with_buffers", 28, "graph")),
        *(("ddp_that_accumulates", 28, "graph"), ("ddp_of_small_buckets", 28, "graph")),
        ("a_module_inside_of_ddp", 20, "graph"),
    ],
)
def test_replays_have_the_bits_of_eager(results: Results, name: str, calls: int, kind: str) -> None:
    for rank in results:
        assert rank[name]["same"]
        assert rank[name]["replayed"] == calls
        assert rank[name]["checked"] >= 3
        assert rank[name]["kinds"] == [kind]


def test_every_kind_of_collective(results: Results) -> None:
    found = [rank["every_kind"] for rank in results if "every_kind" in rank]
    assert all(item["same"] and item["kinds"] == ["graph"] for item in found)


def test_ranks_that_go_different_ways_meet(results: Results) -> None:
    for name in ("one_is_refused", "one_misses_a_guard", "one_checks_more"):
        assert [rank[name]["same"] for rank in results] == [True, True]
    replayed = [rank["one_is_refused"]["replayed"] for rank in results]
    assert replayed == [20, 0]


MEASURED = """
import json, time

net = nn.Sequential(*(nn.Linear(64, 64) for _ in range(4))).to(device)
model = nn.parallel.DistributedDataParallel(nn.Linear(64, 64).to(device))
late_s = 0.0

def forward(x):
    y = net(x).relu()
    if rank == 1:
        time.sleep(late_s)
    dist.all_reduce(y)
    return net(y)

def train(x):
    loss = model(x).square().mean()
    loss.backward()
    return loss.detach()

x = torch.randn(4, 64, device=device)
train(x), train(x)
plan = ftax.Plan(rounds=4, round_ms=20)
for late_s in (0.0, 0.01):
    with torch.no_grad():
        receipt = ftax.tax(forward, (x,), plan=plan, progress=False)
    print("RECEIPT", json.dumps(receipt.to_dict()))
receipt = ftax.tax(train, (x,), plan=plan, progress=False)
print("RECEIPT", json.dumps(receipt.to_dict()))
train(x)
torch.cuda.synchronize()
"""


@pytest.fixture(scope="module", params=["gloo", NCCL])
def receipts(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> list[list[ftax.Receipt]]:
    """Of each rank: of a forward pass in time, with rank 1 late in each call, and of training."""
    folder = tmp_path_factory.mktemp("receipts")
    ended = run_ranks(folder, MEASURED, device="cuda", backend=request.param)
    assert [rank.code for rank in ended] == [0, 0], [rank.output[-2000:] for rank in ended]
    return [read_receipts(rank) for rank in ended]


def test_receipts_have_graphs_between_collectives(receipts: list[list[ftax.Receipt]]) -> None:
    for receipt in (item for rank in receipts for item in rank):
        assert str(receipt.rungs[-1].place) == "cuda-graph/cpp", receipt.unavailable
        assert [item.calls for item in receipt.collectives] == [1] * len(receipt.rungs)
        assert sum(line.time_ns for line in receipt.lines) == pytest.approx(receipt.latency_ns)
        (replay,) = [item for item in receipt.unavailable if item.runtime == "launch-replay"]
        assert "stand between CUDA graphs" in replay.reason


@pytest.mark.timing
def test_a_rank_that_is_late_is_seen_by_the_other(receipts: list[list[ftax.Receipt]]) -> None:
    in_time, late, _ = map(find_waiting, receipts[0])
    assert late > 5e6
    assert in_time < late / 2
    assert find_waiting(receipts[1][1]) < late / 2  # it waits for none
