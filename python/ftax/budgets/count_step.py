"""Counts what one call of a step does, each count by the instrument that sees it exactly.

Every instrument has its own runs, from the state that was found, and none is in the way of another.
Each looks twice: what differs between two runs of the same work is not exact, and is said to be so.
What the first calls do (caches, tables, compilations) is over before anything is counted.
"""

from __future__ import annotations

import gc
import platform
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from ftax import _core
from ftax.budgets.callgrind import Callgrind
from ftax.budgets.calls_by_place import MemoryReads, PlacedCalls, match_names
from ftax.budgets.counts import Counts, Notes, Tally
from ftax.budgets.instructions import counter
from ftax.budgets.places import Places
from ftax.errors import UnavailableError
from ftax.runtimes.compilers.inductor import count_since, read_counters
from ftax.runtimes.prepare import open_capture
from ftax.steps.compiled_graphs import count_breaks, find_causes, room_to_compile
from ftax.steps.given import Model, as_step, load, measuring
from ftax.steps.loaded import LoadedModel
from ftax.steps.outputs import call_model
from ftax.steps.profiling_hook import watch_calls
from ftax.steps.setting import Setting
from ftax.steps.step_module import StepModule
from ftax.tape.recording import follow_modules, observe
from ftax.tape.tape import preserve_state, settle
from ftax.tape.waits import READS

_COMPILING_CALLS = 3
_MOST_COMPILATIONS = 50
_INSTRUCTION_CALLS = 10
# Until Python has adapted its code, and the allocator keeps what it needs.
_WARMING_CALLS, _PROFILED_CALLS = 24, 8
_COMPILED = "code that torch.compile made"
_OF_ONE_THREAD = ("operators", "host_reads", "copies", "allocations", "allocated_bytes",
                  "python_calls")  # fmt: skip

Tallies = dict[str, Tally]


def count(
    model: Model, inputs: Any, setting: Setting, root: Path, *, with_instructions: bool = False
) -> Counts:
    """What one call of a step does; the step, and all that it holds, is afterwards as it was found.

    ``model`` and ``inputs`` are as for `ftax.tax`; lines are named from the folder ``root``. On one
    thread, unless the setting says otherwise: what is allocated may depend on it.

    Raises:
        UnsupportedError: the work of the step changes from call to call.
        RunnerError: the step raised.
    """
    with _loading(model, inputs, setting) as loaded:
        return count_loaded(loaded, root, with_instructions=with_instructions)


@contextmanager
def _loading(model: Model, inputs: Any, setting: Setting) -> Iterator[LoadedModel]:
    setting = replace(setting, threads=setting.threads or 1)
    model, inputs, _ = open_capture(model, inputs, "")
    model, inputs, _ = as_step(model, inputs, None, setting)
    with measuring(model, setting, inputs):
        yield load(model, inputs, None, setting)


def profile(model: Model, setting: Setting, folder: Path) -> list[Path]:
    """Where the profiles of some calls are, in a process that runs under callgrind (`make_command`
    of ``folder``). Raises what `count` raises, and UnavailableError for a step on a GPU."""
    with _loading(model, None, setting) as loaded:
        if loaded.device != "cpu":
            raise UnavailableError(
                f"callgrind counts on a CPU, and the step runs on {loaded.device}"
            )
        step, callgrind = _Step(loaded, Places(folder)), Callgrind(folder)
        for _ in range(_WARMING_CALLS):
            step.run()
        return [
            step.run(lambda call: callgrind.count(lambda: call_model(call)))
            for _ in range(_PROFILED_CALLS)
        ]


def count_loaded(loaded: LoadedModel, root: Path, *, with_instructions: bool = False) -> Counts:
    """`count` of what was loaded before."""
    _core.watch_other_threads()
    try:
        with room_to_compile(_MOST_COMPILATIONS):  # or a step that compiles in each call gives up
            step = _Step(loaded, Places(root))
            tallies = dict(_count(step))
            if with_instructions:
                tallies |= _count_instructions(step)
    finally:
        other = _core.unwatch_other_threads()
    if other:
        problem = f"another thread called operators ({other} was the first), which are not seen"
        for name in _OF_ONE_THREAD:
            if name in tallies:
                tallies[name] = replace(tallies[name], problem=problem)
    return Counts(tallies=tallies, setting=collect_setting(loaded.device))


def collect_setting(device: str) -> dict[str, str]:
    """What counts may depend on beside the step, as `ftax.budgets.counts.KINDS` names it."""
    kind = torch.device(device).type
    found = {
        "torch": str(torch.__version__),
        "python": ".".join(platform.python_version_tuple()[:2]),
        "device": kind,
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "threads": str(torch.get_num_threads()),
    }
    return found | ({"gpu": torch.cuda.get_device_name(device)} if kind == "cuda" else {})


class _Step:
    """What is counted, ready to be called; ``is_compiled``: in part, by torch.compile."""

    def __init__(self, loaded: LoadedModel, places: Places) -> None:
        self.loaded, self.places = loaded, places
        self.bound = loaded.bind()
        self.is_compiled = settle(loaded)
        if self.is_compiled:
            for _ in range(_COMPILING_CALLS):
                self.run()

    def run(self, call: Callable[[Callable[[], Any]], Any] = call_model) -> Any:
        """``call`` of the step, from the state that was found, while nothing collects garbage."""
        loaded, collects = self.loaded, gc.isenabled()
        if isinstance(loaded.module, StepModule):
            with loaded.guard():
                loaded.module.put_back()
        gc.disable()
        try:
            with preserve_state(loaded), loaded.guard():
                return call(self.bound)
        finally:
            if collects:
                gc.enable()


def _count(step: _Step) -> Iterator[tuple[str, Tally]]:
    # Compilations first: past torch's limit there are none any more.
    instruments = [_count_compilations] if step.is_compiled else []
    instruments += [_count_calls, _count_python_calls]
    for instrument in instruments:
        first, second = instrument(step), instrument(step)
        for name, tally in first.items():
            yield name, replace(tally, problem=_find_difference(tally, second[name]))
    if step.loaded.device != "cpu":
        yield from _count_device(step)


def _count_device(step: _Step) -> Iterator[tuple[str, Tally]]:
    from ftax.budgets.count_on_gpu import count_on_gpu

    try:
        # TorchDynamo would compile what times the lines.
        yield from count_on_gpu(step.loaded, None if step.is_compiled else step.places).items()
    except UnavailableError:  # no CUPTI: what is counted without it stays
        return


def _find_difference(first: Tally, second: Tally) -> str:
    """What was not the same in two runs; "" if all was."""
    before, now = ({fact.key: fact.count for fact in item.facts} for item in (first, second))
    for key in [*before, *now]:
        if before.get(key, 0) != now.get(key, 0):
            return f"in two runs of the same work: {before.get(key, 0)} and {now.get(key, 0)} {key}"
    return ""


def _count_calls(step: _Step) -> Tallies:
    """Operator calls, and what hangs on them."""
    loaded = step.loaded
    calls = step.run(
        lambda call: observe(call, has_autograd=loaded.has_autograd, is_compiled=step.is_compiled)
    )
    names = Counter(call.name for call in calls if call.depth == 0)
    notes = {name: Notes() for name in _OF_ONE_THREAD if name != "python_calls"}
    if step.is_compiled:  # it runs under no mode
        del notes["copies"]
        for name, number in names.items():
            notes["operators"].add(name, f"in {_COMPILED}, or beside it", count=number)
            if name.partition(".")[0] in READS:
                notes["host_reads"].add(name, f"beside {_COMPILED}", count=number)
    else:
        for call in match_names(_place_calls(step), names):
            notes["operators"].add(call.name, *call.place)
            notes["allocations"].add(call.name, *call.place, count=call.allocations)
            notes["allocated_bytes"].add(call.name, *call.place, count=call.allocated_bytes)
            if call.is_read:
                notes["host_reads"].add(call.name, *call.place)
            if call.copy:
                notes["copies"].add(f"{call.name} from {call.copy}", *call.place)
        step.run(lambda call: _run_under(MemoryReads(notes["host_reads"], step.places), call))
    tallies = {name: found.to_tally() for name, found in notes.items()}
    memory = _count_memory(step)
    for name, total in memory.items():
        tallies[name] = _complete(tallies[name], total)
    if "allocated_bytes" not in memory:
        del tallies["allocated_bytes"]
    return tallies


def _place_calls(step: _Step) -> list[Any]:
    loaded = step.loaded
    with follow_modules(loaded.module, lambda _: None) as module:
        mode = PlacedCalls(step.places, module, loaded.device)
        step.run(lambda call: _run_under(mode, call))
    return mode.calls


def _run_under(mode: Any, call: Callable[[], Any]) -> None:
    with mode:
        call_model(call)


def _count_memory(step: _Step) -> dict[str, int]:
    """Of the step as it runs without us. A GPU's allocator rounds sizes to what it has: there the
    number of allocations is exact, and their bytes are not."""
    allocations, allocated_bytes = step.run(
        lambda call: _core.count_allocations(lambda: call_model(call), step.loaded.device)
    )
    found = {"allocations": allocations}
    return found | ({"allocated_bytes": allocated_bytes} if step.loaded.device == "cpu" else {})


def _complete(tally: Tally, total: int) -> Tally:
    """The facts of a tally that add up to ``total``; without places where they do not."""
    notes = Notes()
    if tally.total > total:
        notes.add("all of the step", count=total)
        return notes.to_tally()
    notes.add("outside of operators", count=total - tally.total)
    return replace(tally, facts=(*tally.facts, *notes.to_tally().facts))


def _count_python_calls(step: _Step) -> Tallies:
    notes = Notes()

    def see(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            code = frame.f_code
            file = step.places.name_file(code.co_filename)
            notes.add(code.co_qualname, f"in {file}", f"{file}:{code.co_firstlineno}")

    # What is compiled is left alone: TorchDynamo would compile the hook too.
    hook = torch.compiler.disable(see) if step.is_compiled else see
    step.run(lambda call: call_model(lambda: watch_calls(hook, call)))
    return {"python_calls": notes.to_tally()}


def _count_compilations(step: _Step) -> Tallies:
    breaks, compiled = Notes(), Notes()
    before = read_counters()
    found = count_breaks(step.run)
    causes = find_causes()
    for line, number in found.items():
        breaks.add("graph break", *step.places.name_line(*causes.get(line, line)), count=number)
    for name, number in count_since(before, "stats").items():
        if name == "unique_graphs":
            compiled.add("a graph was compiled", count=number)
    return {"graph_breaks": breaks.to_tally(), "recompilations": compiled.to_tally()}


def _count_instructions(step: _Step) -> Tallies:
    """The least of some calls: what else happens in one only adds to it."""
    try:
        with counter() as count_one:
            found = [
                step.run(lambda call: count_one(lambda: call_model(call)))
                for _ in range(_INSTRUCTION_CALLS)
            ]
    except UnavailableError:
        return {}
    notes = Notes()
    notes.add("instructions", count=min(found))
    return {"instructions": notes.to_tally()}
