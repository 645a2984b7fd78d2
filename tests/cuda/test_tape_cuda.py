"""What a tape on a GPU has to refuse: memory that something filled without an operator call."""

import pytest
import torch

import ftax
from ftax.errors import UnsupportedError
from ftax.steps.load import load_model
from ftax.tape.tape import make_tape
from support.small_models import Grows, Lambda

pytestmark = pytest.mark.needs_cuda


def load(function):
    x, other = torch.randn(2, 1024, device="cuda")
    return load_model(Lambda(function).cuda(), inputs=x, check_inputs=other)


def test_a_triton_kernel_that_is_launched_directly_is_refused() -> None:
    pytest.importorskip("triton")

    def forward(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        _double[(1,)](x, y, x.numel(), BLOCK=1024)
        return y + 1

    with pytest.raises(UnsupportedError, match=r"Triton kernel _double by itself.*triton_op"):
        make_tape(load(forward))


def test_memory_that_nothing_wrote_is_refused_where_it_is_read() -> None:
    with pytest.raises(UnsupportedError, match="memory of the GPU that no operator call wrote"):
        make_tape(load(lambda x: torch.empty_like(x) + x))


def test_memory_that_a_call_wrote_is_none_of_that() -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        torch.mul(x, 2, out=y)
        z = torch.empty(4, 256, device=x.device)
        z[0] = x[:256]
        z[1:].zero_()
        return y + torch.zeros_like(torch.empty_like(x)) + z.view(-1)

    assert make_tape(load(forward)).checks.outputs.bitwise


def test_copies_to_the_host_are_host_reads() -> None:
    taped = make_tape(load(lambda x: (x.sum().cpu(), x + 1)[1]))
    assert any(text.startswith("aten::") for text in taped.checks.details["host_reads"])


def test_a_receipt_of_work_that_changes_says_so_on_a_gpu() -> None:
    receipt = ftax.tax(
        Grows(), (torch.randn(8, device="cuda"),), runtimes="none", trace="none",
        plan=ftax.Plan(rounds=3, warmup=2),
    )  # fmt: skip
    assert receipt.work_problem
    assert receipt.recommendation.startswith("Not the same work")


try:
    import triton
    import triton.language as tl
except ImportError:
    pass
else:

    @triton.jit
    def _double(x_pointer, y_pointer, count, BLOCK: tl.constexpr):
        places = tl.arange(0, BLOCK)
        mask = places < count
        tl.store(y_pointer + places, 2 * tl.load(x_pointer + places, mask=mask), mask=mask)
