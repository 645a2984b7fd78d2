"""Receipts of steps: a delay that is planted in one layer lies in its line, and in no other.

Each delay is a busy wait many times as long as its line's interval, and stands in the place of an
equal wait of no length, so that what the call itself costs is not part of it.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import nn

import ftax
from delays import find_moves, spin
from ftax.ladders.ladder import find_ladder, name_ladder
from ftax.ladders.lines import compute_lines
from ftax.runtimes.catalogue import find_runtime
from ftax.runtimes.workspace import Workspace
from ftax.steps.decode import decode
from ftax.steps.given import use_threads
from ftax.steps.load import load_model
from ftax.steps.loaded import LoadedModel
from ftax.steps.setting import CacheKind
from ftax.steps.zoo.huggingface import quiet_transformers
from ftax.timing.candidate import Candidate
from ftax.timing.session import measure as measure_candidates
from ftax.timing.session import require

DELAY_NS = 1_000_000
PLAN = ftax.Plan(rounds=16, warmup=5, round_ms=6.0, duration_s=60.0)
QUICK = ftax.Plan(rounds=5, warmup=1, round_ms=1.0)


def prepare_rungs(step: ftax.Step) -> tuple[LoadedModel, list[Candidate]]:
    loaded = load_model(step)
    workspace = Workspace(loaded)
    places = find_ladder(name_ladder(loaded)).list_places("cpu")
    return loaded, [find_runtime(runtime).prepare(workspace, host) for runtime, host in places]


def find_shifts(before: ftax.Step, after: ftax.Step) -> dict[str, tuple[float, float]]:
    """By how much each line has grown, in planted delays, as an interval; both are timed in the
    same rounds."""
    loaded, old = prepare_rungs(before)
    _, new = prepare_rungs(after)
    ladder = find_ladder(name_ladder(loaded))
    with use_threads(1):
        found = require(measure_candidates(loaded, [*old, *new], PLAN))
    names = [line.name for line in compute_lines(found[: len(old)], ladder=ladder)]
    moves = find_moves(found[: len(old)], found[len(old) :])
    return {
        name: (low / DELAY_NS, high / DELAY_NS)
        for name, (_, (low, high)) in zip(names, moves, strict=True)
    }


def check_shifts(shifts: dict[str, tuple[float, float]], line: str | None, delays: float) -> None:
    """The delay lies in its line's interval, and 0 in all others', give or take what a neighbour
    costs whose code evicts ours from the caches while we spin."""
    for name, (low, high) in shifts.items():
        wanted = delays if name == line else 0.0
        assert low - 0.3 * delays <= wanted <= high + 0.3 * delays, shifts


class Waiting(nn.Module):
    """A model that may wait in its forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 16), nn.Linear(16, 1)
        self.wait_ns = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        spin(self.wait_ns)
        return self.second(self.first(x).relu())


def make_train(place: str, wait_ns: int) -> ftax.Step:
    torch.manual_seed(0)
    model = Waiting()

    class Optimizer(torch.optim.SGD):
        def step(self, closure=None):
            spin(wait_ns if place == "optimizer" else 0)
            return super().step(closure)

    optimizer = Optimizer(model.parameters(), lr=1e-3, fused=True)
    model.wait_ns = wait_ns if place == "forward" else 0
    model.first.weight.register_post_accumulate_grad_hook(
        lambda _: spin(wait_ns if place == "hook" else 0)
    )

    def run(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    def reset() -> None:
        spin(wait_ns if place == "reset" else 0)

    return ftax.step(run, (torch.randn(4, 16),), reset=reset, units=4)


@pytest.mark.timing
@pytest.mark.parametrize(
    ("place", "line"),
    [
        ("forward", "Python and bindings"),
        ("optimizer", "Python and bindings"),
        ("hook", "autograd"),
        ("reset", None),
    ],
)
def test_a_delay_in_training_lies_in_its_line(place: str, line: str | None):
    shifts = find_shifts(make_train(place, 0), make_train(place, DELAY_NS))
    assert list(shifts) == ["Python and bindings", "autograd", "operators"]
    check_shifts(shifts, line, 1.0)


@pytest.mark.timing
def test_a_delay_in_the_library_lies_in_its_line():
    model = load_model("llama", tiny=True, sequence=4).module
    step = decode(model, context=4, tokens=1)
    library = step.through_library
    assert library is not None

    def make(wait_ns: int) -> ftax.Step:
        def slower() -> object:
            spin(wait_ns)
            return library()

        return replace(step, through_library=slower)

    check_shifts(find_shifts(make(0), make(3 * DELAY_NS)), "library loop", 3.0)


def make_llama() -> nn.Module:
    with quiet_transformers() as transformers:
        return transformers.LlamaForCausalLM(
            transformers.LlamaConfig(
                hidden_size=32,
                intermediate_size=64,
                num_hidden_layers=2,
                num_attention_heads=4,
                vocab_size=200,
            )
        )


def make_t5() -> nn.Module:
    with quiet_transformers() as transformers:
        return transformers.T5ForConditionalGeneration(
            transformers.T5Config(d_model=32, d_kv=8, d_ff=64, num_layers=2, vocab_size=200)
        )


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("make", [make_llama, make_t5])
def test_the_ladder_of_decoding_begins_with_the_library(
    make: Callable[[], nn.Module], cache: CacheKind
):
    step = decode(make(), context=4, tokens=4, cache=cache)
    receipt = ftax.tax(
        step, plan=QUICK, runtimes="none", operators=False, threads=1, progress=False
    )
    assert [line.name for line in receipt.lines] == [
        "library loop",
        "model glue",
        "interpreter and bindings",
        "operators",
    ]
    assert sum(line.time_ns for line in receipt.lines) == pytest.approx(receipt.latency_ns)
    assert {str(rung.place): rung.cell.units for rung in receipt.rungs} == {
        "library/python": 4,
        "eager/python": 4,
        "flat/python": 4,
        "eager/cpp": 4,
    }
    assert not receipt.work_problem
    text = str(receipt)
    assert "decode step of 4 tokens" in text and "a token" in text


@pytest.mark.timing
def test_a_step_with_state_costs_what_it_costs_without() -> None:
    """Putting back is outside the timed region."""
    memory = torch.zeros(1 << 16)  # large: once a round
    counts = torch.zeros(64, dtype=torch.int64)  # decisive: before each sample

    def make(writes: bool) -> Callable[[torch.Tensor], torch.Tensor]:
        def run(x: torch.Tensor) -> torch.Tensor:
            target, number = (memory, counts) if writes else (memory.clone(), counts.clone())
            number.add_(1)
            return target.add_(x).sum()

        return run

    with torch.inference_mode():
        x = torch.ones(1)
        plain, kept = (ftax.step(make(writes), (x,), name=str(writes)) for writes in (False, True))
        times = [ftax.py_bench(s, plan=PLAN, threads=1, progress=False) for s in (plain, kept)]
    assert times[1].latency_ns < times[0].latency_ns  # which makes two copies in its own time
