"""Second inputs that ftax draws are valid for odd models, or the user's own take their place.

What is looked at is that nothing was said. A model that drawn values break is still captured, on
its own inputs, with a note.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import ftax
from ftax.runtimes.workspace import Workspace
from ftax.steps.load import load_model
from ftax.steps.loaded import LoadedModel
from support.small_models import normal


class Calls(nn.Module):
    def __init__(self, function: Callable[..., Any], *parts: nn.Module) -> None:
        super().__init__()
        self.function, self.parts = function, nn.ModuleList(parts)

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(*self.parts, *inputs)


def pool(values: Tensor, pointers: Tensor) -> Tensor:
    """Rows of a compressed matrix, which share nothing and leave nothing out."""
    torch._assert_async((pointers[-1] == len(values)) & (pointers.diff() > 0).all())
    return torch.segment_reduce(values, "sum", offsets=pointers)


def run_packed(lstm: nn.Module, x: Tensor, lengths: Tensor) -> Tensor:
    packed = pack_padded_sequence(x, lengths, batch_first=True)
    return pad_packed_sequence(lstm(packed)[0], batch_first=True, total_length=6)[0]


def undo(x: Tensor, order: Tensor) -> Tensor:
    return torch.empty_like(x).index_copy(0, order, x)


def look_up_pairs(users: nn.Module, items: nn.Module, pairs: Tensor) -> Tensor:
    return users(pairs[:, 0]) + items(pairs[:, 1])


def pass_along_edges(table: nn.Module, x: Tensor, edges: Tensor) -> Tensor:
    return torch.zeros(3, 4).index_add(0, edges[1], x[edges[0]] + table(edges[1]))


def repeat(x: Tensor, counts: Tensor) -> Tensor:
    return torch.repeat_interleave(x, counts, dim=0, output_size=9) + torch.ones(9, 1)


def check_rows_and_score(p: Tensor, q: Tensor) -> Tensor:
    torch._assert_async(((p.sum(-1) - 1).abs() < 1e-5).all())
    return F.binary_cross_entropy(p, q)


def check_one_of_many(x: Tensor) -> Tensor:
    torch._assert_async((x.sum(-1) == 1).all())
    return x.argmax(-1)


ODD: dict[str, tuple[nn.Module, tuple[Tensor, ...]]] = {
    "offsets": (nn.EmbeddingBag(9, 4), (torch.arange(8), torch.tensor([0, 3, 5]))),
    "row pointers": (Calls(pool), (normal(8, 2), torch.tensor([0, 1, 5, 8]))),
    "counts": (Calls(repeat), (normal(3, 2), torch.tensor([2, 6, 1]))),
    "a permutation": (Calls(undo), (normal(5, 2), torch.tensor([3, 1, 0, 4, 2]))),
    "probabilities": (
        Calls(check_rows_and_score),
        (normal(4, 6).softmax(-1), torch.rand(4, 6)),
    ),
    "a covariance": (
        Calls(torch.linalg.cholesky),
        (normal(4, 4) @ normal(4, 4).t() + 5 * torch.eye(4),),
    ),
    "one of many": (
        Calls(check_one_of_many),
        (F.one_hot(torch.tensor([2, 0, 1, 1])),),
    ),
    "pairs": (
        Calls(look_up_pairs, nn.Embedding(50, 4), nn.Embedding(3, 4)),
        (torch.stack((torch.arange(40, 49), torch.arange(9) % 3), 1),),
    ),
    "edges": (
        Calls(pass_along_edges, nn.Embedding(3, 4)),
        (normal(60, 4), torch.stack((torch.arange(51, 60), torch.arange(9) % 3))),
    ),
    "packed lengths": (
        Calls(run_packed, nn.LSTM(4, 3, batch_first=True)),
        (normal(3, 6, 4), torch.tensor([6, 5, 2])),
    ),
    "labels to ignore": (
        Calls(F.cross_entropy),
        (normal(6, 3), torch.tensor([0, -100, 2, 1, -100, 0])),
    ),
}
# Lengths shape what comes out, so no tape is of all lengths.
LENGTHS = ("packed lengths",)


def load(name: str) -> LoadedModel:
    module, inputs = ODD[name]
    return load_model(module.eval(), inputs=inputs)


@pytest.mark.parametrize("name", ODD)
def test_drawn_values_are_valid_for_odd_models(name: str) -> None:
    loaded = Workspace(load(name)).loaded
    assert not [note for note in loaded.warnings if "checked on one input" in note]
    loaded.call_check()


@pytest.mark.parametrize("name", [name for name in ODD if name not in LENGTHS])
def test_odd_models_are_captured(name: str) -> None:
    module, inputs = ODD[name]
    with torch.no_grad():
        fast = ftax.capture(module.eval(), inputs)
        assert torch.equal(fast(*inputs), module(*inputs))


class Picky(nn.Module):
    """Takes tensors of a certain sum alone."""

    def __init__(self, answer: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.answer = answer

    def forward(self, x: Tensor) -> Tensor:
        return self.answer(x) + x


def fail(x: Tensor) -> Tensor:
    torch._assert_async(x[0, 1] == 7)
    return x


def give_nan(x: Tensor) -> Tensor:
    return (x[0, 1] - 7).abs().neg().sqrt()


@pytest.mark.parametrize(
    ("answer", "words"), [(fail, "Picky raised RuntimeError"), (give_nan, "Picky gives NaN")]
)
def test_where_drawn_values_are_invalid_its_own_are_used_and_it_is_said(
    answer: Callable[[Tensor], Tensor], words: str
) -> None:
    x = normal(2, 3)
    x[0, 1] = 7
    loaded = Workspace(load_model(Picky(answer), inputs=(x,))).loaded
    assert torch.equal(loaded.check_args[0], x)
    note = loaded.warnings[-1]
    assert "checked on one input: on values that ftax drew" in note and "check_inputs=" in note
    assert words in note


def test_a_later_length_is_recorded_on_its_own_inputs_where_drawn_ones_are_invalid(
    record_at_once: None,
) -> None:
    def make(length: int, start: float = 7.0) -> Tensor:
        x = normal(2, length, seed=length)
        x[0, 1] = 7
        x[1, 0] = start
        return x

    model = Picky(fail)
    with torch.no_grad():
        fast = ftax.capture(model, (make(3),), check_inputs=(make(3, 5.0),))
        for length in (3, 5, 5):
            assert torch.equal(fast(make(length)), model(make(length)))
    assert fast.explain().calls["recorded"] == 2 and fast.explain().calls["replayed"] == 3


def test_a_receipt_says_that_one_input_was_checked_and_blames_no_model() -> None:
    x = normal(2, 3)
    x[0, 1] = 7
    text = " ".join(str(ftax.tax(Picky(fail), (x,), runtimes="none", plan=QUICK).details).split())
    assert "checked on one input: on values that ftax drew" in text
    assert "gives other outputs" not in text


QUICK = ftax.Plan(rounds=3, warmup=2, round_ms=0.5)
