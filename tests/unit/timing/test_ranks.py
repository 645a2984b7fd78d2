"""Ranks that meet to measure together: here threads with one store, as far as no process group is
needed, and one process that is alone in its group."""

import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import ftax
from ftax.errors import InvalidArgumentError, RunnerError
from ftax.steps.collectives import answered_by, has_communicated
from ftax.timing.candidate import Place
from ftax.timing.plan import Plan
from ftax.timing.ranks import Ranks, join_ranks

READY = (Place("eager", "python"), Place("flat", "python"))
X = torch.ones(2)


def make_rank(store: dist.HashStore, rank: int, size: int = 2) -> Ranks:
    ranks = Ranks("a step")
    ranks._store, ranks._rank, ranks._timeout = store, rank, timedelta(seconds=20)
    ranks._others = [other for other in range(size) if other != rank]
    return ranks


def meet(*given: tuple[Plan, tuple[Place, ...]]) -> list[object]:
    """What each rank is given, or the error that it raises."""
    store, found = dist.HashStore(), [None] * len(given)

    def run(rank: int) -> None:
        ranks = make_rank(store, rank, len(given))
        try:
            missing = ranks.meet(*given[rank])
            found[rank] = missing, [ranks.agree(number) for number in (rank, -rank)]
        except Exception as error:
            found[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(len(given))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_ranks_agree_on_the_largest_number() -> None:
    assert meet(*[(Plan(), READY)] * 3) == [({}, [2, 0])] * 3


def test_what_one_has_not_made_ready_no_other_measures() -> None:
    (first, _), (second, _) = meet((Plan(), READY), (Plan(), READY[:1]))
    assert first == {READY[1]: "rank 1 has not made it ready, and says why"}
    assert second == {}


def test_another_plan_on_another_rank_is_refused_by_both() -> None:
    found = meet((Plan(rounds=5), READY), (Plan(rounds=6), READY))
    assert [type(error) for error in found] == [InvalidArgumentError] * 2
    assert str(found[0]) == "rounds is 5 here and 6 on rank 1; give the same on every rank"


def test_each_rank_may_have_cpus_of_its_own() -> None:
    assert len(meet((Plan(cpus=(0,)), READY), (Plan(cpus=(1,)), READY))) == 2


def test_a_rank_that_has_failed_is_named() -> None:
    store = dist.HashStore()
    make_rank(store, 1).leave(ValueError("no such file"))
    with pytest.raises(RunnerError, match="rank 1 has ended its measurement: no such file"):
        make_rank(store, 0).meet(Plan(), READY)


def test_an_interrupted_rank_says_so() -> None:
    store = dist.HashStore()
    make_rank(store, 1).leave(KeyboardInterrupt())
    with pytest.raises(RunnerError, match=r"rank 1 .*: it was interrupted"):
        make_rank(store, 0).meet(Plan(), READY)


def test_a_rank_that_does_not_come_is_waited_for_until_the_timeout() -> None:
    ranks = make_rank(dist.HashStore(), 0)
    ranks._timeout = timedelta(seconds=0.1)
    with pytest.raises(RunnerError, match=r"rank 1 has not begun .* a step .* on every rank"):
        ranks.meet(Plan(), READY)


def test_who_has_not_met_cannot_agree() -> None:
    ranks = make_rank(dist.HashStore(), 0)
    ranks._others = []
    with pytest.raises(RunnerError, match="no longer measures a step"):
        ranks.agree(1)


@pytest.fixture
def group() -> Iterator[None]:
    dist.init_process_group(
        "gloo", store=dist.HashStore(), rank=0, world_size=1, timeout=timedelta(seconds=40)
    )
    yield
    dist.destroy_process_group()


def reduce(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    dist.all_reduce(y)
    return y


@pytest.mark.usefixtures("group")
def test_no_rank_waits_longer_than_the_process_group() -> None:
    with join_ranks("a step") as ranks:
        ranks._open()
        assert ranks._timeout == timedelta(seconds=40)


@pytest.mark.usefixtures("group")
def test_only_a_step_that_communicates_has_ranks() -> None:
    with join_ranks("a step") as ranks:
        assert ranks.find() is None
        with answered_by(None) as collectives:
            assert collectives is None
    assert not has_communicated()


@pytest.mark.usefixtures("group")
def test_a_collective_that_cannot_be_answered_alone_is_refused() -> None:
    def call(x: torch.Tensor) -> torch.Tensor:
        dist.all_gather([torch.empty_like(x)], x)
        return x * 2

    with pytest.raises(ftax.UnsupportedError, match="cannot measure call"):
        ftax.tax(call, (X,), plan=ftax.Plan(rounds=2), progress=False)
    assert torch.equal(reduce(X), X * 2)  # by the group's own backend again


@pytest.mark.usefixtures("group")
def test_a_receipt_of_a_rank_alone_has_its_communication() -> None:
    with torch.no_grad():
        receipt = ftax.tax(reduce, (X,), plan=ftax.Plan(rounds=3, warmup=2), progress=False)
    assert [str(rung.place) for rung in receipt.rungs] == ["eager/python", "eager/cpp"]
    assert [item.calls for item in receipt.collectives] == [1, 1]
    names = [line.name for line in receipt.lines]
    assert names[-3:] == ["waiting for other ranks", "communication", "operators"]
    assert sum(line.time_ns for line in receipt.lines) == pytest.approx(receipt.latency_ns)
    assert receipt.others == ()
    assert all("communicates with other ranks" in item.reason for item in receipt.unavailable)
    assert receipt.unavailable
    assert ftax.Receipt.from_dict(receipt.to_dict()) == receipt
    assert torch.equal(reduce(X), X * 2)


@pytest.mark.usefixtures("group")
def test_a_module_that_communicates_has_a_receipt_too() -> None:
    class Parallel(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return reduce(super().forward(x))

    model, plan = Parallel(2, 2), ftax.Plan(rounds=3, warmup=2)
    receipt = ftax.tax(model, (torch.ones(3, 2),), plan=plan, progress=False)
    assert [item.calls for item in receipt.collectives] == [1] * len(receipt.rungs)
    assert receipt.others == ()


@pytest.mark.usefixtures("group")
def test_unsettled_data_parallel_is_told_to_train_first() -> None:
    wrapped = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
    with pytest.raises(ftax.UnsupportedError, match=r"cannot measure .* yet: .*train two steps"):
        ftax.tax(lambda x: wrapped(x).sum().backward(), (X,), progress=False)


@pytest.mark.usefixtures("group")
def test_what_reads_a_number_of_a_collective_has_no_tape() -> None:
    def count(x: torch.Tensor) -> torch.Tensor:
        y = reduce(x)
        y.sum().item()  # on which more might depend
        return y

    with torch.no_grad():
        receipt = ftax.tax(count, (X,), plan=ftax.Plan(rounds=3, warmup=2), progress=False)
    assert [str(rung.place) for rung in receipt.rungs] == ["eager/python"]
    assert "reads a number" in next(i.reason for i in receipt.unavailable if i.runtime == "flat")


@pytest.mark.usefixtures("group")
def test_what_is_no_rung_is_not_measured_with_other_ranks() -> None:
    with pytest.raises(ftax.UnsupportedError, match="ladder 'compile'"):
        ftax.tax(reduce, (X,), ladder="compile", progress=False)
    with pytest.raises(ftax.InvalidArgumentError, match="patience_s=0"):
        ftax.tax(reduce, (X,), plan=ftax.Plan(rounds=2, patience_s=1.0), progress=False)
