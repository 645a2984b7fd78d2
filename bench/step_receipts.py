"""Receipts of decoded tokens and training steps, held against counts and clocks of others.

Decoding: the tokens of every rung over a long window, the library's own wall time, and the waits
that torch's sync debug mode warns of. Training: what twenty steps of every rung have written. With
`--tiny` all of it runs on a CPU, down to the tape, so that a lent GPU never meets a script that has
not run.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

import ftax
from ftax import _core
from ftax.errors import FtaxError
from ftax.instruments.trace.kernel_set import KernelSet
from ftax.instruments.trace.tracer import detach, trace_prepared
from ftax.ladders.ladder import find_ladder, name_ladder
from ftax.ladders.receipt import Receipt
from ftax.runtimes.candidates import drive_python
from ftax.runtimes.catalogue import find_runtime
from ftax.runtimes.workspace import Workspace
from ftax.steps.load import load_model
from ftax.steps.loaded import LoadedModel
from ftax.steps.outputs import flatten_outputs
from ftax.tape.tape import preserve_state, run_eager, seed_checks
from ftax.tape.unsteady import find_unsteady_operator
from ftax.timing.candidate import Candidate
from ftax.timing.differences import compute_difference
from ftax.timing.session import measure, require
from record import (
    Figure,
    add_part_options,
    figure,
    keep_receipt,
    make_parser,
    progress,
    run_parts,
)

_LONG = 64  # tokens that every rung has to agree on; recording them takes a minute or more
_STEPS = 20  # of training
_ABSENT, _EQUAL = "no such rung: ", "bitwise equal"
_WINDOW = 8  # tokens of a receipt
_DECODE = tuple(itertools.product(("llama-160m", "llama-1b"), (128, 2048), (1, 8)))
_TRAIN = (("bert-base", 4), ("gpt2", 4), ("resnet-50", 8), ("vit-b-16", 8))


def prepare_rungs(loaded: LoadedModel) -> Iterator[tuple[str, Any]]:
    """Each rung of the step's ladder, or the error that keeps it away."""
    workspace = Workspace(loaded)
    for runtime, host in find_ladder(name_ladder(loaded)).list_places(loaded.device):
        try:
            yield f"{runtime}/{host}", find_runtime(runtime).prepare(workspace, host)
        except FtaxError as error:
            yield f"{runtime}/{host}", error


def take_receipt(loaded: LoadedModel, options: argparse.Namespace) -> Receipt:
    """The receipt, which is kept beside the record where there is a folder."""
    plan = ftax.Plan(duration_s=options.duration, patience_s=options.duration / 2)
    receipt = ftax.tax(
        loaded, plan=plan, runtimes="none", operators=False, trace="here", progress=False
    )
    keep_receipt(__file__, options, receipt)
    return receipt


def judge(receipt: Receipt) -> dict[str, Any]:
    """What every receipt has to hold."""
    total = sum(line.time_ns for line in receipt.lines)
    return {
        "lines_ns": {line.name: line.time_ns for line in receipt.lines},
        "latency_ns": receipt.latency_ns,
        "sum_error": abs(total / receipt.latency_ns - 1.0),
        "rungs": {str(rung.place): rung.latency_ns for rung in receipt.rungs},
        "unavailable": {item.runtime: item.reason for item in receipt.unavailable},
        "same_kernels": {str(item.place): item.same_kernels for item in receipt.evidence},
        "waits": [wait.to_dict() for wait in receipt.waits],
        "traced_waits": {
            str(item.place): list(item.waits.counts)
            for item in receipt.evidence
            if item.waits is not None
        },
    }


def decode(model: str, context: int, batch: int, options: argparse.Namespace) -> dict[str, Any]:
    """One cell of decoding: its receipt, and what others say of it."""
    loaded = load_decoding(model, context, batch, options)
    receipt = take_receipt(loaded, options)
    return {
        **judge(receipt),
        "clock": compare_with_clock(loaded, options),
        "debug_waits": count_debug_waits(loaded),
    }


def agree_on_tokens(
    model: str, context: int, batch: int, options: argparse.Namespace
) -> dict[str, Any]:
    """The tokens of each rung over a long window, and whether eager's own are the same twice.
    Nothing of it is a latency."""
    short = load_decoding(model, context, batch, options)
    operator = find_unsteady_operator(lambda: run_eager(short.call, short), short.module)
    progress(f"not the same twice: {operator or 'nothing'}")
    agree: dict[str, str] = {}
    others: dict[str, int] = {}
    with leave_out_cudnn(operator):
        loaded = load_decoding(model, context, batch, options, tokens=options.long)
        eager, again = (run_eager(loaded.call, loaded)[0] for _ in range(2))
        for place, found in prepare_rungs(loaded):
            agree[place] = say_outputs(found)
            if not isinstance(found, FtaxError):
                others[place] = count_others(eager, run_eager(found.run, loaded)[0])
            progress(f"{place}: {agree[place]}, {others.get(place, 'no')} other tokens")
    return {
        "tokens": options.long,
        "eager_differs_from_itself": count_others(eager, again),
        "unsteady_operator": operator,
        "tokens_equal": agree,
        "other_tokens": others,
    }


@contextmanager
def leave_out_cudnn(operator: str) -> Iterator[None]:
    """Without cuDNN's attention if ``operator`` is an attention: its other kernels are the same
    twice."""
    allowed = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(allowed and "attention" not in operator)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(allowed)


def count_others(some: torch.Tensor, others: torch.Tensor) -> int:
    """How many tokens are not the same."""
    return int((some != others).sum())


def load_decoding(
    model: str, context: int, batch: int, options: argparse.Namespace, **more: Any
) -> LoadedModel:
    """The step that both look at."""
    setting = make_setting(options, step="decode", sequence=context, batch=batch)
    return load_model(model, **setting, **more)


def say_outputs(found: Any) -> str:
    """ "bitwise equal", or what is not."""
    if isinstance(found, FtaxError):
        return say_absence(found)
    return str(found.checks.judge_outputs().words)


def say_absence(error: FtaxError) -> str:
    """Why there is no such rung; that its outputs are others is no reason to leave it out."""
    is_other = any(words in str(error) for words in ("is not the model", "other outputs"))
    return str(error) if is_other else f"{_ABSENT}{error}"


def compare_with_clock(loaded: LoadedModel, options: argparse.Namespace) -> dict[str, Any]:
    """The first rung's window by Python's own clock, in the same rounds; and what as many tokens
    take in `generate` of two lengths from the prompt on, at the same positions, which sets up once
    in each and so not in their difference."""
    workspace = Workspace(loaded)
    window = loaded.through_library or loaded.bind()
    clocked: list[int] = []

    def plain() -> object:
        start = time.perf_counter_ns()
        result = window()
        wait(loaded)
        clocked.append(time.perf_counter_ns() - start)
        return result

    calls: dict[str, Callable[[], object]] = {"library": window, "plain": plain}
    calls |= {"one": generate_more(loaded, 1), "more": generate_more(loaded, 1 + _WINDOW)}
    candidates = [
        Candidate(
            runtime=name, host="python", run=list,
            runner=workspace.on_stream(loaded.wrap_runner(drive_python(workspace, name, call))),
        )
        for name, call in calls.items()
    ]  # fmt: skip
    plan = ftax.Plan(duration_s=options.duration, patience_s=options.duration / 2)
    with preserve_state(loaded):
        found = require(measure(loaded, candidates, plan))
    more_ns, interval = compute_difference(found, 1, 0)
    two_ns, two_interval = compute_difference(found, 3, 2)
    samples = [value for values in found[1].samples_ns for value in values]
    return {
        "latency_ns": {item.cell.runtime: item.latency_ns for item in found},
        "clock_over_loop": statistics.mean(clocked[-len(samples) :]) / statistics.mean(samples),
        "more_ns": more_ns,
        "more_interval_ns": interval,
        "two_lengths_ns": two_ns,
        "two_lengths_interval_ns": two_interval,
    }


def generate_more(loaded: LoadedModel, tokens: int) -> Callable[[], object]:
    """So many tokens by the library, from a prompt on."""
    from transformers import GenerationConfig

    model: Any = next(item for item in loaded.module.modules() if hasattr(item, "generate"))
    setting = loaded.setting
    size = (setting.batch, setting.sequence)
    prompt = torch.randint(0, model.config.vocab_size, size, device=loaded.device)
    settings = GenerationConfig(
        max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False, use_cache=True,
        disable_compile=True,
    )  # fmt: skip
    return functools.partial(model.generate, prompt, generation_config=settings)


def count_debug_waits(loaded: LoadedModel) -> int | None:
    """How often torch warns of a wait in one run of the first rung; None on a CPU."""
    if loaded.device == "cpu":
        return None
    with preserve_state(loaded), loaded.guard(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            (loaded.through_library or loaded.bind())()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return sum("synchroniz" in str(item.message) for item in caught)


def train(model: str, batch: int, options: argparse.Namespace) -> dict[str, Any]:
    """One cell of training: its receipt."""
    return judge(take_receipt(load_training(model, batch, options), options))


def agree_on_steps(model: str, batch: int, options: argparse.Namespace) -> dict[str, Any]:
    """What each rung has written after many steps. Nothing of it is a latency."""
    loaded = load_training(model, batch, options)
    eager = run_steps(loaded, lambda: step_eager(loaded))
    again = run_steps(loaded, lambda: step_eager(loaded))
    repeats = count_different(eager, again)
    if repeats:
        torch.use_deterministic_algorithms(True, warn_only=True)
        eager = run_steps(loaded, lambda: step_eager(loaded))
    different: dict[str, Any] = {}
    for place, found in prepare_rungs(loaded):
        different[place] = (
            say_absence(found) if isinstance(found, FtaxError)
            else count_different(eager, run_steps(loaded, found.run))
        )  # fmt: skip
        progress(f"{place}: {different[place]}")
    torch.use_deterministic_algorithms(False)
    return {
        "tensors": len(eager),
        "eager_differs_from_itself": repeats,
        "different_after_twenty": different,
    }


def compare_put_back(model: str, batch: int, options: argparse.Namespace) -> dict[str, Any]:
    """A training step whose state is put back, beside the same step left as it goes, in the same
    rounds; on a GPU the time of their kernels too."""
    loaded = load_training(model, batch, options)
    workspace = Workspace(loaded)
    workspace.reference  # noqa: B018  # settles, and compiles what torch compiles by itself
    call = loaded.bind()

    def run() -> list[torch.Tensor]:
        with loaded.guard():
            return [item.detach() for item in flatten_outputs(call())]

    def drive(name: str) -> _core.Runner:
        return drive_python(workspace, name, call)

    back, left = (
        Candidate(runtime=name, host="python", runner=workspace.on_stream(runner), run=run)
        for name, runner in (
            ("put-back", loaded.wrap_runner(drive("put-back"))),
            ("left", drive("left")),
        )
    )
    plan = ftax.Plan(duration_s=options.duration, patience_s=options.duration / 2)
    with preserve_state(loaded):
        found = require(measure(loaded, [back, left], plan))
        more_ns, interval = compute_difference(found, 0, 1)
        kernels = {}
        if loaded.device != "cpu":
            for one in (back, left):
                trace = trace_prepared(loaded, one, iterations=8)
                kernels[one.runtime] = statistics.median(KernelSet.of(trace).sums_ns)
            detach()
    return {
        "put_back_ns": found[0].latency_ns, "left_ns": found[1].latency_ns, "more_ns": more_ns,
        "more_interval_ns": interval, "kernel_ns": kernels,
    }  # fmt: skip


def load_training(model: str, batch: int, options: argparse.Namespace) -> LoadedModel:
    """The step that both look at."""
    optimizer = "adamw-fused" if options.device == "cpu" else "adamw-capturable"
    return load_model(
        model, **make_setting(options, step="train", optimizer=optimizer, batch=batch)
    )


def step_eager(loaded: LoadedModel) -> None:
    """One step as it is written."""
    with loaded.guard():
        loaded.bind()()


def run_steps(loaded: LoadedModel, run: Callable[[], object]) -> list[torch.Tensor]:
    """What many steps have written, each with the same random numbers: a graph that C++ launches
    draws no others."""
    with preserve_state(loaded):
        for _ in range(_STEPS):
            seed_checks()
            run()
        wait(loaded)
        return [tensor.clone() for tensor in loaded.returned]


def count_different(some: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> int:
    """How many tensors are not bit for bit the same."""
    return sum(not torch.equal(a, b) for a, b in zip(some, others, strict=True))


def wait(loaded: LoadedModel) -> None:
    """Until the device is idle."""
    if loaded.device != "cpu":
        torch.cuda.synchronize()


def make_setting(options: argparse.Namespace, **more: Any) -> dict[str, Any]:
    """Keywords of `load_model`."""
    dtype = "fp32" if options.device == "cpu" else "fp16" if more["step"] == "decode" else "bf16"
    if options.tiny and more["step"] == "decode":
        more["sequence"] //= 16
    return {"device": options.device, "dtype": dtype, "tiny": options.tiny, **more}


def list_figures(cells: dict[str, dict[str, Any]]) -> list[Figure]:
    """Each over all cells that ran."""
    found = [figure("cells", len(cells), "cells")]
    receipts = [cell for cell in cells.values() if "lines_ns" in cell]
    clocks = [cell["clock"] for cell in receipts if "clock" in cell]
    decoded = [cell for cell in cells.values() if "tokens_equal" in cell]
    trained = [cell for cell in cells.values() if "tensors" in cell]
    if receipts:
        other = sum(
            same is False
            for cell in receipts
            for place, same in cell["same_kernels"].items()
            if not place.startswith("library")  # which runs kernels of its own besides
        )
        found += [
            figure(
                "lines that do not sum to the latency",
                max(cell["sum_error"] for cell in receipts),
                "of it",
                at_most=1e-9,
            ),
            figure("rungs with other kernels", other, "rungs", at_most=0),
        ]
    if clocks:
        apart = sum(
            is_apart(item["more_interval_ns"])
            and abs(item["more_ns"]) > 0.02 * item["latency_ns"]["library"]
            for item in clocks
        )
        found += [
            figure(
                "own clock over that of the loop, the same calls",
                (item["clock_over_loop"] for item in clocks),
                "x",
                at_most=1.02,
                at_least=0.98,
            ),
            figure("windows that take other times by their own clock", apart, "windows", at_most=0),
            figure(
                "two lengths of generate() over a window, which sets up",
                (item["two_lengths_ns"] / item["latency_ns"]["library"] for item in clocks),
                "x",
            ),
        ]
    counted = [cell for cell in receipts if cell.get("debug_waits") is not None]
    if counted:
        odd = sum(
            {*cell["traced_waits"].get(find_top(cell), ())} != {cell["debug_waits"]}
            for cell in counted
        )
        name = "windows whose waits are not those of torch's debug mode"
        found.append(figure(name, odd, "windows", at_most=0))
    if decoded:
        odd = count_odd(decoded, "tokens_equal", _EQUAL)
        name = f"rungs without eager's {min(cell['tokens'] for cell in decoded)} tokens"
        found.append(figure(name, odd, "rungs", at_most=0))
    states = [cell for cell in cells.values() if "put_back_ns" in cell]
    if states:
        name = "steps whose host time putting back changes"
        changed = sum(is_apart(cell["more_interval_ns"]) for cell in states)
        found.append(figure(name, changed, "steps", at_most=0))
        ratios = tuple(
            cell["kernel_ns"]["put-back"] / cell["kernel_ns"]["left"]
            for cell in states
            if cell["kernel_ns"]
        )
        if ratios:
            name = "kernel time, put back over left"
            found.append(figure(name, ratios, "x", at_most=1.01, at_least=0.99))
    if trained:
        odd = count_odd(trained, "different_after_twenty", 0)
        name = f"rungs that differ from eager after {_STEPS} steps"
        found.append(figure(name, odd, "rungs", at_most=0))
    return found


def find_top(cell: dict[str, Any]) -> str:
    """The first rung of a receipt."""
    return next(iter(cell["rungs"]))


def is_apart(interval: Sequence[float] | None) -> bool:
    """Whether a difference is not 0 for certain."""
    return interval is not None and not interval[0] <= 0.0 <= interval[1]


def count_odd(cells: Sequence[dict[str, Any]], key: str, right: object) -> int:
    """How many rungs are there and not right."""
    found = [value for cell in cells for value in cell[key].values()]
    return sum(value != right and not str(value).startswith(_ABSENT) for value in found)


def main() -> None:
    """Take the cells that are asked for, each kept as soon as it is there."""
    parser = make_parser(__doc__)
    add_part_options(parser, duration_s=10.0)
    parser.add_argument("--long", type=int, default=_LONG, help="tokens that rungs agree on")
    options = parser.parse_args()
    wanted: dict[str, Callable[[], dict[str, Any]]] = {}
    for cell in _DECODE:
        name = "decode {} context {} batch {}".format(*cell)
        wanted[f"tokens: {name}"] = functools.partial(agree_on_tokens, *cell, options)
        wanted[f"receipt: {name}"] = functools.partial(decode, *cell, options)
    for model, batch in _TRAIN:
        name = f"train {model} batch {batch}"
        wanted[f"steps: {name}"] = functools.partial(agree_on_steps, model, batch, options)
        wanted[f"receipt: {name}"] = functools.partial(train, model, batch, options)
        wanted[f"state: {name}"] = functools.partial(compare_put_back, model, batch, options)
    run_parts(__file__, wanted, options, list_figures)


if __name__ == "__main__":
    main()
