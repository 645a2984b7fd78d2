"""Which values of a recorded call come from its inputs, and which are the same in every replay."""

import numpy as np
import pytest
import torch
from torch import library, nn
from torch.utils import _pytree as pytree

import ftax
from ftax.captures.graph import bake_transfers
from ftax.tape.flow import Flow
from ftax.tape.recording import record
from support.captures import assert_same
from support.small_models import load_function

pytestmark = pytest.mark.usefixtures("record_at_once")


def test_values_flow_through_views_and_writes():
    weight = torch.ones(3)

    def run(x: torch.Tensor) -> torch.Tensor:
        own = torch.zeros(3)  # 0: depends on nothing
        view = own.view(3)
        kept = torch.arange(3) + 1  # stays so
        view.add_(x)  # from here own depends on x
        return own * weight + kept

    x = torch.randn(3)
    tape, _ = record(lambda: run(x), inputs=[x], module=None, device="cpu", state=[weight])
    names = [call["operator"] for call in tape.calls]
    dependent = {names[index] for index in Flow(tape).calls}
    assert "aten::arange" not in dependent
    assert {"aten::view", "aten::add_.Tensor", "aten::mul.Tensor"} <= dependent


def test_an_operator_made_of_others_joins_only_what_shares_memory():
    x = torch.randn(4)

    def run() -> list[torch.Tensor]:
        floor = torch.zeros(())  # same each time
        chosen = torch.where(x > 0, floor, -1.0)  # which may return none of what it was given
        steady = torch.ones(4)
        passed = nn.functional.dropout(steady, 0.5, training=False)  # the very tensor
        return [chosen + x, passed.add_(x), floor + 1]

    tape, _ = record(run, inputs=[x], module=None, device="cpu")
    flow = Flow(tape)
    zeros, ones = (
        next(call["outputs"][0] for call in tape.calls if call["operator"] == f"aten::{name}")
        for name in ("zeros", "ones")
    )
    assert not flow.depends(zeros)
    assert flow.depends(ones)


def test_only_reads_that_depend_are_compared(no_grad: None):
    def run(x: torch.Tensor) -> torch.Tensor:
        size = int(torch.tensor(3.0).sqrt().floor())  # on the host, and the same each time
        return x[:size] + 1 if bool((x > -100).all()) else x[:size]

    captured = ftax.capture(run, torch.randn(3), on_host_read="check")
    facts = captured.explain().programs[0]
    assert facts.checked == 1
    assert len(facts.baked) == 1
    for given in (torch.randn(3), torch.full((3,), -200.0)):
        assert_same(captured, run, given)


def test_a_tensor_that_the_call_makes_unseen_depends_on_nothing_unless_it_outlives_the_call():
    x, kept, numbers = torch.rand(3, 4), torch.tensor([2, 0]), np.array([1, 2])

    def run() -> list[torch.Tensor]:
        mask = torch.zeros(3, 4)
        mask[0] = 1  # a tensor of this number that nobody holds
        return [mask + 1, x.new_ones(2) * kept, x.new_ones(2) * torch.from_numpy(numbers)]

    tape, _ = record(run, inputs=[x], module=None, device="cpu", observer="dispatch-key")
    assert len(tape.passing_slots) == 1
    flow = Flow(tape)
    names = [tape.calls[index]["operator"] for index in sorted(flow.calls)]
    assert names.count("aten::mul.Tensor") == 2
    assert "aten::fill_.Tensor" not in names
    assert "aten::add.Tensor" not in names
    filled = next(i for i, call in enumerate(tape.calls) if call["operator"] == "aten::zeros")
    (mask,) = tape.calls[filled]["outputs"]
    assert flow.is_written(mask, after=filled)
    assert not flow.is_written(mask, after=len(tape))


def make_count(x: torch.Tensor) -> torch.Tensor:
    return torch.tensor(x.size(0))  # by TorchScript, where no operator call makes it


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_tensor_that_python_still_holds_outlives_the_call():
    x, held, count_rows = torch.rand(3, 4), [], torch.jit.script(make_count)

    def run() -> list[torch.Tensor]:
        passing, kept = count_rows(x), count_rows(x)
        held.append(kept)
        return [x * passing, x * kept]

    run()  # TorchScript compiles
    tape, _ = record(run, inputs=[x], module=None, device="cpu", observer="dispatch-key")
    assert len(tape.passing_slots) == 1
    flow, captured = (
        Flow(tape),
        [slot for slot, _ in tape.constants if slot not in tape.input_slots],
    )
    assert sum(flow.depends(slot) for slot in captured) == 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_sizes_that_torchscript_asks_for_are_no_values(no_grad: None):
    @torch.jit.script
    def scale(x: torch.Tensor) -> torch.Tensor:
        return x * x.size(0)

    def choose(x: torch.Tensor) -> torch.Tensor:
        return scale(torch.masked_select(x, x > 0)).sum()

    with torch.jit.optimized_execution(False):
        x = torch.rand(3, 4)
        captured = ftax.capture(scale, x)
        assert_same(captured, scale, torch.rand(3, 4))
        assert_same(captured, scale, torch.rand(5, 4))  # recorded anew
        assert captured.explain().calls["recorded"] == 2
        with pytest.raises(ftax.UnsupportedError, match="values make the sizes"):
            ftax.capture(choose, x)


def test_a_length_that_attention_returns_is_no_value(no_grad: None):
    """Of torch's own operators: another's may declare any number as a size."""
    own = library.Library("ftax_lengths", "DEF")
    own.define("count(Tensor x) -> SymInt")
    own.impl("count", lambda x: int((x > 9).sum()), "CPU")
    kernel = library.Library("aten", "IMPL")

    def attend(q, k, v, *others, **more):
        scores = (q @ k.transpose(-1, -2)).softmax(-1)
        none = torch.empty(0)
        return scores @ v, none, none, none, q.shape[2], k.shape[2], none, none, none

    kernel.impl("_scaled_dot_product_fused_attention_overrideable", attend, "CPU")
    fused = torch.ops.aten._scaled_dot_product_fused_attention_overrideable
    try:
        q = torch.randn(1, 2, 3, 4)

        def run(x):
            return fused(x, x, x)[0] * 2

        captured = ftax.capture(run, q)
        assert_same(captured, run, torch.randn(1, 2, 3, 4))
        assert captured.explain().calls == {"recorded": 1, "replayed": 1}
        with pytest.raises(ftax.UnsupportedError, match=r"ftax_lengths::count.*reads a number"):
            ftax.capture(lambda x: x * torch.ops.ftax_lengths.count(x), q)
    finally:
        kernel._destroy()
        own._destroy()


def test_baked_places_are_constants_of_every_run():
    x = torch.rand(4)

    def run() -> torch.Tensor:
        return (torch.arange(4) * 2 + x) * torch.tensor([1.0, 2.0, 3.0, 4.0])

    tape, (expected,) = record(lambda: [run()], inputs=[x], module=None, device="cpu")
    operators = [call["operator"] for call in tape.calls]
    index = operators.index("aten::mul.Tensor")
    (doubled,) = tape.calls[index]["outputs"]
    last = len(tape) - 1
    factor = tape.calls[last]["arguments"][1][1]
    baked = tape.bake([(index, doubled, torch.arange(4) * 2), (last, factor, torch.ones(4))])
    assert len(baked) == len(tape) - 1
    with torch.inference_mode():
        for _ in range(3):
            assert torch.equal(baked.run()[0], torch.arange(4) * 2 + x)
            assert torch.equal(tape.run()[0], expected)


def test_copies_to_a_device_that_are_the_same_each_time_are_taken_out():
    x = torch.empty(3, 4, device="meta")  # for a GPU: another device than the host, in any build
    kept = torch.ones(4)

    def run() -> torch.Tensor:
        mask = torch.zeros(4)
        mask[0] = 1  # on the host
        own = torch.zeros_like(x)
        own[0] = mask  # from there into memory of the device
        written = torch.ones(4).to("meta")
        written.add_(1)  # so it is another each time that it is not made anew
        chosen = x[:, torch.tensor([0, 1, 2, 3])]
        same = mask.to("meta").detach_()  # as torch.tensor leaves it
        return x * same + own + chosen + written + kept.to("meta")

    tape, _ = record(run, inputs=[x], module=None, device="cpu", observer="dispatch-key")
    loaded = load_function(lambda x: x + 1)
    baked = bake_transfers(loaded, tape)
    moved, left = (
        [call["operator"] for call in one.calls].count("aten::to.dtype_layout")
        for one in (tape, baked)
    )
    assert (moved, left) == (3, 2)  # of what is written later, and of what was there before
    assert baked.run()[0].shape == (3, 4)
    for index, call in enumerate(baked.calls):
        devices = {
            item.device.type
            for item in pytree.tree_leaves(baked.arguments(index))
            if isinstance(item, torch.Tensor)
        }
        assert len(devices) < 2 or call["operator"] == "aten::to.dtype_layout"
    assert bake_transfers(loaded, baked) is baked
