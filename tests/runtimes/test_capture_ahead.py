"""Replays that begin before Python is compared: what was computed in vain is nobody's.

A GPU's graphs do so. Here tapes are made to, which changes when guards are looked at and nothing
else."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

import ftax
from ftax.runtimes.capture.captured import Captured
from ftax.runtimes.capture.program import TapeReplay


@pytest.fixture(autouse=True)
def _ahead(monkeypatch: pytest.MonkeyPatch, no_grad: None) -> None:
    monkeypatch.setattr(TapeReplay, "leaves_no_trace", True)


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.scale = 2.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x).relu() * self.scale


def count_replays(captured: Captured) -> list[None]:
    """One for each replay from now on."""
    replay = captured._programs[0].replay
    seen: list[None] = []

    class Counted:
        leaves_no_trace, memory_bytes = True, 0

        def __call__(self, tensors: list[torch.Tensor]) -> object:
            seen.append(None)
            return replay(tensors)

        def close(self) -> None:
            replay.close()

    captured._programs[0].replay = Counted()  # type: ignore[assignment]
    return seen


def move(model: Scaled) -> None:
    model.layer.weight.data = model.layer.weight.data.clone()


def set_scale(model: Scaled) -> None:
    model.scale = 3.0


def hook(model: Scaled) -> None:
    model.layer.register_forward_hook(lambda module, args, result: result + 1)


def resize(model: Scaled) -> None:
    model.layer = nn.Linear(4, 7)


X = torch.randn(3, 4)


@pytest.mark.parametrize(
    ("change", "in_vain"),
    [(set_scale, 1), (hook, 1), (resize, 1), (move, 0)],  # memory is looked at before
)
def test_a_change_is_found_after_the_replay_began(
    change: Callable[[Scaled], None], in_vain: int
) -> None:
    model = Scaled()
    captured = ftax.capture(model, (X,))
    first = captured._programs[0]
    replays = count_replays(captured)
    assert torch.equal(captured(X), model(X))
    assert len(replays) == 1
    change(model)
    assert torch.equal(captured(X), model(X))
    assert len(replays) == 1 + in_vain
    assert len(captured._programs) == 2
    assert first.runs_ahead == (in_vain == 0)
    assert captured._programs[0].runs_ahead  # the new one


def test_what_changes_to_and_fro_computes_in_vain_once() -> None:
    model = Scaled()
    captured = ftax.capture(model, (X,))
    replays = count_replays(captured)
    for scale in (3.0, 2.0, 3.0, 2.0, 3.0, 2.0):
        model.scale = scale
        assert torch.equal(captured(X), model(X))
    assert len(replays) == 1 + 3  # in vain, and each time that it was the right one
    assert len(captured._programs) == 2


def test_no_replay_begins_inside_of_a_mode() -> None:
    model = Scaled()
    captured = ftax.capture(model, (X,), on_refusal="eager")
    replays = count_replays(captured)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(captured(X), model(X))
    batch = torch.randn(2, 3, 4)
    assert torch.equal(torch.func.vmap(captured)(batch), torch.func.vmap(model)(batch))
    assert not replays


def test_what_leaves_a_trace_waits() -> None:
    memory = torch.zeros(3, 4)
    dropped = nn.Dropout(0.5)
    for call in (lambda x: memory.add_(x), lambda x: x.add_(1), dropped):
        captured = ftax.capture(call, (X.clone(),))
        is_pure = call is dropped  # of a tape; a graph that draws random numbers is told apart
        assert captured._programs[0].runs_ahead == is_pure


def test_a_failure_ahead_is_met_again_where_python_is_known() -> None:
    table = nn.Embedding(4, 2)
    captured = ftax.capture(table, (torch.tensor([1, 2]),))
    with pytest.raises(IndexError):  # eager's own
        captured(torch.tensor([1, 9]))
    assert not captured._programs[0].runs_ahead
    assert torch.equal(captured(torch.tensor([3, 0])), table(torch.tensor([3, 0])))
