"""What a captured graph does around its launch, with a graph that runs on the CPU."""

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch

from ftax.captures import graph
from ftax.captures.graph import GraphReplay
from ftax.errors import UnsupportedError
from ftax.timing.candidate import Buffers


class Stream:
    """Notes whom it waits for."""

    def __init__(self) -> None:
        self.waited_for: list[object] = []

    def wait_stream(self, other: object) -> None:
        self.waited_for.append(other)


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> dict[str, Stream]:
    now = {"stream": Stream()}
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: now["stream"])
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 0, raising=False)
    number = "_cuda_getCurrentRawStream"  # which a build for CPUs does not have
    monkeypatch.setattr(torch._C, number, lambda device: id(now["stream"]), raising=False)
    return now


def make_replay(
    run: Callable[..., list[torch.Tensor]],
    inputs: list[torch.Tensor],
    *,
    constants: tuple[torch.Tensor, ...] = (),
    mutated: bool = False,
    borrows: bool = False,
) -> GraphReplay:
    """``run(*inputs)`` writes where it wrote before: outputs are made by its first call."""
    outputs = run(*inputs)

    def replay() -> None:
        with torch.inference_mode(outputs[0].is_inference()):
            for output, now in zip(outputs, run(*inputs), strict=True):
                if output is not now and 0 not in output.stride():
                    output.copy_(now)

    captured = SimpleNamespace(
        buffers=Buffers(
            inputs=tuple(inputs), outputs=tuple(outputs), constants=constants, mutated=mutated
        ),
    )
    made = GraphReplay(captured, torch.device("cuda", 0), launch=replay, borrows=borrows)
    made.places = list(range(len(outputs)))
    return made


def test_inputs_are_copied_in_and_results_out(streams: dict[str, Stream]):
    replay = make_replay(lambda x: [x * 2], [torch.zeros(3)])
    (first,) = replay([torch.ones(3)])
    (second,) = replay([torch.full((3,), 5.0)])
    assert first.tolist() == [2.0] * 3 and second.tolist() == [10.0] * 3


def test_what_is_in_place_is_not_copied_and_what_is_borrowed_neither(streams: dict[str, Stream]):
    own = torch.zeros(3)
    replay = make_replay(lambda x: [x * 2], [own], borrows=True)
    (first,) = replay([own.fill_(1.0)])
    (second,) = replay([torch.full((3,), 5.0)])
    assert first.data_ptr() == second.data_ptr() and first.tolist() == [10.0] * 3


def test_gradients_stay_the_graphs_own(streams: dict[str, Stream]):
    replay = make_replay(lambda x: [x + 1, x * 2], [torch.zeros(3)])
    replay.borrow([1])
    (loss, grad), (_, again) = replay([torch.ones(3)]), replay([torch.zeros(3)])
    assert loss.tolist() == [2.0] * 3
    assert grad.data_ptr() == again.data_ptr()


def test_a_view_of_an_input_is_one_of_the_callers(streams: dict[str, Stream]):
    replay = make_replay(lambda x: [x[1:], x, x.view(2, 2)], [torch.zeros(4)])
    memory = torch.arange(10.0)
    given = memory[3:7]
    view, same, square = replay([given])
    assert same is given
    assert view.tolist() == [4.0, 5.0, 6.0] and square.shape == (2, 2)
    memory.zero_()
    assert view.tolist() == [0.0] * 3 and square.sum() == 0


def test_results_that_share_memory_still_do(streams: dict[str, Stream]):
    def run(x: torch.Tensor) -> list[torch.Tensor]:
        made = x * 2
        return [made, made[1], made.expand(2, 3)]

    made, part, wide = make_replay(run, [torch.zeros(3)])([torch.ones(3)])
    made.fill_(7.0)
    assert part.item() == 7.0 and wide.stride() == (0, 1) and wide.tolist() == [[7.0] * 3] * 2


def test_what_is_written_into_an_input_is_the_callers(streams: dict[str, Stream]):
    replay = make_replay(lambda x: [x.add_(1.0).sum()], [torch.zeros(3)], mutated=True)
    given = torch.ones(3)
    replay([given])
    assert given.tolist() == [2.0] * 3


def test_a_weight_that_is_returned_is_the_weight(streams: dict[str, Stream]):
    weight = torch.ones(3)
    replay = make_replay(lambda x: [weight, x + 1], [torch.zeros(3)], constants=(weight,))
    assert replay([torch.ones(3)])[0] is weight


def test_results_of_inference_mode_can_be_written_and_saved_outside_it(
    streams: dict[str, Stream],
):
    own = torch.zeros(3)
    with torch.inference_mode():
        replay = make_replay(lambda x: [x * 2], [own], borrows=True)
    (found,) = replay([torch.ones(3)])
    found.add_(1.0)
    assert not found.is_inference() and found.tolist() == [3.0] * 3


def test_another_stream_waits_for_the_one_before(streams: dict[str, Stream]):
    replay = make_replay(lambda x: [x * 2], [torch.zeros(3)])
    first = streams["stream"]
    replay([torch.ones(3)])
    replay([torch.ones(3)])
    assert first.waited_for == []
    second = streams["stream"] = Stream()
    replay([torch.ones(3)])
    assert second.waited_for == [first]


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ([torch.ones(3).expand(2, 3)], "input 0 is expanded"),
        ([torch.ones(4), torch.ones(4)[1:]], None),
    ],
)
def test_layouts_that_a_graph_cannot_have(inputs: list[torch.Tensor], words: str | None):
    if words is None:
        graph.check_layouts(inputs, "f")
        shared = [inputs[0], inputs[0][1:]]
        with pytest.raises(UnsupportedError, match="share memory"):
            graph.check_layouts(shared, "f")
        return
    with pytest.raises(UnsupportedError, match=words):
        graph.check_layouts(inputs, "f")
