"""Records a call: looks at it from several sides, and refuses what a replay could not be.

The call is recorded as a step of its own tensors, by the code that records what ftax measures. So a
capture has passed every check that a rung of a receipt has, with state that was found by watching
and put back.
"""

from __future__ import annotations

import dataclasses
import gc
import operator
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import cycle
from types import FunctionType
from typing import Any, Literal

import torch
from torch import nn
from torch.utils import _pytree as pytree

from ftax import _core
from ftax.captures import host_reads
from ftax.captures.around import OtherThreads, refuse_draws, refuse_modes
from ftax.captures.autograd_left import leaves_graph
from ftax.captures.compiled import record_compiled
from ftax.captures.executed import Executed, watch_code
from ftax.captures.gradients import (
    Gradients,
    can_hold_gradient,
    find_gradients,
    is_weight,
    keep_gradients,
)
from ftax.captures.guards import GuardedState, guard_state
from ftax.captures.kept_tensors import KeptTensor, Unguarded
from ftax.captures.names import list_names, reads_versions
from ftax.captures.program import TENSOR, Kind, Program, Replay, TapeReplay
from ftax.errors import InvalidArgumentError, RunnerError, UnsupportedError, name_type
from ftax.runtimes.workspace import Workspace
from ftax.steps.input_trees import flatten_tensors, is_data
from ftax.steps.kept_python import keep_python, read_draws
from ftax.steps.left_as_found import leave_as_found
from ftax.steps.load import load_model
from ftax.steps.loaded import LoadedModel
from ftax.steps.outputs import call_model
from ftax.steps.random_states import beside_other_threads
from ftax.steps.reach import find_reached
from ftax.steps.state import refuse_lazy
from ftax.steps.step import Step
from ftax.steps.step_module import StepModule
from ftax.steps.tensors import make_like
from ftax.steps.user_inputs import split_inputs
from ftax.steps.writes import find_storage, list_storages
from ftax.tape.calls import describe_place
from ftax.tape.capture import GraphMemory
from ftax.tape.flow import draws_random_numbers, find_dependent_reads
from ftax.tape.tape import Taped, find_other_replay, preserve_state

OnHostRead = Literal["refuse", "check"]
_NEVER = 1 << 30  # collections of younger objects
# What each call of a learning-rate scheduler changes.
_OF_SCHEDULES = ("last_epoch", "_step_count", "_last_lr")


class _Recorded:
    """The function that is recorded: takes tensors, returns tensors, and notes what the real one
    returned around them."""

    def __init__(
        self,
        what: Callable[..., Any],
        signature: _core.Signature,
        tensors: list[torch.Tensor],
        *,
        name: str,
        is_alone: bool,
    ) -> None:
        self.original, self._signature = what, signature
        self._name, self._is_alone, self._may_draw = name, is_alone, is_alone
        self.kept: tuple[KeptTensor, ...] = ()
        self.mode: AbstractContextManager[Any] = nullcontext()  # around the call alone
        self._kept_before: list[Any] = []  # what was there when a run began, held
        self.gradients = Gradients(added=(), made=(), dropped=())
        self.found: list[tuple[torch.Tensor, torch.Tensor | None]] = []  # gradients of leaves
        # Of random numbers, not torch's, and whether names of the call lead to each.
        self.sources: list[tuple[Any, bool]] = []
        self.drawn: list[Any] = []  # from which it drew
        self.attributes: list[str] = []  # of Python, of tensors among the arguments
        self.tree: pytree.TreeSpec | None = None
        self.leaves: tuple[Any, ...] = ()
        self.followed: list[torch.Tensor] = []  # results that autograd has made
        self.is_watched = self.is_followed = self.resized = self.is_lazy = self.is_other = False
        self._parameters = [isinstance(tensor, nn.Parameter) for tensor in tensors]
        self._layouts = [_layout(tensor) for tensor in tensors]
        self.executed = Executed(codes=(), changing=())
        self.functions: list[FunctionType] = []  # that live and have code that ran
        self.reads = host_reads.MemoryReads()

    def __call__(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        if any(self._parameters):  # a second input that was drawn is none
            pairs = zip(tensors, self._parameters, strict=True)
            tensors = tuple(_make_parameter(item) if is_one else item for item, is_one in pairs)
        args, kwargs = self._signature.fill(list(tensors))
        for leaf, grad in self.found:  # each run begins as the call that is recorded
            if leaf.grad is not grad:
                leaf.grad = grad
        self._drop_gradients(tensors)
        self._kept_before += [place.read() for place in self.kept]
        if self.is_watched:
            memory = [tensor.data_ptr() for tensor in tensors]
            draws = [read_draws(source) for source, _ in self.sources]
            result, self.executed = watch_code(lambda: self._call(args, kwargs))
            now = zip(self.sources, draws, strict=True)
            self.drawn = [
                source
                for (source, is_met), before in now
                if read_draws(source) != before and (is_met or self._may_have_drawn(source))
            ]
            self.resized = memory != [tensor.data_ptr() for tensor in tensors]
            self.resized |= self._layouts != [_layout(tensor) for tensor in tensors]
            found = self._signature.match(args, kwargs)
            self.attributes = sorted({key for item in tensors for key in vars(item)})
            self.is_other = found is None or any(map(operator.is_not, found, tensors))
        else:
            result = self._call(args, kwargs)
        leaves, self.tree = pytree.tree_flatten(result, is_leaf=_is_size)
        found = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        self.leaves = tuple(TENSOR if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves)
        if self.is_followed:
            self.followed = [tensor for tensor in found if tensor.requires_grad]
        self.is_lazy = any(tensor.is_conj() or tensor.is_neg() for tensor in found)
        results = [*found, *self.gradients.collect(), *(place.read() for place in self.kept)]
        # What only writes is checked by what it wrote, but a step has to return something.
        return results or [next(iter(tensors), torch.zeros(()))]

    def _may_have_drawn(self, source: Any) -> bool:
        """Whether it was this call that drew from a source of the process, as others do."""
        if self._is_alone:
            return True
        is_pythons = isinstance(source, random.Random)
        return bool(self.executed.draws) if is_pythons else self.executed.names_random

    @property
    def hint(self) -> str:
        """What is worth knowing of a refused read."""
        plain = [leaf for leaf in self.leaves if isinstance(leaf, bool | int | float)]
        if not plain:
            return ""
        return (
            f". It returns a number ({plain[0]!r}): return the tensor, and call .item() on what "
            "the capture gives"
        )

    def _drop_gradients(self, tensors: Sequence[torch.Tensor]) -> None:
        """Of the second input, which a run before has left there."""
        known = {id(leaf) for leaf, _ in self.found}
        for tensor in tensors:
            if tensor.is_leaf and tensor.requires_grad and self.found and id(tensor) not in known:
                tensor.grad = None

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._may_draw:
            with self.mode:
                return self.original(*args, **kwargs)
        with refuse_draws(self._name):
            result = self.original(*args, **kwargs)
        self._may_draw = True  # and does not
        return result

    def uses_gradients(self, loaded: LoadedModel) -> bool:
        """Without autograd too: an optimizer drops gradients, and evolution strategies assign
        them."""
        return loaded.has_autograd or "grad" in list_names(self.executed.codes)

    def find_used_again(self, tape: _core.Tape) -> str:
        """The name of a place whose tensor of the call before is used by the tape; "" for none."""
        constants = {key for _, item in tape.constants for key in list_storages(item)}
        held = zip(cycle(self.kept), self._kept_before, strict=False)
        for place, item in held:
            if isinstance(item, torch.Tensor) and not constants.isdisjoint(list_storages(item)):
                return place.name
        return ""

    def list_places(self, reads: int, outputs: int) -> list[int]:
        """Of what is handed out among all that the tape gives: results, gradients, tensors that are
        kept, and at its end values that were read. Between them is the state that was written."""
        end = self.list_gradients().stop + len(self.kept)
        return [*range(end), *range(outputs - reads, outputs)]

    def list_gradients(self) -> range:
        """Of gradients, which follow the results."""
        results = sum(leaf is TENSOR for leaf in self.leaves)
        return range(results, results + len(self.gradients.made))

    def check(self, name: str) -> None:
        """Raises UnsupportedError for a result that cannot be made again of tensors, and for
        arguments that become others."""
        if self.resized:
            raise UnsupportedError(
                f"cannot capture {name}: it gives an argument another size, layout or memory, or "
                "has it need a gradient (resize_, .data = , requires_grad_), which a replay would "
                "not do: return a new tensor instead"
            )
        if self.is_other:
            raise UnsupportedError(
                f"cannot capture {name}: it changes a list, dictionary or dataclass that it is "
                "given, or another object, which a replay would leave as it is: return what it "
                "puts there, and take out before the call what it takes out"
            )
        if read := list_names(self.executed.codes).intersection(self.attributes):
            raise UnsupportedError(
                f"cannot capture {name}: its code names {min(read)!r}, an attribute that Python "
                "code gave to a tensor among the arguments, which no call could be compared by: "
                "give it as an argument of its own"
            )
        if self.executed.seeding:
            raise _refuse_seeding(name, self.executed.seeding)
        if reads_versions(self.executed.codes):
            raise UnsupportedError(
                f"cannot capture {name}: its code asks how often a tensor was written (_version), "
                "which no guard follows: compute anew what depends on it, or decide outside of the "
                "call"
            )
        if self.executed.thread:
            raise UnsupportedError(
                f"cannot capture {name}: it starts a thread ({self.executed.thread}), and nobody "
                "sees what operators are called there: do that work outside of the call"
            )
        if self.drawn:
            where = f" ({self.executed.draws})" if self.executed.draws else ""
            raise UnsupportedError(
                f"cannot capture {name}: it draws random numbers of "
                f"{'Python' if isinstance(self.drawn[0], random.Random) else 'numpy'}{where}, and "
                "a replay would not: draw them before the call and give them as arguments, or "
                "draw torch's"
            )
        if self.is_lazy:
            raise UnsupportedError(
                f"cannot capture {name}: it returns a tensor that is conjugated or negated when it "
                "is read: return it through resolve_conj() or resolve_neg()"
            )
        for leaf in self.leaves:
            if leaf is not TENSOR and not _core.is_plain_value(leaf):
                raise UnsupportedError(
                    f"cannot capture {name}: it returns {name_type(leaf)}, which cannot be made "
                    "again from tensors: return tensors in tuples, lists, dicts or dataclasses "
                    "that torch.utils._pytree knows, and leave caches out (use_cache=False)"
                )


def _refuse_seeding(name: str, place: str) -> UnsupportedError:
    return UnsupportedError(
        f"cannot capture {name}: it sets a random generator ({place}), and a replay would go on "
        "where the one before has ended: seed outside of the call, or give it the random tensor as "
        "an argument"
    )


def _refuse_kept(name: str, place: str) -> UnsupportedError:
    return UnsupportedError(
        f"cannot capture {name}: it computes with what the call before left in {place}, and a "
        "replay would compute with what was there when it was recorded: keep it in a tensor that "
        "is written in place (copy_)"
    )


def record_program(
    what: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    name: str,
    kind: Literal["auto", "tape", "graph"],
    on_host_read: OnHostRead,
    borrow: bool,
    check_inputs: Any = None,
    ignore: Sequence[str] = (),
    memory: GraphMemory,
    reset: Callable[[], object] | None = None,
    is_alone: bool = True,
) -> Program:
    """Record ``what`` on these arguments, in the caller's grad mode. ``is_alone``: no other thread
    matters; else what all threads share is neither seeded nor put back. ``memory`` is shared with
    the graphs of other programs, which are never replayed at the same time.

    Raises:
        OtherThreads: beside other threads it cannot be recorded.
        UnsupportedError: it cannot be replayed soundly; the message has operator, line and remedy.
        InvalidArgumentError: for arguments that cannot be captured.
        RunnerError: it raised.
    """
    refuse_modes(name)
    options = _RecordOptions(
        name=name,
        kind=kind,
        on_host_read=on_host_read,
        borrow=borrow,
        check_inputs=check_inputs,
        ignore=frozenset(ignore),
        memory=memory,
        reset=reset,
        is_alone=is_alone,
    )
    with nullcontext() if is_alone else beside_other_threads(), _without_full_collections():
        try:
            return _record(what, args, kwargs, options, is_data)
        except _WritesObjects as found:
            objects = found.objects
            return _record(
                what, args, kwargs, options, lambda item: is_data(item) and id(item) not in objects
            )


@contextmanager
def _without_full_collections() -> Iterator[None]:
    """Python looks for garbage in new objects only: looking through all that live takes as long as
    a third of a recording."""
    thresholds = gc.get_threshold()
    gc.set_threshold(*thresholds[:2], _NEVER)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


@dataclass(frozen=True, slots=True, kw_only=True)
class _RecordOptions:
    """Those of `record_program`."""

    name: str
    kind: Literal["auto", "tape", "graph"]
    on_host_read: OnHostRead
    borrow: bool
    check_inputs: Any
    ignore: frozenset[str]
    memory: GraphMemory
    reset: Callable[[], object] | None
    is_alone: bool


class _WritesObjects(Exception):
    """The call writes into tensors of these objects, which are state then, such as a cache."""

    def __init__(self, objects: frozenset[int]) -> None:
        super().__init__()
        self.objects = objects


def _record(
    what: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    options: _RecordOptions,
    is_data: Callable[[Any], bool],
) -> Program:
    name, on_host_read = options.name, options.on_host_read
    signature = _core.Signature(args, kwargs, is_data)
    tensors = signature.match(args, kwargs)
    if tensors is None:
        raise InvalidArgumentError(
            "the arguments do not compare equal to themselves, so no later call could be told to "
            "be the same; give plain values, tensors and containers of them"
        )
    recorded = _Recorded(what, signature, tensors, name=name, is_alone=options.is_alone)
    step = Step(
        function=recorded,
        inputs=tuple(tensors),
        check_inputs=_find_check_inputs(signature, tensors, options),
        reset=options.reset,
        name=name,
        kind="call",
    )
    roots = {name: what, "the arguments": signature.objects}
    for item in find_reached(what, *signature.objects):
        if isinstance(item, nn.Module):
            for part in item.modules():
                refuse_lazy(part, f"cannot capture {name}: a part of it")
    leaves = _find_leaves(what, *signature.objects, *tensors)
    recorded.found = [(leaf, leaf.grad) for leaf in leaves]
    with (
        keep_python(what, args, kwargs) as recorded.sources,
        leave_as_found(step, args, kwargs),
        keep_gradients(leaves),
    ):
        loaded = load_model(step)
        module = loaded.module
        assert isinstance(module, StepModule)
        if objects := _find_written_objects((args, kwargs), module.written, is_data):
            raise _WritesObjects(objects)
        chosen = _choose_kind(options.kind, loaded.device)
        if chosen == "graph" and not options.is_alone:
            raise OtherThreads(
                f"cannot capture {name}: to make a CUDA graph changes how torch runs in all threads"
            )
        if module.is_compiled:
            return record_compiled(
                what, loaded, signature, tensors, kind=options.kind, borrows=options.borrow
            )
        settled = _look(loaded, recorded, roots, options)
        workspace = Workspace(loaded)
        makes_sizes = host_reads.refuse_memory_reads(recorded.reads, name)
        try:
            taped = workspace.taped
        except UnsupportedError as error:
            if recorded.kept:
                raise _refuse_kept(name, recorded.kept[0].name) from error
            if transform := recorded.executed.transform:
                raise UnsupportedError(
                    f"cannot capture {name}: it calls {transform}, a transform of torch.func, "
                    "which a recording cannot follow: capture the function that is given to it, or "
                    "ask for gradients by torch.autograd.grad"
                ) from error
            raise host_reads.explain_failure(workspace.loaded, error) from error
        if recorded.executed.restoring and draws_random_numbers(taped.tape):
            raise _refuse_seeding(name, recorded.executed.restoring)
        _require_same_bits(workspace.loaded, taped)
        if makes_sizes:
            host_reads.refuse_size_reads(workspace.loaded, taped.tape)
        dependent = find_dependent_reads(taped.tape)
        if dependent and on_host_read == "refuse":
            known = host_reads.list_library_reads(workspace.loaded, taped.tape, dependent)
            if others := [index for index in dependent if index not in known]:
                refusal = host_reads.refuse(workspace.loaded, taped.tape, others)
                raise UnsupportedError(f"{refusal}{recorded.hint}")
        if used := recorded.find_used_again(taped.tape):
            raise _refuse_kept(name, used)
        same = [index for index in taped.tape.host_reads if index not in dependent]
        baked = tuple(describe_place(taped.tape.calls[index]) for index in same)
        tape = taped.tape.without_host_reads(dependent)
        replay = _make_replay(chosen, workspace, tape, options)
        kept = len(dependent)
        replay.places = recorded.list_places(kept, len(tape.output_slots))
        replay.borrow(recorded.list_gradients())
        with preserve_state(loaded):
            outputs = replay(list(loaded.flat_inputs()))
        checked = [item.item() for item in outputs[len(outputs) - kept :]]
    recorded.found = []  # a gradient that nobody holds is added to in its place
    if options.reset is not None:
        options.reset()
    written = tuple(module.written)
    state, changed = settled, settled.find_change()
    if changed:
        recorded.functions = recorded.executed.list_functions()
    if changed or recorded.uses_gradients(loaded):
        state = guard_state(
            roots,
            recorded.executed,
            loaded.device,
            functions=recorded.functions,
            has_autograd=loaded.has_autograd,
            gradients=recorded.gradients,
            unguarded=Unguarded(names=options.ignore, places=recorded.kept),
        )
    if keeps_casts := torch.is_autocast_cache_enabled() and _casts(loaded.device):
        _refuse_kept_casts(written, state.tensors, name)
    if chosen == "graph":
        _refuse_shared_state(tensors, written, state.tensors, name)
    tree = recorded.tree
    if tree is None:
        raise RunnerError(f"{name} was never called")
    if keeps_casts:
        state.frozen.append("weights, while torch.autocast keeps what it has cast of them")
    return Program(
        signature=signature,
        replay=replay,
        kind=chosen,
        state=state,
        executed=recorded.executed,
        written=written,
        written_inputs=module.written_inputs,
        draws=draws_random_numbers(taped.tape),
        generators=tuple(item for item, _ in module.generators),
        gradients=recorded.gradients,
        kept=recorded.kept,
        operators=len(tape),
        baked=baked,
        checked=tuple(checked),
        warnings=tuple(dict.fromkeys((*loaded.warnings, *taped.warnings))),
        unsettled=_say_unsettled(changed, is_lost=not state.holds_all(written, tensors)),
        tree=tree,
        leaves=recorded.leaves,
        given=tensors,
        result_bytes=sum(item.numel() * item.element_size() for item in taped.reference),
    )


def _say_unsettled(changed: str | None, *, is_lost: bool) -> str:
    """Why a call that is no longer a first one cannot be captured either."""
    if changed:
        return (
            f"it changes {changed}, which a replay would leave as it is, and each call finds it "
            "changed back: change it outside of the call"
        )
    if is_lost:
        return (
            "it writes into memory that none of the names in its code leads to, so nobody could "
            "tell whether that is still in use: keep state in tensors that are attributes, or "
            "inputs, and ask for the gradient of an argument by torch.autograd.grad"
        )
    return ""


def _find_check_inputs(
    signature: _core.Signature, tensors: Sequence[torch.Tensor], options: _RecordOptions
) -> tuple[torch.Tensor, ...] | None:
    """The tensors of the second input; None: drawn. Raises InvalidArgumentError for check inputs
    that would be another call."""
    if options.check_inputs is not None:
        args, kwargs = split_inputs(options.check_inputs)
        found = signature.match(args, dict(kwargs))
        if found is None:
            raise InvalidArgumentError(
                "check_inputs has another structure, other shapes or other plain values than "
                f"inputs ({signature.describe()}): give the same arguments with other tensors"
            )
        return tuple(found)
    if options.on_host_read == "check":
        # Other values may take another path, which is what each replay then finds out.
        return tuple(make_like(item).requires_grad_(item.requires_grad) for item in tensors)
    return None


def _find_written_objects(
    tree: Any, written: Sequence[torch.Tensor], is_data: Callable[[Any], bool]
) -> frozenset[int]:
    """Ids of objects among the arguments that hold memory which the call writes."""
    memory = {key for item in written for key in list_storages(item)}
    return frozenset(
        id(item)
        for item in pytree.tree_leaves(tree)
        if is_data(item) and not dataclasses.is_dataclass(item)
        for tensor in flatten_tensors(item)
        if not memory.isdisjoint(list_storages(tensor))
    )


def _look(
    loaded: LoadedModel,
    recorded: _Recorded,
    roots: Mapping[str, object],
    options: _RecordOptions,
) -> GuardedState:
    """Run the call and note what ran, which tensors it leaves in Python, and what becomes of
    gradients; refuse one that changes what else Python keeps, or whose result autograd would have
    to follow. What Python keeps after it."""

    def run() -> None:
        with preserve_state(loaded), loaded.guard():
            call_model(loaded.call)
        if options.reset is not None:
            loaded.prepare()

    def run_followed() -> list[torch.Tensor]:
        recorded.is_followed = True
        run_inside(host_reads.watch_memory_reads(recorded.reads))
        recorded.is_followed = False
        followed, recorded.followed = recorded.followed, []  # or its graph would live on
        return followed

    def run_inside(mode: AbstractContextManager[Any]) -> None:
        recorded.mode = mode
        run()
        recorded.mode = nullcontext()

    def guard() -> GuardedState:
        return guard_state(
            roots,
            recorded.executed,
            loaded.device,
            functions=recorded.functions,
            has_autograd=loaded.has_autograd,
            gradients=None if recorded.uses_gradients(loaded) else recorded.gradients,
            unguarded=Unguarded(names=options.ignore, places=recorded.kept),
        )

    leaves = [*loaded.module.parameters(), *loaded.flat_inputs()]
    recorded.is_watched = True
    run()
    recorded.is_watched = False
    recorded.check(loaded.name)
    recorded.functions = recorded.executed.list_functions()
    state = guard()
    may_go_on = leaves_graph(run_followed)
    if kept := state.find_kept():
        recorded.kept = kept
        state = guard()
        run()
    if changed := state.find_change():
        name = state.name_change()
        raise UnsupportedError(
            f"cannot capture {loaded.name}: each call changes {changed}, which a replay would "
            f"leave as it is: {_choose_remedy(name)}"
        )
    if may_go_on and loaded.has_autograd:
        raise UnsupportedError(
            f"cannot capture {loaded.name}: autograd would have to follow its result, and a replay "
            "records no graph: call ftax.capture, and what it gives, under torch.no_grad() or "
            "torch.inference_mode(); or capture the whole training step, with its backward pass"
        )
    if recorded.uses_gradients(loaded):
        leaves += state.tensors
        unique = {id(leaf): leaf for leaf in leaves}
        found, recorded.found = recorded.found, []  # or what is planted would be taken away
        for leaf, grad in found:
            leaf.grad = grad
        recorded.gradients = find_gradients(run_inside, unique.values())
        recorded.found = found
        _refuse_gradients_of(loaded.flat_inputs(), recorded.gradients, loaded.name)
        if recorded.gradients.read:
            shape = tuple(recorded.gradients.read[0].shape)
            raise UnsupportedError(
                f"cannot capture {loaded.name}: it looks at the gradient that was there before it "
                f"puts another one there (of a weight of shape {shape}), which a replay would not: "
                "keep what it needs of it in a tensor of its own"
            )
    return state


def _choose_remedy(name: str) -> str:
    """What to do about an attribute that each call changes."""
    if name in _OF_SCHEDULES:
        return "call scheduler.step() outside of the captured call"
    ignored = f"; or, if nothing depends on it, give ignore=({name!r},)" if name else ""
    return (
        "keep it in a tensor that is written in place, or change it outside of the call" + ignored
    )


def _refuse_gradients_of(inputs: Sequence[torch.Tensor], gradients: Gradients, name: str) -> None:
    """Raises UnsupportedError for a call that leaves a gradient at an argument: another call has
    other arguments."""
    changed = {id(leaf) for leaf in (*gradients.added, *gradients.made, *gradients.dropped)}
    if any(id(item) in changed for item in inputs):
        raise UnsupportedError(
            f"cannot capture {name}: it leaves a gradient in .grad of an argument, which is "
            "another tensor in each call: return the gradient (torch.autograd.grad)"
        )


def _refuse_shared_state(
    inputs: Sequence[torch.Tensor],
    written: Sequence[torch.Tensor],
    reached: Sequence[torch.Tensor],
    name: str,
) -> None:
    """Raises UnsupportedError where an argument has memory of state that the call writes: a graph
    reads arguments from memory of its own."""
    state = set(map(find_storage, written)) & set(map(find_storage, reached))
    for place, item in enumerate(inputs):
        if find_storage(item) in state:
            raise UnsupportedError(
                f"cannot capture {name} as a graph: tensor {place} of its arguments shares memory "
                "with state that it writes: give it a clone, or kind='tape'"
            )


def _casts(device: str) -> bool:
    return torch.is_autocast_enabled(torch.device(device).type)


def _refuse_kept_casts(
    written: Sequence[torch.Tensor], reached: Sequence[torch.Tensor], name: str
) -> None:
    """Raises UnsupportedError where autocast is on around a call that changes weights."""
    weights = {find_storage(item) for item in reached if item.is_leaf and item.requires_grad}
    if not weights.isdisjoint(map(find_storage, written)):
        raise UnsupportedError(
            f"cannot capture {name} inside of torch.autocast: it changes weights of which autocast "
            "keeps what it has cast until it is left, and a replay casts anew: enter autocast "
            "inside of what is captured, or give it cache_enabled=False"
        )


def _require_same_bits(loaded: LoadedModel, taped: Taped) -> None:
    other = find_other_replay(loaded, taped)
    if other is not None:
        raise host_reads.explain_failure(
            loaded,
            UnsupportedError(
                f"a replay does not give its bits ({other.describe()}), though it gives them "
                "itself each time"
            ),
        )


def _is_size(value: object) -> bool:
    return isinstance(value, torch.Size)


def _make_parameter(tensor: torch.Tensor) -> nn.Parameter:
    if isinstance(tensor, nn.Parameter):
        return tensor
    return nn.Parameter(tensor, requires_grad=tensor.requires_grad)


def _layout(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.dtype, tensor.shape, tensor.stride(), tensor.requires_grad


def _find_leaves(*starts: object) -> list[torch.Tensor]:
    """Weights, frozen ones too, and other leaves with gradients that these lead to."""
    found: dict[int, torch.Tensor] = {}
    for item in find_reached(*starts):
        tensors: list[torch.Tensor] = []
        if isinstance(item, nn.Module):
            tensors = list(item.parameters())
        elif isinstance(item, torch.optim.Optimizer):
            tensors = [tensor for group in item.param_groups for tensor in group["params"]]
        elif isinstance(item, torch.Tensor):
            tensors = [item]
        found |= {id(item): item for item in tensors if can_hold_gradient(item)}
    return [item for item in found.values() if is_weight(item)]


def _choose_kind(kind: Literal["auto", "tape", "graph"], device: str) -> Kind:
    on_gpu = torch.device(device).type == "cuda"
    if kind == "graph" and not on_gpu:
        raise InvalidArgumentError(
            f"kind is 'graph', but what is captured runs on {device}, where there are no CUDA "
            "graphs: give 'tape' or 'auto'"
        )
    if kind != "auto":
        return kind
    return "graph" if on_gpu else "tape"


def _make_replay(
    kind: Kind, workspace: Workspace, tape: _core.Tape, options: _RecordOptions
) -> Replay:
    if kind == "tape":
        return TapeReplay(tape)
    from ftax.captures.graph import make_graph_replay

    return make_graph_replay(workspace, tape, options.memory, borrows=options.borrow)
