"""Known delays, put in on purpose, appear on the right line of a step's receipt.

As bench/intervention.py does for a forward pass: a decoded window and a training step, each with a
delay in one layer and with twice that delay, all rungs of both in the same rounds. The surprising
choice: the step is as small as it can be. A line is a difference of rungs, and the rest of the step
is noise in it.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from line_changes import Line, find_changes, show_changes
from torch import nn

import ftax
from ftax.errors import RunnerError
from ftax.ladders.choice import prepare_all
from ftax.ladders.intervention import delay_launches, delay_operators, spin
from ftax.ladders.ladder import Ladder, find_ladder, name_ladder
from ftax.ladders.lines import compute_lines
from ftax.machines.environment import collect_environment
from ftax.runtimes.workspace import Workspace
from ftax.steps.decode import decode
from ftax.steps.load import load_model
from ftax.timing.candidate import Candidate
from ftax.timing.session import measure, require
from record import add_part_options, finish, make_parser, take_parts

# Beyond as much in the baseline. Large beside what two instances of one step differ by: 30 us.
_ONCE_NS = 2_000_000  # of what happens once in a run
_TOKEN_NS = 1_000_000  # of what happens once a token
_DECODE_CALL_NS, _TRAIN_CALL_NS = 10_000, 50_000  # of each operator call, and of each launch
_TOKENS = 4
_WIDTH = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Rungs:
    """A ladder that is ready, of a step or of one with a delay in it."""

    workspace: Workspace
    ladder: Ladder
    prepared: list[Candidate]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """The same rungs with a delay and with twice that delay, and what it should do to lines."""

    rungs: Rungs
    baseline: list[Candidate]
    treated: list[Candidate]
    expected_ns: dict[str, float]


def prepare(step: ftax.Step) -> Rungs:
    """Every rung that the step can have."""
    workspace = Workspace(load_model(step))
    ladder = find_ladder(name_ladder(workspace.loaded))
    places = ladder.list_places(workspace.loaded.device)
    return Rungs(
        workspace=workspace,
        ladder=ladder,
        prepared=prepare_all(workspace, places, None, ladder)[0],
    )


def compare_steps(make: Callable[[int], ftax.Step], delay_ns: int, line: str, times: int) -> Case:
    """A delay that the step has in itself, so many ``times`` a run."""
    first, second = (prepare(make(count * delay_ns)) for count in (1, 2))
    return Case(
        rungs=first,
        baseline=first.prepared,
        treated=second.prepared,
        expected_ns={line: float(times * delay_ns)},
    )


def compare_operators(step: ftax.Step, delay_ns: int, line: str) -> Case:
    """A delay before each operator call."""
    rungs = prepare(step)
    calls = len(rungs.workspace.taped.tape.operators)
    baseline, treated = (delay_operators(rungs.prepared, n * delay_ns) for n in (1, 2))
    return Case(
        rungs=rungs,
        baseline=baseline,
        treated=treated,
        expected_ns={line: float(calls * delay_ns)},
    )


def compare_launches(step: ftax.Step, delay_ns: int, above: str) -> Case:
    """A delay before each launch of launch replay: the rungs above issue theirs out of reach, so
    what launch replay takes longer is missing ``above``."""
    rungs = prepare(step)
    counts = [item.preparation.launches for item in rungs.prepared]
    launches = next((item.count for item in counts if item is not None), None)
    if launches is None:
        raise RunnerError("launch replay is not among the rungs")
    baseline, treated = (
        delay_launches(rungs.workspace, rungs.prepared, n * delay_ns) for n in (1, 2)
    )
    added = float(launches * delay_ns)
    return Case(
        rungs=rungs,
        baseline=baseline,
        treated=treated,
        expected_ns={above: -added, "launch": added},
    )


def make_decode(device: str, place: str = "", delay_ns: int = 0) -> ftax.Step:
    """A window of tokens of a tiny Llama that waits in its forward pass or in the library."""
    loaded = load_model("llama", tiny=True, sequence=16, device=device)
    step = decode(loaded.module, context=16, tokens=_TOKENS)
    if place == "forward":
        loaded.module.register_forward_pre_hook(lambda *_: spin(delay_ns))
    if place != "library":
        return replace(step, through_library=None)
    library = step.through_library
    if library is None:
        raise RunnerError("the step has no rung of its library")
    return replace(step, through_library=functools.partial(run_slowly, library, delay_ns))


def run_slowly(library: Callable[[], Any], delay_ns: int) -> Any:
    """``generate`` whose list of logits processors waits."""
    with delay_processors(delay_ns):
        return library()


@contextmanager
def delay_processors(delay_ns: int) -> Iterator[None]:
    """Each call of a list of logits processors, of which `generate` makes one a token."""
    from transformers import LogitsProcessorList

    original = LogitsProcessorList.__call__

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        spin(delay_ns)
        return original(self, *args, **kwargs)

    LogitsProcessorList.__call__ = call  # type: ignore[method-assign]
    try:
        yield
    finally:
        LogitsProcessorList.__call__ = original  # type: ignore[method-assign]


class Waiting(nn.Module):
    """A model that waits in its forward pass."""

    def __init__(self, delay_ns: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(_WIDTH, _WIDTH), nn.Linear(_WIDTH, 1)
        self.delay_ns = delay_ns

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Wait, then compute."""
        spin(self.delay_ns)
        return self.second(self.first(x).relu())


def make_train(device: str, place: str = "", delay_ns: int = 0) -> ftax.Step:
    """A training step that waits in its model, in its optimizer or in a hook of a gradient."""
    torch.manual_seed(0)
    model = Waiting(delay_ns if place == "forward" else 0).to(device)

    class Optimizer(torch.optim.AdamW):
        def step(self, closure: Any = None) -> Any:
            spin(delay_ns if place == "optimizer" else 0)
            return super().step(closure)

    weights = model.parameters()
    optimizer = Optimizer(weights, lr=1e-3, fused=True, capturable=device != "cpu")
    if place == "hook":
        model.first.weight.register_post_accumulate_grad_hook(lambda _: spin(delay_ns))
    batch = torch.randn(8, _WIDTH).to(device)
    return ftax.train(model, lambda module, x: module(x).square().mean(), optimizer, batch)


def take(make: Callable[[], Case], options: argparse.Namespace) -> dict[str, Any]:
    """Both ladders in the same rounds."""
    case = make()
    plan = ftax.Plan(
        rounds=240, round_ms=5.0, duration_s=options.duration, patience_s=options.duration / 2
    )
    loaded = case.rungs.workspace.loaded
    found = require(measure(loaded, [*case.baseline, *case.treated], plan))
    lines = compute_lines(found[: len(case.baseline)], ladder=case.rungs.ladder)
    names = [line.name for line in lines]
    missing = set(case.expected_ns) - set(names)
    if missing:
        raise RunnerError(f"the receipt has no line {missing}; it has {names}")
    expected = [case.expected_ns.get(name, 0.0) for name in names]
    injected = max(map(abs, expected))
    columns = [item.values_ns for item in found]
    return {"lines": find_changes(names, columns, expected, injected_ns=injected)}


def list_cases(device: str) -> dict[str, Callable[[], Case]]:
    """Each with the line in which its delay belongs."""
    on_gpu = device != "cpu"

    def slow(
        make: Callable[..., ftax.Step], place: str, delay_ns: int, line: str, times: int
    ) -> Callable[[], Case]:
        step = functools.partial(make, device, place)
        return lambda: compare_steps(step, delay_ns, line, times)

    library, glue, python = "library loop", "model glue", "Python and bindings"
    cases = {
        "decode: in a logits processor": slow(make_decode, "library", _TOKEN_NS, library, _TOKENS),
        "decode: in the model's forward": slow(make_decode, "forward", _TOKEN_NS, glue, _TOKENS),
        "decode: in each operator call": lambda: compare_operators(
            make_decode(device), _DECODE_CALL_NS, "dispatch" if on_gpu else "operators"
        ),
        "train: in the model's forward": slow(make_train, "forward", _ONCE_NS, python, 1),
        "train: in the optimizer": slow(make_train, "optimizer", _ONCE_NS, python, 1),
        "train: in a hook of a gradient": slow(make_train, "hook", _ONCE_NS, "autograd", 1),
    }
    if on_gpu:
        cases["decode: in each launch"] = lambda: compare_launches(
            make_decode(device), _DECODE_CALL_NS, "dispatch"
        )
        cases["train: in each launch"] = lambda: compare_launches(
            make_train(device), _TRAIN_CALL_NS, "dispatch"
        )
    return cases


def show(cells: dict[str, dict[str, Sequence[Line]]]) -> list[Any]:
    """The table, and a figure a line."""
    return show_changes([{name: cell["lines"] for name, cell in cells.items()}])


def main() -> None:
    """All cases, or those that are asked for."""
    parser = make_parser(__doc__)
    add_part_options(parser, duration_s=8.0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    cases = list_cases(options.device)
    wanted = {name: functools.partial(take, make, options) for name, make in cases.items()}
    cells = take_parts(__file__, wanted, options)
    environment = collect_environment(device=options.device).to_dict()
    finish(__file__, options, show(cells), raw=list(cells), environment=environment)


if __name__ == "__main__":
    main()
