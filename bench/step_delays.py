"""Known delays, put in on purpose, appear on the right line of a step's receipt.

As bench/intervention.py does for a forward pass: a decoded window and a training step, each with a
delay in one layer and with twice that delay, all rungs of both in the same rounds. The step is as
small as it can be: a line is a difference of rungs, and the rest of the step is noise in it. How
long the delay is depends on the machine, since one that lies within a line's noise proves nothing.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from line_changes import Line, find_changes, show_changes
from torch import nn

import ftax
from delays import delay_launches, delay_operators, spin
from ftax.errors import RunnerError
from ftax.ladders.choice import prepare_all
from ftax.ladders.ladder import Ladder, find_ladder, name_ladder
from ftax.ladders.lines import compute_lines
from ftax.runtimes.workspace import Workspace
from ftax.steps.decode import decode
from ftax.steps.load import load_model
from ftax.timing.candidate import Candidate
from ftax.timing.session import measure, require
from record import Figure, add_part_options, make_parser, run_parts

# The least, beyond as much in the baseline: large beside what two tapes of one step differ by.
# Beside an H100 a step that had waited for 4 ms took 0.06 to 0.18 ms more than after 2, besides the
# wait itself; caches that have gone cold would do that, and have after 10.
_ONCE_NS = 10_000_000  # of what happens once in a run
_TOKEN_NS = 1_000_000  # of what happens once a token
_DECODE_CALL_NS, _TRAIN_CALL_NS = 10_000, 50_000  # of each operator call, and of each launch
_INTERVALS = 10.0  # a delay is at least as many half-widths of the widest line's interval
_PILOT = 0.3  # of the time, for looking how wide they are
_LONGEST = 50.0  # times the least delay: beside a busy neighbour a pilot would ask for seconds
_TOKENS = 4
_WIDTH = 64


@dataclass(slots=True)
class Dial:
    """How long code waits that runs with one delay or with two."""

    delay_ns: int = 0
    count: int = 1

    def spin(self) -> None:
        """Wait."""
        spin(self.count * self.delay_ns)

    def set(self, count: int) -> None:
        """As `Step.reset` does before each run."""
        self.count = count


class Arranged(NamedTuple):
    """The same rungs with a delay and with twice that delay, and what it should do to lines."""

    baseline: list[Candidate]
    treated: list[Candidate]
    expected_ns: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rungs:
    """A ladder that is ready."""

    workspace: Workspace
    ladder: Ladder
    prepared: list[Candidate]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Where a delay is put, which can be of any length."""

    rungs: Rungs
    least_ns: int
    arrange: Callable[[int], Arranged]


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


def compare_steps(step: ftax.Step, dial: Dial, least_ns: int, line: str, times: int) -> Case:
    """A delay that the step has in itself, so many ``times`` a run: the same model, optimizer and
    memory, taped twice."""

    def run_with(count: int) -> Rungs:
        def reset() -> None:
            dial.set(count)
            if step.reset is not None:
                step.reset()

        return prepare(replace(step, reset=reset))

    first, second = run_with(1), run_with(2)

    def arrange(delay_ns: int) -> Arranged:
        dial.delay_ns = delay_ns
        return Arranged(first.prepared, second.prepared, {line: float(times * delay_ns)})

    return Case(rungs=first, least_ns=least_ns, arrange=arrange)


def compare_operators(step: ftax.Step, least_ns: int, line: str) -> Case:
    """A delay before each operator call."""
    rungs = prepare(step)
    calls = len(rungs.workspace.taped.tape.operators)

    def arrange(delay_ns: int) -> Arranged:
        baseline, treated = (delay_operators(rungs.prepared, n * delay_ns) for n in (1, 2))
        return Arranged(baseline, treated, {line: float(calls * delay_ns)})

    return Case(rungs=rungs, least_ns=least_ns, arrange=arrange)


def compare_launches(step: ftax.Step, least_ns: int, above: str) -> Case:
    """A delay before each launch of launch replay: the rungs above issue theirs out of reach, so
    what launch replay takes longer is missing ``above``."""
    rungs = prepare(step)
    counts = [item.preparation.launches for item in rungs.prepared]
    launches = next((item.count for item in counts if item is not None), None)
    if launches is None:
        raise RunnerError("launch replay is not among the rungs")

    def arrange(delay_ns: int) -> Arranged:
        baseline, treated = (
            delay_launches(rungs.workspace, rungs.prepared, n * delay_ns) for n in (1, 2)
        )
        added = float(launches * delay_ns)
        return Arranged(baseline, treated, {above: -added, "launch": added})

    return Case(rungs=rungs, least_ns=least_ns, arrange=arrange)


def make_decode(device: str, dial: Dial, place: str = "") -> ftax.Step:
    """A window of tokens of a tiny Llama that waits in its forward pass or in the library."""
    loaded = load_model("llama", tiny=True, sequence=16, device=device)
    step = decode(loaded.module, context=16, tokens=_TOKENS)
    if place == "forward":
        loaded.module.register_forward_pre_hook(lambda *_: dial.spin())
    if place != "library":
        return replace(step, through_library=None)
    library = step.through_library
    if library is None:
        raise RunnerError("the step has no rung of its library")
    return replace(step, through_library=functools.partial(run_slowly, library, dial))


def run_slowly(library: Callable[[], Any], dial: Dial) -> Any:
    """``generate`` whose list of logits processors waits."""
    with delay_processors(dial):
        return library()


@contextmanager
def delay_processors(dial: Dial) -> Iterator[None]:
    """Each call of a list of logits processors, of which `generate` makes one a token."""
    from transformers import LogitsProcessorList

    original = LogitsProcessorList.__call__

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        dial.spin()
        return original(self, *args, **kwargs)

    LogitsProcessorList.__call__ = call
    try:
        yield
    finally:
        LogitsProcessorList.__call__ = original


class Waiting(nn.Module):
    """A model that may wait in its forward pass."""

    def __init__(self, dial: Dial | None) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(_WIDTH, _WIDTH), nn.Linear(_WIDTH, 1)
        self.dial = dial

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Wait, then compute."""
        if self.dial is not None:
            self.dial.spin()
        return self.second(self.first(x).relu())


def make_train(device: str, dial: Dial, place: str = "") -> ftax.Step:
    """A training step that waits in its model, in its optimizer or in a hook of a gradient."""
    torch.manual_seed(0)
    model = Waiting(dial if place == "forward" else None).to(device)

    class Optimizer(torch.optim.AdamW):
        def step(self, closure: Any = None) -> Any:
            if place == "optimizer":
                dial.spin()
            return super().step(closure)

    weights = model.parameters()
    optimizer = Optimizer(weights, lr=1e-3, fused=True, capturable=device != "cpu")
    if place == "hook":
        model.first.weight.register_post_accumulate_grad_hook(lambda _: dial.spin())
    batch = torch.randn(8, _WIDTH).to(device)
    return ftax.train(model, lambda module, x: module(x).square().mean(), optimizer, batch)


def take(make: Callable[[], Case], options: argparse.Namespace) -> dict[str, Any]:
    """Both ladders in the same rounds, after a look at how long the delay has to be."""
    case = make()
    pilot = compare(case, case.least_ns, _PILOT * options.duration)
    widest = max((line["interval_ns"][1] - line["interval_ns"][0]) / 2 for line in pilot)
    injected = max(line["injected_ns"] for line in pilot)
    longer = min(max(1.0, _INTERVALS * widest / injected), _LONGEST)
    return {"lines": compare(case, round(case.least_ns * longer), options.duration)}


def compare(case: Case, delay_ns: int, duration_s: float) -> list[Line]:
    """How each line changed under a delay of that length."""
    arranged = case.arrange(delay_ns)
    plan = ftax.Plan(rounds=240, round_ms=5.0, duration_s=duration_s, patience_s=duration_s / 2)
    loaded = case.rungs.workspace.loaded
    found = require(measure(loaded, [*arranged.baseline, *arranged.treated], plan))
    lines = compute_lines(found[: len(arranged.baseline)], ladder=case.rungs.ladder)
    names = [line.name for line in lines]
    missing = set(arranged.expected_ns) - set(names)
    if missing:
        raise RunnerError(f"the receipt has no line {missing}; it has {names}")
    expected = [arranged.expected_ns.get(name, 0.0) for name in names]
    columns = [item.values_ns for item in found]
    return find_changes(names, columns, expected, injected_ns=max(map(abs, expected)))


def list_cases(device: str) -> dict[str, Callable[[], Case]]:
    """Each with the line in which its delay belongs."""
    on_gpu = device != "cpu"

    def slow(
        make: Callable[[str, Dial, str], ftax.Step],
        place: str,
        least_ns: int,
        line: str,
        times: int,
    ) -> Callable[[], Case]:
        def compare_two() -> Case:
            dial = Dial()
            return compare_steps(make(device, dial, place), dial, least_ns, line, times)

        return compare_two

    library, glue, python = "library loop", "model glue", "Python and bindings"
    cases = {
        "decode: in a logits processor": slow(make_decode, "library", _TOKEN_NS, library, _TOKENS),
        "decode: in the model's forward": slow(make_decode, "forward", _TOKEN_NS, glue, _TOKENS),
        "decode: in each operator call": lambda: compare_operators(
            make_decode(device, Dial()), _DECODE_CALL_NS, "dispatch" if on_gpu else "operators"
        ),
        "train: in the model's forward": slow(make_train, "forward", _ONCE_NS, python, 1),
        "train: in the optimizer": slow(make_train, "optimizer", _ONCE_NS, python, 1),
        "train: in a hook of a gradient": slow(make_train, "hook", _ONCE_NS, "autograd", 1),
    }
    if on_gpu:
        cases["decode: in each launch"] = lambda: compare_launches(
            make_decode(device, Dial()), _DECODE_CALL_NS, "dispatch"
        )
        cases["train: in each launch"] = lambda: compare_launches(
            make_train(device, Dial()), _TRAIN_CALL_NS, "dispatch"
        )
    return cases


def list_figures(cells: dict[str, dict[str, Any]]) -> list[Figure]:
    """Of the lines, which are shown too."""
    return show_changes([{name: cell["lines"] for name, cell in cells.items()}])


def main() -> None:
    """All cases, or those that are asked for."""
    parser = make_parser(__doc__)
    add_part_options(parser, duration_s=8.0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    cases = list_cases(options.device)
    wanted = {name: functools.partial(take, make, options) for name, make in cases.items()}
    run_parts(__file__, wanted, options, list_figures)


if __name__ == "__main__":
    main()
