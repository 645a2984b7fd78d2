"""What a capture takes of calls that communicate, and what it refuses: in a group of one rank."""

import threading
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import Mock

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import ftax
from ftax import _core
from ftax.runtimes.workspace import Workspace
from ftax.steps.collectives import list_groups, make_collectives, without_other_ranks
from ftax.steps.load import load_model
from ftax.tape import capture

X = (torch.ones(2, 4),)


def start() -> None:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)


@pytest.fixture(autouse=True)
def group() -> Iterator[None]:
    start()
    yield
    dist.destroy_process_group()


def reduce(x: Tensor) -> Tensor:
    y = x * 2
    dist.all_reduce(y)
    return y


def find_refusal(call: Callable[[Tensor], object], **options: str) -> str:
    with torch.no_grad(), pytest.raises(ftax.UnsupportedError) as refused:
        ftax.capture(call, X, **options)  # type: ignore[arg-type]
    y = torch.ones(2)
    dist.all_reduce(y)  # by the group's own backend again
    assert y.tolist() == [1, 1]
    return str(refused.value)


def test_the_first_call_is_checked() -> None:
    with torch.no_grad():
        fast = ftax.capture(reduce, X)
        assert torch.equal(fast(*X), reduce(*X))
    assert fast.stats().checked == 1
    assert fast.stats().replayed == 1


def test_what_a_collective_gives_depends_on_others() -> None:
    def count(x: Tensor) -> Tensor:
        total = torch.ones(1)
        dist.all_reduce(total)
        return x / total.item()

    assert "reads a number" in find_refusal(count)
    assert "reads a number" in find_refusal(count, on_host_read="check")


def test_lists_of_tensors_have_a_remedy() -> None:
    def gather(x: Tensor) -> Tensor:
        parts = [torch.empty_like(x)]
        dist.all_gather(parts, x)
        return parts[0]

    assert "all_gather_into_tensor" in find_refusal(gather)


def test_send_and_receive_are_of_pipelines() -> None:
    def pass_on(x: Tensor) -> Tensor:
        dist.group.WORLD.send([x], 0, 0)  # type: ignore[union-attr]
        return x + 1

    assert "pipeline" in find_refusal(pass_on)


def test_objects_are_refused() -> None:
    def collect(x: Tensor) -> Tensor:
        found: list[object] = [None]
        dist.all_gather_object(found, "a")
        return x + len(found)

    assert "cannot capture collect" in find_refusal(collect)


def test_two_groups_are_taken_where_each_collective_is_waited_for() -> None:
    other = dist.new_group([0])

    def reduce_twice(x: Tensor, is_async: bool) -> Tensor:
        y = x * 2
        work = dist.all_reduce(y, async_op=is_async)
        dist.all_reduce(y, group=other)
        if work is not None:
            work.wait()
        return y

    with torch.no_grad():
        fast = ftax.capture(reduce_twice, (X[0], False))
        assert torch.equal(fast(X[0], False), reduce_twice(X[0], False))
        with pytest.raises(ftax.UnsupportedError, match="2 process groups"):
            ftax.capture(reduce_twice, (X[0], True))


def test_a_module_that_communicates_is_not_followed() -> None:
    class Parallel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.linear(reduce(x))

    with pytest.raises(ftax.UnsupportedError, match="under autograd: it communicates"):
        ftax.capture(Parallel(), X)


def test_no_cuda_graph_of_it_is_asked_for() -> None:
    with torch.no_grad(), pytest.raises(ftax.InvalidArgumentError, match="CUDA graph"):
        ftax.capture(reduce, X, kind="graph")


def test_graphs_stand_between_collectives(monkeypatch: pytest.MonkeyPatch) -> None:
    def overlap(x: Tensor) -> Tensor:
        y, z = x * 2, x * 3
        for item in (y, z):
            dist.all_reduce(item)
        works = [dist.all_reduce(item, async_op=True) for item in (y, z)]
        x = x + 1
        for work in works:
            assert work is not None
            work.wait()
        return y + z + x

    def run_instead(run: Callable[[], object], *rest: object) -> tuple[str, object]:
        return "graph", run()

    monkeypatch.setattr(capture, "capture_calls", run_instead)
    with without_other_ranks("it"):
        tape = Workspace(load_model(ftax.step(overlap, X))).taped.tape
        waits = set()
        for index in range(len(tape)):
            waits |= {index} if tape.waits_before(index) else set()
            tape.run_call(index)
        memory: Any = Mock()
        stream: Any = None
        pieces, outputs = capture._capture_pieces(tape, waits, stream, memory)
    waited = [piece.waits if isinstance(piece, capture.Between) else piece for piece in pieces]
    called = [False] * 4
    assert waited == ["graph", *called, "graph", True, True, "graph"]
    assert torch.equal(outputs[0], overlap(*X))
    for piece in pieces[1:5]:  # each reduces its own tensor again, with the other ranks
        assert isinstance(piece, capture.Between)
        piece.run()


def test_another_process_group_is_another_call() -> None:
    with torch.no_grad():
        fast = ftax.capture(reduce, X)
        for _ in range(3):
            fast(*X)
        dist.destroy_process_group()
        with pytest.raises(ValueError, match="process group"):
            fast(*X)
        start()
        assert torch.equal(fast(*X), X[0] * 2)
    assert fast.stats().replayed == 3


def test_a_further_group_is_no_other_call() -> None:
    with torch.no_grad():
        fast = ftax.capture(reduce, X)
        fast(*X)
        dist.new_group([0])
        fast(*X)
    assert fast.stats().replayed == 2


def test_a_returned_number_is_read_after_the_collective() -> None:
    def count(x: Tensor) -> float:
        return reduce(x).sum().item()

    with torch.no_grad():
        fast = ftax.capture(count, X)
        assert [fast(X[0] * k) for k in range(4)] == [count(X[0] * k) for k in range(4)]
    assert fast.stats().replayed == 4


def test_data_parallel_settles_first() -> None:
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    fast = ftax.capture(step, X)
    for _ in range(5):
        fast(*X)
    stats = fast.stats()
    assert (stats.replayed, stats.recorded) == (3, 1)


def train_with(**options: bool) -> Callable[[Tensor], Tensor]:
    model = DistributedDataParallel(nn.Linear(4, 4), **options)

    def step(x: Tensor) -> Tensor:
        model.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        return loss

    for _ in range(3):
        step(*X)
    return step


@pytest.mark.parametrize("option", ["find_unused_parameters", "static_graph"])
def test_data_parallel_that_looks_for_unused_weights_is_refused(option: str) -> None:
    with pytest.raises(ftax.UnsupportedError, match="leave both out"):
        ftax.capture(train_with(**{option: True}), X)


def test_a_communication_hook_is_refused() -> None:
    model = DistributedDataParallel(nn.Linear(4, 4))
    model.register_comm_hook(None, lambda _, bucket: bucket_future(bucket))
    with pytest.raises(ftax.UnsupportedError, match="communication hook"):
        ftax.capture(lambda x: model(x).sum().backward(), X)


def bucket_future(bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    future: torch.futures.Future[Tensor] = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


def test_sharded_weights_are_refused() -> None:
    from torch.distributed.fsdp import fully_shard

    model = nn.Linear(4, 4)
    fully_shard(model, mesh=dist.device_mesh.init_device_mesh("cpu", (1,)))
    with pytest.raises(ftax.UnsupportedError, match=r"cannot capture .* uses a"):
        ftax.capture(lambda x: model(x).sum().backward(), X)


def test_an_error_leaves_the_backends_in_place() -> None:
    def fail(x: Tensor) -> Tensor:
        y = reduce(x)
        raise ValueError(str(y.shape))

    with torch.no_grad(), pytest.raises(ftax.UnsupportedError, match=r"collectives .*ValueError"):
        ftax.capture(fail, X)
    assert torch.equal(reduce(*X), X[0] * 2)


def test_only_one_looks_at_collectives() -> None:
    first, second = make_collectives(), make_collectives()
    first.open(_core.Answer.alone)
    with pytest.raises(ftax.UnavailableError, match="already"):
        second.open(_core.Answer.alone)
    first.close()
    second.open(_core.Answer.logged)
    reduce(*X)
    second.close()
    assert [what for what, _ in second.kept] == ["group 0: all_reduce op 0"]
    assert torch.equal(second.kept[0][1][0], X[0] * 2)


def test_other_threads_communicate_as_ever() -> None:
    collectives = make_collectives()
    collectives.open(_core.Answer.logged)
    thread = threading.Thread(target=reduce, args=X)
    thread.start()
    thread.join()
    reduce(*X)
    collectives.close()
    assert len(collectives.kept) == 1


def test_what_was_kept_is_given_again_and_nothing_else() -> None:
    collectives = make_collectives()
    collectives.open(_core.Answer.logged)
    reduce(*X)
    collectives.close()
    collectives.open(_core.Answer.kept)
    try:
        assert torch.equal(reduce(X[0] * 3), X[0] * 2)  # as before, whatever it is given
        with pytest.raises(RuntimeError, match="where the run before had none"):
            reduce(*X)
    finally:
        collectives.close()
    assert torch.equal(collectives.repeated[0][1][0], X[0] * 6)
    assert len(list_groups()) == 1
