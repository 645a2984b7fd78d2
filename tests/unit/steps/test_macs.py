"""What one inference computes and calls, against numbers worked out by hand beside each case."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from ftax.errors import RunnerError
from ftax.steps.load import load_model
from ftax.steps.loaded import LoadedModel
from ftax.steps.macs import Work, count_work
from ftax.steps.spec import TORCH_DTYPES
from ftax.tape.tape import make_tape
from support.small_models import OperatorLog, normal

DTYPES = ["fp32", "fp16", "bf16"]

# torch says so of recurrent layers in bf16 on a GPU, once a process.
unpacked_weights = pytest.mark.filterwarnings("ignore:RNN module weights are not part of single")


class Attention(nn.Module):
    """The fused operator on its own input: 2 requests, 3 heads of width 8, 5 queries, 7 keys."""

    def __init__(self, *, causal: bool = False) -> None:
        super().__init__()
        self.causal = causal
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, query: torch.Tensor, key: torch.Tensor) -> Any:
        return F.scaled_dot_product_attention(query, key, key, is_causal=self.causal)


class GroupedAttention(Attention):
    """Six query heads share three key heads."""

    def forward(self, query: torch.Tensor, key: torch.Tensor) -> Any:
        return F.scaled_dot_product_attention(
            torch.cat([query, query], dim=1), key, key, enable_gqa=True
        )


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.activation = nn.Linear(4, 4), nn.ReLU()

    def forward(self, x: torch.Tensor) -> Any:
        return self.activation(self.linear(self.activation(self.linear(x))))


class Products(nn.Module):
    """Matrix products in the forms that torch tells apart."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(normal(4, 5))

    def forward(self, x: torch.Tensor) -> Any:
        vector = self.weight[:, 0]
        # (2,3,4)x(4,5), then (2,3,4)x(2,4,3) batched, (3,4)x(4) and (4)x(4)
        return x @ self.weight, x @ x.mT, x[0] @ vector, vector @ vector


CASES: dict[str, tuple[Callable[[], nn.Module], tuple[tuple[int, ...], ...], int]] = {
    # 4 requests x 3 x 5
    "linear": (lambda: nn.Linear(3, 5), ((4, 3),), 4 * 3 * 5),
    "linear without bias on a sequence": (
        lambda: nn.Linear(3, 5, bias=False),
        ((4, 6, 3),),
        4 * 6 * 3 * 5,
    ),
    # Output 4x4; each value takes 3x3 of the 2 channels of its group.
    "grouped convolution": (
        lambda: nn.Conv2d(4, 8, 3, stride=2, padding=1, groups=2),
        ((2, 4, 7, 7),),
        2 * 8 * 4 * 4 * (2 * 9),
    ),
    "padding by name": (lambda: nn.Conv1d(3, 2, 5, padding="same"), ((2, 3, 9),), 2 * 2 * 9 * 15),
    # Each of 3x5x5 values is spread by 2 filters of 2x2.
    "transposed convolution": (
        lambda: nn.ConvTranspose2d(3, 2, 2, stride=2),
        ((1, 3, 5, 5),),
        3 * 5 * 5 * 2 * 4,
    ),
    "batch norm, pooling and softmax": (
        lambda: nn.Sequential(nn.BatchNorm2d(3), nn.AvgPool2d(2), nn.Softmax(1)),
        ((1, 3, 4, 4),),
        0,
    ),
    # Two steps of 4 gates: (6 + 5) x 5 in the first layer, (5 + 5) x 5 in the second.
    "lstm": (
        lambda: nn.LSTM(6, 5, num_layers=2, batch_first=True),
        ((3, 2, 6),),
        3 * 2 * 4 * (11 * 5 + 10 * 5),
    ),
    # Two directions of one gate.
    "rnn of two directions": (
        lambda: nn.RNN(6, 5, bidirectional=True, batch_first=True),
        ((3, 2, 6),),
        3 * 2 * 2 * 11 * 5,
    ),
    "products": (
        Products,
        ((2, 3, 4),),
        2 * 3 * 4 * 5 + 2 * 3 * 3 * 4 + 3 * 4 + 4,
    ),
}
QUERY, KEY = (2, 3, 5, 8), (2, 3, 7, 8)
ATTENTION: dict[str, tuple[Callable[[], nn.Module], tuple[tuple[int, ...], ...], int]] = {
    # Scores and weighted sum: each of 5 queries meets 7 keys of width 8 twice.
    "attention": (Attention, (QUERY, KEY), 2 * 3 * 5 * 7 * 8 * 2),
    # Masked positions count too.
    "causal attention": (lambda: Attention(causal=True), (QUERY, KEY), 2 * 3 * 5 * 7 * 8 * 2),
    "shared keys": (GroupedAttention, (QUERY, KEY), 2 * 6 * 5 * 7 * 8 * 2),
    # Four projections of 16x16, and 2 heads of 8: 16 x 16 keys in all.
    "torch's own attention": (
        lambda: SelfAttention(16, 2),
        ((2, 4, 16),),
        2 * 4 * 4 * 16 * 16 + 2 * 4 * 4 * 16 * 2,
    ),
    # The same, and two linear layers of 16x24.
    "torch's own encoder layer": (
        lambda: nn.TransformerEncoderLayer(16, 2, 24, batch_first=True),
        ((2, 4, 16),),
        2 * 4 * (4 * 16 * 16 + 2 * 16 * 24) + 2 * 4 * 4 * 16 * 2,
    ),
}
CASES.update(ATTENTION)


class SelfAttention(nn.MultiheadAttention):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__(width, heads, batch_first=True)

    def forward(self, x: torch.Tensor) -> Any:  # type: ignore[override]
        return super().forward(x, x, x, need_weights=False)[0]


def load_case(name: str, dtype: Any, device: str = "cpu") -> LoadedModel:
    build, shapes, _ = CASES[name]
    kind = TORCH_DTYPES[dtype]
    module = build().to(device, kind)
    return load_model(module, inputs=tuple(normal(*shape).to(device, kind) for shape in shapes))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CASES)
def test_multiply_accumulates_are_those_by_hand(name: str, dtype: str) -> None:
    assert count_work(load_case(name, dtype)).macs == CASES[name][2]


@pytest.mark.needs_cuda
@unpacked_weights
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CASES)
def test_multiply_accumulates_are_those_by_hand_on_a_gpu(name: str, dtype: str) -> None:
    assert count_work(load_case(name, dtype, "cuda")).macs == CASES[name][2]


@pytest.mark.needs_cuda
@unpacked_weights
@pytest.mark.parametrize("name", ["bert-base", "gpt2", "resnet-50", "layer-lstm"])
def test_gpu_and_cpu_do_the_same_work(name: str) -> None:
    on_cpu = count_work(load_model(name, tiny=True)).macs
    for dtype in DTYPES:
        on_gpu = load_model(name, tiny=True, device="cuda", dtype=dtype)  # type: ignore[arg-type]
        assert count_work(on_gpu).macs == on_cpu


@pytest.mark.parametrize("name", ["bert-base", "gpt2"])
def test_fused_attention_counts_as_the_products_that_it_replaces(name: str) -> None:
    fused, eager = (
        count_work(load_model(name, tiny=True, attention=attention)).macs
        for attention in ("sdpa", "eager")
    )
    assert fused == eager > 0


def test_bert_does_the_work_that_its_shapes_say() -> None:
    # 12 layers: 4 projections of 32x32, 2 of 32x64, 8 tokens; attention of 8 x 8; then the pooler
    # on one token.
    expected = 12 * (8 * (4 * 32 * 32 + 2 * 32 * 64) + 2 * 8 * 8 * 32) + 32 * 32
    assert count_work(load_model("bert-base", tiny=True)).macs == expected


def test_work_grows_with_the_batch_and_calls_do_not() -> None:
    one, four = (count_work(load_model("resnet-50", tiny=True, batch=n)) for n in (1, 4))
    assert four == Work(macs=4 * one.macs, operators=one.operators, modules=one.modules)


def test_operators_are_those_of_the_tape(tiny_zoo: Any) -> None:
    model = tiny_zoo.loaded
    with torch.inference_mode(), OperatorLog() as log:
        model.call()
    assert count_work(model).operators == len(log.names)
    assert count_work(model).operators == len(make_tape(model).tape.visible_operators)


def test_modules_are_calls_of_modules_without_children() -> None:
    work = count_work(load_model(Twice(), inputs=normal(2, 4)))
    assert work == Work(macs=2 * 2 * 4 * 4, operators=4, modules=4)


def test_counting_leaves_nothing_behind() -> None:
    model = load_model(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), inputs=normal(2, 4))
    state = torch.get_rng_state()
    first = count_work(model)
    hooks = nn.modules.module._global_forward_pre_hooks
    assert len(hooks) == 0
    assert count_work(model) == first
    assert torch.equal(torch.get_rng_state(), state)


def test_hooks_are_removed_when_the_model_fails() -> None:
    class Broken(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            raise ValueError("no forward")

    model = load_model(Broken(), inputs=normal(2))
    with pytest.raises((ValueError, RunnerError), match="no forward"):
        count_work(model)
    assert len(nn.modules.module._global_forward_pre_hooks) == 0
    assert count_work(load_model(nn.Linear(4, 4), inputs=normal(2, 4))).macs == 32
