"""Counts of `ftax check` are the same in each run beside busy neighbours; what is planted is found.

Twelve models of the zoo in their tiny form. In fresh processes, with hash seeds of their own, while
other processes keep every CPU busy, each model is counted several times. Then one operator, host
read, copy, graph break, or on a GPU wait for the device, is planted behind a module drawn at
random, and held to the counts without it. Last, what the command and the fixture take, on a CPU.

Counts are also compared with those that are on record of other processors and the same torch.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import torch
from torch import nn

import ftax
from ftax.budgets.baselines import make_baseline
from ftax.budgets.budget_file import Budget, read_budget_file
from ftax.budgets.count_step import count_loaded
from ftax.budgets.counts import KINDS, Counts
from ftax.budgets.held import hold
from ftax.budgets.run_check import check
from ftax.machines.environment import collect_environment
from ftax.steps.given import measuring
from ftax.steps.module_calls import watch_module_calls
from ftax.steps.outputs import flatten_outputs
from ftax.steps.setting import Setting
from record import (
    RESULTS,
    Figure,
    figure,
    finish,
    make_parser,
    name_device,
    progress,
    read_lines,
    run_workers,
)

MODELS = (
    *("bert-base", "gpt2", "resnet-50", "distilbert", "roberta", "albert"),
    *("fnet", "squeezebert", "mobilenet-v2", "wav2vec2", "funnel", "mobilebert"),
)
_LINES = {
    "operators": "find(out) + 1",
    "host_reads": "find(out).flatten()[0].item()",
    "copies": "find(out).to('meta')",
    "graph_breaks": "torch._dynamo.graph_break()",
    "synchronisations": "torch.cuda.synchronize()",
}
_ON_GPU = {"synchronisations"}
_MAY_DIFFER = {"cpu", "gpu"}  # where a count depends on one of them
_LINE = 6  # of the planted one in `_CODE`
_CODE = """import torch


def forward(original, find, *args, **kwargs):
    out = original(*args, **kwargs)
    {line}
    return out
"""
_STEPS = """import torch
from torch import nn


def make():
    return nn.Sequential(*(nn.Linear(64, 64) for _ in range(8))), torch.randn(4, 64)
"""
_TESTS = """import pytest
import torch
from steps import make


@pytest.mark.parametrize("number", range(20))
def test_step(ftax_budget, number):
    ftax_budget(*make(), host_reads=0, operators=8)


@pytest.mark.parametrize("number", range(20))
def test_without(number):
    module, inputs = make()
    module(inputs)
"""


_ROUNDS = """import torch
from torch import nn


def make():
    layers = nn.Sequential(*(nn.Linear(64, 64) for _ in range(8)))

    def step(x):
        for _ in range({rounds}):
            pass
        return layers(x)

    return step, torch.randn(4, 64)
"""
_CALLGRIND = "[steps.small]\nstep = 'steps.py:make'\nbudget = {callgrind = '0.5 %'}\n"


def main() -> None:
    """Start the workers, print the figures, save the record."""
    parser = make_parser(__doc__)
    parser.add_argument("--repeats", type=int, default=8, help="counts of each model a process")
    parser.add_argument("--planted", type=int, default=200, help="of each kind, over all processes")
    parser.add_argument("--compiled", type=int, default=24, help="graph breaks that are planted")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--callgrind", type=int, default=0, help="runs of the same code, alone")
    options = parser.parse_args()
    if options.callgrind:
        finish(__file__, options, list_callgrind(options.callgrind), raw=[])
        return
    if options.quick:
        options.repeats, options.planted, options.compiled = 2, 8, 2
        options.processes = min(options.processes, 2)
    if options.worker:
        print(json.dumps(work(options)))
        return
    shares = [
        f"--{name}={-(-number // options.processes)}"
        for name, number in (("planted", options.planted), ("compiled", options.compiled))
    ]
    words = [f"--device={options.device}", f"--repeats={options.repeats}"]
    with busy_neighbours():
        found = run_workers(__file__, options, *words, *shares)
    environment = collect_environment(device=options.device).to_dict()
    figures = [
        *list_alike(found, options.repeats),
        *list_across(found, environment),
        *list_planted(found),
        *(list_times(options) if options.device == "cpu" else []),
    ]
    finish(__file__, options, figures, raw=found, environment=environment)


def work(options: argparse.Namespace) -> dict[str, Any]:
    """One process: the counts of each model, by run, and what became of what was planted."""
    draw = random.Random(os.getpid())
    models = MODELS[:3] if options.quick else MODELS
    setting = Setting(tiny=True, threads=1, device=options.device)
    counts = {name: count_repeatedly(name, options.repeats, setting) for name in models}
    planted = [
        {"kind": kind, **plant(draw.choice(models), kind, draw, setting)}
        for kind in _LINES
        if options.device != "cpu" or kind not in _ON_GPU
        for _ in range(options.compiled if kind == "graph_breaks" else options.planted)
    ]
    return {"counts": counts, "planted": planted}


def count_repeatedly(name: str, repeats: int, setting: Setting) -> list[dict[str, Any]]:
    """What a model does: each result that is another one than before, and how many runs gave it."""
    found: list[dict[str, Any]] = []
    for _ in range(repeats):
        counts = count_model(name, setting).to_dict()
        same = next((item for item in found if item["counts"] == counts), None)
        if same is None:
            found.append({"counts": counts, "runs": 1})
        else:
            same["runs"] += 1
    return found


@contextmanager
def busy_neighbours() -> Iterator[None]:
    """One for each CPU."""
    spin = [sys.executable, "-c", "while True: pass"]
    neighbours = [subprocess.Popen(spin) for _ in os.sched_getaffinity(0)]
    try:
        yield
    finally:
        for neighbour in neighbours:
            neighbour.kill()
            neighbour.wait()


def count_model(
    name: str,
    setting: Setting,
    change: Callable[[nn.Module], Callable[[], None]] | None = None,
    *,
    is_compiled: bool = False,
    root: Path = Path(),
) -> Counts:
    """What a model does, with a ``change`` of the module, which gives what undoes it."""
    loaded = ftax.load_model(name, setting=setting)
    undo = change(loaded.module) if change else None
    try:
        if not is_compiled:
            with measuring(loaded, loaded.setting):
                return count_loaded(loaded, root)
        compiled: Any = torch.compile(loaded.module, backend="eager")

        def step(*args: Any) -> Any:
            with torch.no_grad():
                return compiled(*args, **loaded.kwargs)

        made = ftax.load_model(
            ftax.step(step, loaded.args), setting=Setting(threads=1, device=setting.device)
        )
        with measuring(made, made.setting):
            return count_loaded(made, root)
    finally:
        torch.compiler.reset()
        if undo:
            undo()


def plant(name: str, kind: str, draw: random.Random, setting: Setting) -> dict[str, Any]:
    """Whether one more of a kind is a breach that names its line."""
    path = draw.choice(list_called(name))
    is_compiled = kind == "graph_breaks"
    with tempfile.TemporaryDirectory() as folder:
        before, after = (
            count_model(
                name,
                setting,
                functools.partial(put_behind, import_code(folder, line), path),
                is_compiled=is_compiled,
                root=Path(folder),
            )
            for line in ("pass", _LINES[kind])
        )
    held = hold(name, after, Budget(), make_baseline(before))
    (found,) = [item for item in held if item.kind == kind]
    places = [*found.list_places()]
    return {
        "model": name, "module": path, "verdict": found.verdict, "places": places,
        "is_named": any(f"planted.py:{_LINE} " in place for place in places),
    }  # fmt: skip


def import_code(folder: str, line: str) -> ModuleType:
    """The planted function, written to a file."""
    place = Path(folder, "planted.py")
    place.write_text(_CODE.format(line=line))
    module = sys.modules["planted"] = ModuleType("planted")  # TorchDynamo looks for it
    exec(compile(place.read_text(), str(place), "exec"), vars(module))
    return module


def put_behind(code: ModuleType, path: str, module: nn.Module) -> Callable[[], None]:
    """Have a call of the part at ``path`` end with the planted line."""
    part: Any = module.get_submodule(path)
    part.forward = functools.partial(code.forward, part.forward, find_tensor)
    return lambda: vars(part).pop("forward")


def find_tensor(output: Any) -> torch.Tensor:
    """The first tensor of an output."""
    return flatten_outputs(output)[0]


@functools.cache
def list_called(name: str) -> list[str]:
    """The parts that a model calls once, and that give a tensor."""
    loaded = ftax.load_model(name, setting=Setting(tiny=True, threads=1))
    names = {id(part): path for path, part in loaded.module.named_modules() if path}
    called: list[str] = []

    def note(part: nn.Module, _args: Any, _output: Any) -> None:
        called.append(names.get(id(part), ""))

    with torch.inference_mode(), watch_module_calls(lambda *_: None, note):
        loaded.call()
    return [path for path in dict.fromkeys(called) if path and called.count(path) == 1]


def list_alike(found: Sequence[Any], repeats: int) -> list[Figure]:
    """How many runs of each model have the counts that the first one has."""
    runs = alike = 0
    for name, (first, *_) in found[0]["counts"].items():
        every = [item for worker in found for item in worker["counts"][name]]
        runs += sum(item["runs"] for item in every)
        wanted = first["counts"]["tallies"]
        alike += sum(item["runs"] for item in every if item["counts"]["tallies"] == wanted)
    return [
        figure("runs of a model", len(found) * repeats, "runs"),
        figure("runs with the same counts", alike / runs, "share", at_least=1.0),
    ]


def list_across(found: Sequence[Any], environment: Mapping[str, Any]) -> Iterator[Figure]:
    """Of how many counts, by model and kind, other processors have the same number: those that may
    not depend on the processor, and the rest."""
    here = name_device(environment)
    now = sum_counts(found[0]["counts"])
    others = {
        name_device(record["environment"]): sum_counts(raw["counts"])
        for record in read_lines(RESULTS / "check.jsonl")
        for raw in record["raw"][:1]
    }
    for name, before in others.items():
        shared = [key for key in now if key in before] if name != here else []
        for words, may_differ in (("", False), (", of those that may differ", True)):
            keys = [key for key in shared if bool(_MAY_DIFFER & {*KINDS[key[1]].depends_on})
                    == may_differ]  # fmt: skip
            if keys:
                same = sum(now[key] == before[key] for key in keys) / len(keys)
                yield figure(f"counts as on {name}{words}", same, "share",
                             at_least=None if may_differ else 1.0)  # fmt: skip


def sum_counts(counts: Mapping[str, Any]) -> dict[tuple[str, ...], int]:
    """Each number, by model and kind, and by what else it may depend on."""
    return {
        (model, kind, found["setting"]["torch"], found["setting"]["device"]):
        sum(fact["count"] for fact in tally["facts"])
        for model, (first, *_) in counts.items()
        for found in [first.get("counts", first)]  # early records have each run
        for kind, tally in found["tallies"].items()
    }  # fmt: skip


def list_planted(found: Sequence[Any]) -> Iterator[Figure]:
    """By kind: how often it was caught with its line."""
    for kind in _LINES:
        tries = [item for worker in found for item in worker["planted"] if item["kind"] == kind]
        if not tries:
            continue
        missed = [item for item in tries if item["verdict"] != "breach" or not item["is_named"]]
        for item in missed:
            progress(f"not found: {item}")
        yield figure(f"{kind}: planted", len(tries), "times")
        yield figure(f"{kind}: caught, its line named", 1 - len(missed) / len(tries), "share",
                     at_least=1.0)  # fmt: skip


def list_times(options: argparse.Namespace) -> list[Figure]:
    """What the command takes for ten steps, and the fixture in a test."""
    command_s, first_s, other_s = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        steps = [f'[steps.step-{number}]\nstep = "steps:make"\n' for number in range(10)]
        Path(folder, "ftax.toml").write_text("\n".join(steps))
        Path(folder, "steps.py").write_text(_STEPS)
        Path(folder, "test_steps.py").write_text(_TESTS)
        run([sys.executable, "-m", "ftax", "check", "--update"], folder)
        for _ in range(options.processes):
            start = time.perf_counter()
            run([sys.executable, "-m", "ftax", "check"], folder)
            command_s.append(time.perf_counter() - start)
            first, other = time_tests(folder)
            first_s.append(first)
            other_s.append(other)
    return [
        figure("ftax check of ten small steps", command_s, "s", at_most=20.0),
        figure("the fixture, first test", first_s, "s"),
        figure("the fixture, any other test", other_s, "s", at_most=0.3),
    ]


def list_callgrind(runs: int) -> list[Figure]:
    """Of how many runs of the same code, and of code with one percent more, are over a budget."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "ftax.toml").write_text(_CALLGRIND)
        start = count_rounds(folder, 0, update=True)
        a_round = (count_rounds(folder, 1000).measured - start.measured) / 1000
        planted = round(start.measured / 100 / a_round)
        same = [count_rounds(folder, 0) for _ in range(runs)]
        more = [count_rounds(folder, planted) for _ in range(runs)]
    counts = [item.measured for item in (start, *same)]
    return [
        figure("callgrind: instructions of a step", counts),
        figure("callgrind: the same code, largest difference", max(counts) / min(counts) - 1),
        figure("callgrind: the same code, over 0.5 %", [item.is_over for item in same], at_most=0),
        figure("callgrind: planted", [item.measured / start.measured - 1 for item in more]),
        figure("callgrind: planted, caught", min(item.verdict == "breach" for item in more),
               at_least=1),
    ]  # fmt: skip


def count_rounds(folder: str, rounds: int, *, update: bool = False) -> Any:
    """What callgrind counts of the small step that goes so often round a loop that does nothing."""
    Path(folder, "steps.py").write_text(_ROUNDS.format(rounds=rounds))
    file = read_budget_file(Path(folder, "ftax.toml"))
    (found,) = check(file, file.choose([]), update=update)
    (held,) = [item for item in found.held if item.kind == "callgrind"]
    progress(f"{rounds} rounds: {held.describe()}")
    return held


def run(command: Sequence[str], folder: str) -> None:
    """Raises CalledProcessError if it fails."""
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


def time_tests(folder: str) -> tuple[float, float]:
    """What the first test with the fixture takes, and what it adds to the others, in the middle."""
    run([sys.executable, "-m", "pytest", "-p", "ftax_pytest", "--junitxml=times.xml"], folder)
    times: dict[str, list[float]] = {}
    for case in ElementTree.parse(Path(folder, "times.xml")).getroot().iter("testcase"):
        name = str(case.get("name")).partition("[")[0]
        times.setdefault(name, []).append(float(str(case.get("time"))))
    first, *others = times["test_step"]
    return first, statistics.median(others) - statistics.median(times["test_without"])


if __name__ == "__main__":
    main()
