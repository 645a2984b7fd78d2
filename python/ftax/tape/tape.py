"""Makes a tape of a model and proves that it is the model.

A tape is believed only after five checks, none of which the recorder can pass by itself: another
instrument saw the same operators; a replay gives eager's outputs; a second input takes the same
path (a branch on data would not); a replay on the second input gives eager's outputs there; and
peak memory is eager's. What fails raises; what is merely worth knowing becomes a warning. The
surprising part: all of that holds for the state in which the model was recorded, to which every
check returns it. Whether later calls are the same work is watched while they are timed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from ftax import _core
from ftax.errors import FtaxError, RunnerError, UnsupportedError, describe, say_count
from ftax.steps.loaded import LoadedModel
from ftax.steps.module_calls import Call
from ftax.steps.outputs import call_model, flatten_outputs
from ftax.steps.random_states import list_own_generators
from ftax.steps.state import Snapshot, keep_torch_generators
from ftax.steps.writes import list_storages
from ftax.tape.equality import (
    Spread,
    allow_unsteady,
    compare_outputs,
    find_other_bits,
    measure_spread,
)
from ftax.tape.recording import (
    Observer,
    describe_place,
    dispatch_key_works,
    find_copies_to_host,
    find_host_reads,
    keep_weights,
    observe,
    record,
    record_with_autograd,
    refuse_unawaited_copies,
)
from ftax.tape.unsteady import find_unsteady_operator
from ftax.timing.checks import Checks, Equality

_MEMORY_LIMIT = 1.05  # of eager's peak
_SETTLING_CALLS = 2  # the first makes what is kept, the second finds it
_UNSTEADY_RUNS = 10
_SEED = 0x5EED  # none that a model sets itself: a replay, which does not, would look the same
_HARD_TO_FOLLOW = (
    "with autograd on, vmap and forward-mode differentiation within a step cannot be followed: "
    "measure a step without gradients with --no-grad or under torch.no_grad()"
)
_INFERENCE_WITHIN = (
    "cannot tape this step: it enters torch.inference_mode() beside operators that autograd "
    "records: put torch.no_grad() in its place"
)
_OUTSIDE = (
    "some value is computed outside torch's operators, for example with .item(), .tolist(), "
    ".numpy() or a branch"
)
COMPILED = "torch.compile made a part of it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Taped:
    """A checked tape, with what its checks established and warnings."""

    tape: _core.Tape
    reference: tuple[torch.Tensor, ...]  # eager outputs on the main inputs
    calls: tuple[Call, ...]  # of eager on the main inputs, as a TorchDispatchMode saw them
    checks: Checks
    warnings: tuple[str, ...]


def make_tape(loaded: LoadedModel, *, observer: Observer = "auto") -> Taped:
    """Record ``loaded`` on its main inputs and check the tape on both of its inputs.

    Raises:
        UnsupportedError: the model cannot be taped; the message names operator and module.
        RunnerError: the model's forward raised.
    """
    if settle(loaded):
        raise UnsupportedError(
            f"cannot tape this model: {COMPILED}, and what Inductor generates makes no operator "
            "calls that a tape could hold: give what was compiled; or ladder='compile', which "
            "compiles that and takes a call apart"
        )
    reference = run_eager(loaded.call, loaded)
    if not reference:
        raise UnsupportedError(
            "cannot tape this step: it returns no tensor, calls no module and writes nothing by "
            "which a tape could be checked: return a tensor that it computes, such as its loss "
            "(not loss.item())"
        )
    check_reference = run_eager(loaded.call_check, loaded)
    if observer == "auto":
        works = dispatch_key_works(has_autograd=loaded.has_autograd)
        observer = "dispatch-key" if works else "python"
    tape = _record(loaded, observer)
    on_gpu = loaded.device != "cpu"
    if on_gpu:
        refuse_unawaited_copies(tape)
    seen = _check_sequence(loaded, tape)
    equality = _check_outputs(loaded, tape, reference)
    _check_path(loaded, tape, seen)
    check_equality = _check_outputs(loaded, tape, check_reference, second=True)
    tape.bind_inputs(loaded.flat_inputs())
    # A capture is measured when it is used, and has refused reads of memory.
    is_capture = loaded.kind == "call"
    memory = {} if is_capture else _measure_memory(loaded, tape)
    calls = tape.calls
    host_reads = [describe_place(calls[index]) for index in tape.host_reads]
    if not is_capture:
        host_reads += _find_memory_reads(loaded)
    if on_gpu:
        host_reads += find_copies_to_host(calls)
    checks = Checks(
        outputs=equality,
        second_input=check_equality,
        details={
            "operators": len(tape.operators),
            "sequence": f"equal to what {_name_witness(loaded)} saw",
            "observer": observer,
            "host_reads": host_reads,
            "captured_tensors": len(tape.captured_slots),
            **memory,
        },
    )
    is_step = bool(loaded.returned and tape.host_reads)
    timing_only = _check_second_run(loaded, tape) if is_step else ()
    told = [] if timing_only and len(host_reads) == len(tape.host_reads) else host_reads
    warnings = _collect_warnings(tape, equality, told, memory, seen, loaded.kind) + timing_only
    return Taped(
        tape=tape, reference=reference, calls=tuple(seen), checks=checks, warnings=warnings
    )


def _find_memory_reads(loaded: LoadedModel) -> list[str]:
    with preserve_state(loaded):
        return find_host_reads(loaded.call, loaded.module, has_autograd=loaded.has_autograd)


def make_tape_with_autograd(loaded: LoadedModel, taped: Taped) -> tuple[_core.Tape, Checks]:
    """A tape of the same step above autograd, which it has record its graph and run its engine.

    Checked as ``taped`` was, by which below autograd it has to make the same calls. Raises
    UnsupportedError where it does not, or gives other outputs.
    """
    with preserve_state(loaded):
        tape = record_with_autograd(
            loaded.call,
            inputs=loaded.flat_inputs(),
            module=loaded.module,
            device=loaded.device,
            state=loaded.returned,
        )
    second = run_eager(loaded.call_check, loaded)
    try:
        equality = _check_outputs(loaded, tape, taped.reference, guard=loaded.guard)
        check_equality = _check_outputs(loaded, tape, second, second=True, guard=loaded.guard)
    except RunnerError as error:
        raise UnsupportedError(f"cannot tape this step with autograd: {describe(error)}") from error
    tape.bind_inputs(loaded.flat_inputs())
    with preserve_state(loaded):
        calls = observe(tape.run, has_autograd=True)
    eager = [call.name for call in taped.calls]
    replayed = [call.name for call in _drop_hidden(calls, eager, tape)]
    if eager != replayed:
        raise UnsupportedError(
            "cannot tape this step with autograd: below it a replay makes other operator calls "
            f"than eager: {_describe_divergence(eager, replayed)}"
        )
    details = {"operators": len(tape.operators), "sequence": "below autograd equal to eager's"}
    return tape, Checks(outputs=equality, second_input=check_equality, details=details)


def _drop_hidden(calls: Sequence[Call], eager: Sequence[str], tape: _core.Tape) -> list[Call]:
    """Those of a replay that no witness sees in eager left out, with what they call: `torch.tensor`
    hides how it makes its memory."""
    hidden = {*(Counter(tape.operators) - Counter(tape.visible_operators))}
    if any(name.startswith("aten::to.") for name in hidden):
        hidden.add("aten::_to_copy")
    kept: list[Call] = []
    is_within = False
    for call in calls:
        if call.depth == 0:
            expected = eager[len(kept)] if len(kept) < len(eager) else ""
            is_within = call.name in hidden and call.name != expected
        if not is_within:
            kept.append(call)
    return kept


def settle(loaded: LoadedModel) -> bool:
    """Call the model as often as it takes for what it makes at its first call to be there: masks,
    tables, positions, kept in attributes. What is recorded and checked is a later call. Returns
    whether torch.compile made a part of it, which runs as it was written here."""
    if loaded.is_compiled is not None:
        return loaded.is_compiled  # it has run when it was loaded
    with preserve_state(loaded), torch.inference_mode(), keep_weights(loaded.module) as watch:
        for _ in range(_SETTLING_CALLS):
            call_model(loaded.call)
    return watch.met_compiled


def run_eager(call: Callable[[], Any], loaded: LoadedModel) -> tuple[torch.Tensor, ...]:
    """Outputs of one seeded eager inference, as copies: a model may return its own input. Of a step
    there may be none.

    Raises RunnerError if the model raises.
    """
    with preserve_state(loaded):
        with loaded.guard():
            output = call_model(call)
        outputs = loaded.find_outputs(output)
        with torch.inference_mode(not loaded.has_autograd), torch.no_grad():
            return tuple(tensor.clone() for tensor in outputs)


def find_unsteady(
    loaded: LoadedModel,
    tape: _core.Tape,
    *,
    second: bool = False,
    guard: Callable[[], AbstractContextManager[Any]] = torch.inference_mode,
) -> dict[int, Spread]:
    """Where outputs are not the same twice, by place, neither in eager nor in a replay, on the main
    or on the second inputs. The replay, because a model in which Python goes on is not the same
    twice either."""
    call = loaded.call_check if second else loaded.call
    first = run_eager(call, loaded)
    spread = measure_spread(first, (run_eager(call, loaded) for _ in range(_UNSTEADY_RUNS)))
    if not spread:
        return {}
    again = (_replay(loaded, tape, second, guard) for _ in range(_UNSTEADY_RUNS))
    own = measure_spread(next(again), again)
    return {place: item.both(own[place]) for place, item in spread.items() if place in own}


def explain_other_outputs(loaded: LoadedModel, otherwise: str, *, second: bool = False) -> str:
    """Why others than eager's may have come, on the main or on the second inputs: ``otherwise``,
    or an operator that does not give the same bits twice, and what to do."""
    call = loaded.call_check if second else loaded.call
    try:
        operator = find_unsteady_operator(lambda: run_eager(call, loaded), loaded.module)
    except (FtaxError, RuntimeError):  # a tensor of an odd kind: it costs the explanation
        return otherwise
    if not operator:
        return otherwise
    return (
        f"{operator} gives other bits in another run of the same work "
        "(torch.use_deterministic_algorithms(True) has torch choose a kernel that does not), or "
        f"{otherwise}"
    )


def find_other_replay(loaded: LoadedModel, taped: Taped) -> Equality | None:
    """What was found on the input on which a replay has other bits than eager, at elements that
    eager gives each time; None where there is no such input."""
    for second, found in ((False, taped.checks.outputs), (True, taped.checks.second_input)):
        if found is None or found.bitwise:
            continue
        expected = run_eager(loaded.call_check if second else loaded.call, loaded)
        outputs = _replay(loaded, taped.tape, second)
        if find_other_bits(expected, outputs, find_unsteady(loaded, taped.tape, second=second)):
            return found
    return None


def _replay(
    loaded: LoadedModel,
    tape: _core.Tape,
    second: bool,
    guard: Callable[[], AbstractContextManager[Any]] = torch.inference_mode,
) -> list[torch.Tensor]:
    tape.bind_inputs(loaded.flat_check_inputs() if second else loaded.flat_inputs())
    try:
        with preserve_state(loaded):
            with guard():
                outputs = tape.run()
            with torch.inference_mode(not loaded.has_autograd), torch.no_grad():
                return [output.detach().clone() for output in outputs]
    finally:
        tape.bind_inputs(loaded.flat_inputs())


def seed_checks() -> None:
    """Seed torch as every check does: the CPU, and the GPUs if they are in use; beside other
    threads, the generators from which this one draws."""
    if own := list_own_generators():
        for generator in own:
            generator.manual_seed(_SEED)
        return
    # Not torch.manual_seed: GPUs that nobody uses yet it seeds once somebody does, and nothing puts
    # that back. To keep it in mind it formats a stack each time, which takes milliseconds.
    torch.default_generator.manual_seed(_SEED)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(_SEED)


@contextmanager
def preserve_state(loaded: LoadedModel) -> Iterator[None]:
    """Fix the generators' seeds inside; restore generators, inputs, and what tensors of the module
    that are no weights hold afterwards. What Python keeps (a counter, a list) goes on: a replay
    that cannot follow it has to be found out."""
    before = Snapshot(loaded.module, loaded.given())
    with keep_torch_generators():
        seed_checks()
        loaded.prepare()
        torch.clear_autocast_cache()  # of weights that a run before has cast
        try:
            yield
        finally:
            before.put_back()


def _record(loaded: LoadedModel, observer: Observer) -> _core.Tape:
    with preserve_state(loaded):
        tape, _ = record(
            loaded.call,
            inputs=loaded.flat_inputs(),
            module=loaded.module,
            device=loaded.device,
            observer=observer,
            state=loaded.returned,
            has_autograd=loaded.has_autograd,
        )
    return tape


def _check_sequence(loaded: LoadedModel, tape: _core.Tape) -> list[Call]:
    sequence = tape.visible_operators
    # Beside a capture other threads may serve other requests.
    alone = nullcontext() if loaded.kind == "call" else _refuse_other_threads()
    with preserve_state(loaded), alone:
        calls = observe(loaded.call, has_autograd=loaded.has_autograd)
    seen = [call.name for call in calls if call.depth == 0]
    agree = seen == sequence
    if loaded.has_autograd:
        agree = len(sequence) in _follow(sequence, frozenset((0,)), calls)
    if not agree:
        if loaded.mixes_inference:
            raise UnsupportedError(_INFERENCE_WITHIN)
        hint = f"; {_HARD_TO_FOLLOW}" if loaded.has_autograd else ""
        raise UnsupportedError(
            f"cannot tape this model: the tape and {_name_witness(loaded)} disagree on the "
            f"operators that it calls: {_describe_divergence(sequence, seen)}{hint}"
        )
    return calls


@contextmanager
def _refuse_other_threads() -> Iterator[None]:
    """Raises UnsupportedError if other threads call operators meanwhile: no tape has those."""
    _core.watch_other_threads()
    try:
        yield
    finally:
        first = _core.unwatch_other_threads()
    if first:
        raise UnsupportedError(
            f"cannot tape this model: while it ran, another thread called operators ({first} was "
            "the first), and a tape has those of one thread alone: make them in the thread that is "
            "measured, or have other threads rest while it is"
        )


def _follow(
    sequence: Sequence[str], places: frozenset[int], calls: Sequence[Call]
) -> frozenset[int]:
    """How far into ``sequence`` these calls, nested as they were seen, may reach from ``places``.

    Below autograd a call reaches its kernel, whatever that calls in turn. Before and after that
    autograd may make others on its behalf, as hooks on what it saves do, and one may end it: a
    checkpoint ends with an error the call after which there is nothing to compute again.
    """
    for own, *within in _list_families(calls):
        before, after = places, frozenset[int]()
        for inner in _list_families(within):
            after |= _advance(sequence, before, own)
            after |= _follow(sequence, after, inner)
            before = _follow(sequence, before, inner)
        after |= _advance(sequence, before, own)
        places = after | (before if own.raised else before - places)
    return places


def _advance(sequence: Sequence[str], places: frozenset[int], call: Call) -> frozenset[int]:
    """Those after ``places`` at which the sequence has the call."""
    return frozenset(p + 1 for p in places if p < len(sequence) and sequence[p] == call.name)


def _list_families(calls: Sequence[Call]) -> Iterator[Sequence[Call]]:
    """Each call that is made within none of the others, with all that is made within it."""
    begin = 0
    for end in range(1, len(calls) + 1):
        if end == len(calls) or calls[end].depth <= calls[begin].depth:
            yield calls[begin:end]
            begin = end


def _name_witness(loaded: LoadedModel) -> str:
    return "torch's profiler" if loaded.has_autograd else "a TorchDispatchMode"


def _check_path(loaded: LoadedModel, tape: _core.Tape, first: Sequence[Call]) -> None:
    """A second input must make the same calls, or some branch depends on the data."""
    sequence = [call.name for call in first]
    with preserve_state(loaded):
        calls = observe(loaded.call_check, has_autograd=loaded.has_autograd)
        seen = [call.name for call in calls]
    if seen != sequence:
        call = _first_divergence(sequence, seen)
        visible = [s for s in tape.calls if s["fill"] is None and not s["hidden"]]
        where = first[min(call, len(first) - 1)].name
        if not loaded.has_autograd:
            where = describe_place(visible[min(call, len(visible) - 1)])
        raise UnsupportedError(
            f"cannot tape this model: its control flow depends on the data. {_name_second(loaded)} "
            f"takes another path from call {call}, {where}: {_describe_divergence(sequence, seen)}"
        )


def _check_outputs(
    loaded: LoadedModel,
    tape: _core.Tape,
    reference: Sequence[torch.Tensor],
    *,
    second: bool = False,
    guard: Callable[[], AbstractContextManager[Any]] = torch.inference_mode,
) -> Equality:
    tape.bind_inputs(loaded.flat_check_inputs() if second else loaded.flat_inputs())
    with preserve_state(loaded), guard():
        outputs = [output.detach() for output in tape.run()]
        with torch.no_grad():
            equality = compare_outputs(reference, outputs)
            if not equality.within_tolerance:
                outputs = [output.clone() for output in outputs]  # before state is put back
    if not equality.within_tolerance:
        unsteady = find_unsteady(loaded, tape, second=second, guard=guard)
        equality = allow_unsteady(equality, reference, outputs, unsteady)
    if not equality.within_tolerance:
        which = _name_second(loaded).replace("A", "a", 1) if second else "the recorded input"
        raise UnsupportedError(
            f"cannot tape this model: on {which} the replay gives other outputs than eager "
            f"({equality.problem}); {explain_other_outputs(loaded, _OUTSIDE, second=second)}"
        )
    return equality


def _name_second(loaded: LoadedModel) -> str:
    drawn = " (drawn by ftax; check_inputs= gives another)" if loaded.pair.is_drawn else ""
    return f"A second input{drawn}"


def _measure_memory(loaded: LoadedModel, tape: _core.Tape) -> dict[str, float | int]:
    """Peak bytes above the start, of one inference each, with the outputs alive at the end. Nothing
    where torch's profiler is on, which uses the same place and would take our meter for its own."""
    if torch.autograd._profiler_enabled():  # type: ignore[attr-defined]
        return {}
    _drop_gradients(loaded)
    with preserve_state(loaded), loaded.guard():
        eager = _core.measure_peak_bytes(lambda: call_model(loaded.call), loaded.device)
    with preserve_state(loaded), torch.inference_mode():
        replayed = _core.measure_peak_bytes(tape.run, loaded.device)
    return {
        "eager_peak_bytes": eager,
        "tape_peak_bytes": replayed,
        "peak_memory_ratio": replayed / eager if eager else 1.0,
    }


def _drop_gradients(loaded: LoadedModel) -> None:
    """Those that the step makes anew: freeing them while memory is counted, torch would complain of
    blocks that it does not know."""
    state = {key for tensor in loaded.returned for key in list_storages(tensor)}
    for leaf in loaded.leaves:
        if leaf.grad is not None and state.isdisjoint(list_storages(leaf.grad)):
            leaf.grad = None


def _collect_warnings(
    tape: _core.Tape,
    equality: Equality,
    host_reads: list[str],
    memory: dict[str, float | int],
    seen: Sequence[Call],
    kind: str,
) -> tuple[str, ...]:
    warnings = []
    sized = [call.name for call in seen if call.sized_by_values]
    if sized:
        warnings.append(
            f"values make the shape of {say_count(len(sized), 'result')} ({sized[0]}): a size that "
            "Python reads there is baked into the tape, and on a GPU it synchronises"
        )
    if host_reads:
        warnings.append(
            f"the model reads {say_count(len(host_reads), 'value')} on the host ({host_reads[0]}): "
            "baked into the tape, and waited for on a GPU"
        )
    if tape.mutations and kind == "forward":  # what a step writes is put back
        place = describe_place(tape.calls[tape.mutations[0]])
        warnings.append(
            f"the model writes into its inputs or weights ({place}): repeated inferences are not "
            "the same work"
        )
    if equality.has_nan:
        warnings.append("the outputs contain NaN, so equality of outputs says little")
    ratio = memory.get("peak_memory_ratio", 1.0)
    if ratio > _MEMORY_LIMIT:
        warnings.append(f"the tape's peak memory is {ratio:.2f} times eager's")
    return tuple(warnings)


def _check_second_run(loaded: LoadedModel, tape: _core.Tape) -> tuple[str, ...]:
    """What to know of a tape whose second run in a row is not the step's: a number that the step
    reads on the host is state too, and what the tape holds is the first run's."""
    outputs = []
    for run, guard in ((loaded.call, loaded.guard), (tape.run, torch.inference_mode)):
        with preserve_state(loaded), guard():
            call_model(run)
            loaded.prepare()
            outputs.append([item.detach().clone() for item in flatten_outputs(call_model(run))])
    if compare_outputs(*outputs).bitwise:
        return ()
    place = describe_place(tape.calls[tape.host_reads[0]])
    return (
        "timing only, not for repeated replay: the step reads "
        f"{say_count(len(tape.host_reads), 'value')} of its state on the host ({place}), such as "
        "a step count of an optimizer that is not capturable; replays compute with what the first "
        "run read, and on a GPU each is waited for",
    )


def _first_divergence(a: Sequence[str], b: Sequence[str]) -> int:
    for place, (left, right) in enumerate(zip(a, b, strict=False)):
        if left != right:
            return place
    return min(len(a), len(b))


def _describe_divergence(recorded: Sequence[str], seen: Sequence[str]) -> str:
    place = _first_divergence(recorded, seen)
    left = recorded[place] if place < len(recorded) else "the end"
    right = seen[place] if place < len(seen) else "the end"
    return f"at call {place}, {left} was recorded and {right} was seen"
