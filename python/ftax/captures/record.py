"""Records a call: looks at it from several sides, and refuses what a replay could not be.

The call is recorded as a step of its own tensors, by the code that records what ftax measures. So a
capture has passed every check that a rung of a receipt has, with state that was found by watching
and put back.
"""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn
from torch.utils import _pytree as pytree

from ftax import _core
from ftax.captures import host_reads
from ftax.captures.around import OtherThreads, refuse_modes
from ftax.captures.compiled import record_compiled
from ftax.captures.followed import FollowedProgram, make_followed
from ftax.captures.followed_call import FollowedCall, find_cast
from ftax.captures.gradients import (
    can_hold_gradient,
    is_weight,
    keep_gradients,
)
from ftax.captures.graph import GraphPasses, bake_transfers
from ftax.captures.guards import GuardedState, Unguarded, guard_state
from ftax.captures.options import Options
from ftax.captures.passes import Backward, Grads, Passes, cut
from ftax.captures.program import Kind, Program, Replay, TapeReplay
from ftax.captures.recorded import Recorded
from ftax.captures.refusals import (
    has_autocast,
    refuse_collectives_of,
    refuse_kept,
    refuse_kept_casts,
    refuse_new_results,
    refuse_open_graph,
    refuse_seeding,
    refuse_shared_state,
    refuse_transform,
    say_unsettled,
)
from ftax.captures.returned_reads import Call
from ftax.captures.watched_runs import IsFollowed, look_at
from ftax.errors import InvalidArgumentError, RunnerError, UnsupportedError
from ftax.runtimes.workspace import Workspace
from ftax.steps.collectives import has_communicated, list_groups, without_other_ranks
from ftax.steps.input_trees import flatten_tensors, is_data
from ftax.steps.kept_python import keep_python
from ftax.steps.left_as_found import leave_as_found
from ftax.steps.load_step import load_step
from ftax.steps.loaded import LoadedModel
from ftax.steps.random_states import beside_other_threads
from ftax.steps.reach import find_reached
from ftax.steps.setting import Setting
from ftax.steps.state import refuse_lazy
from ftax.steps.step import Step
from ftax.steps.tensors import make_like
from ftax.steps.user_inputs import split_inputs
from ftax.steps.writes import list_storages
from ftax.tape.capture import GraphMemory
from ftax.tape.flow import draws_random_numbers, find_dependent_reads, is_scratch, list_collectives
from ftax.tape.recording import describe_place
from ftax.tape.tape import Taped, find_other_replay, preserve_state

_NEVER = 1 << 30  # collections of younger objects
_LISTED_ANEW = ("modules_buffers", "named_module_buffers")  # by DistributedDataParallel, each call


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """How a call is to be recorded.

    Attributes:
        name: of what is captured, in messages.
        options: those of `ftax.capture`.
        memory: shared with the graphs of other programs, which are never replayed at the same time.
        check_inputs: of the same call; None: they are drawn.
        is_alone: no other thread matters; else what all threads share is neither seeded nor put
            back.
    """

    name: str
    options: Options
    memory: GraphMemory
    check_inputs: Any = None
    is_alone: bool = True


def record_program(
    what: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], request: Request
) -> Program:
    """Record ``what`` on these arguments, in the caller's grad mode.

    Raises:
        OtherThreads: beside other threads it cannot be recorded.
        UnsupportedError: it cannot be replayed soundly; the message has operator, line and remedy.
        InvalidArgumentError: for arguments that cannot be captured.
        RunnerError: it raised.
    """
    refuse_modes(request.name)
    with (
        nullcontext() if request.is_alone else beside_other_threads(),
        _without_full_collections(),
        without_other_ranks(request.name),
    ):
        return _record_as_it_is(what, args, kwargs, request)


def _record_as_it_is(
    what: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], request: Request
) -> Program:
    """Objects that the call writes into are state, and a call that autograd goes on from has its
    backward pass recorded with it: both are found by trying."""
    objects: set[int] = set()
    grads: Grads = ()
    call: Call | None = None
    while True:
        try:
            return _record(
                what, args, kwargs, request, lambda item: is_data(item) and id(item) not in objects,
                grads, call,
            )  # fmt: skip
        except _WritesObjects as found:
            objects.update(found.objects)
        except IsFollowed as found:
            grads, call = found.grads, found.call


def record_backward(
    what: Callable[..., Any],
    program: FollowedProgram,
    tensors: Sequence[torch.Tensor | None],
    grads: Grads,
    request: Request,
) -> Backward:
    """The backward pass of a recorded call for gradients that lie in another way. Values do not
    matter: tensors that are not there any more are zeros."""
    given = [
        program.make_input(place) if item is None else item for place, item in enumerate(tensors)
    ]
    args, kwargs = program.signature.fill(given)
    request = dataclasses.replace(
        request, options=dataclasses.replace(request.options, kind="tape")
    )
    cast = find_cast(program.passes.drawn[0].device.type)
    if program.call is not None and not request.is_alone:
        raise OtherThreads(
            f"cannot capture {request.name}: it returns numbers, and other threads of this process "
            "may read some meanwhile"
        )
    refuse_modes(request.name)
    with (
        nullcontext() if request.is_alone else beside_other_threads(),
        _without_full_collections(),
        torch.enable_grad(),
        program.setting(),
    ):
        if changed := program.state.find_change():
            raise UnsupportedError(
                f"cannot capture {request.name}: {changed} has changed since its forward pass"
            )
        other = _record(what, args, kwargs, request, is_data, grads, program.call, cast)
    if not isinstance(other, FollowedProgram) or not program.is_like(other):
        raise UnsupportedError(
            f"cannot capture {request.name}: its forward pass is not the same when it is recorded "
            "again for other gradients"
        )
    (backward,) = other.passes.backwards.values()
    return backward


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


class _WritesObjects(Exception):
    """The call writes into tensors of these objects, which are state then, such as a cache."""

    def __init__(self, objects: frozenset[int]) -> None:
        super().__init__()
        self.objects = objects


def _record(
    what: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    request: Request,
    is_data: Callable[[Any], bool],
    grads: Grads,
    call: Call | None,
    cast: torch.dtype | None = None,
) -> Program:
    name, options = request.name, request.options
    present = [item for item in grads if item is not None]
    signature = _core.Signature(args, kwargs, is_data)
    tensors = signature.match(args, kwargs)
    if tensors is None:
        raise InvalidArgumentError(
            "the arguments do not compare equal to themselves, so no later call could be told to "
            "be the same; give plain values, tensors and containers of them"
        )
    recorded = Recorded(what, signature, tensors, name=name, is_alone=request.is_alone)
    if grads:
        recorded = FollowedCall(
            what, signature, tensors, name=name, is_alone=request.is_alone, grads=grads, cast=cast,
            call=call,
        )  # fmt: skip
    check_inputs = _find_check_inputs(signature, tensors, request)
    if check_inputs is not None:
        check_inputs += tuple(map(make_like, present))
    step = Step(
        function=recorded,
        inputs=(*tensors, *present),
        check_inputs=check_inputs,
        reset=options.reset,
        name=name,
        kind="call",
    )
    roots = {name: what, "the arguments": signature.objects}
    has_buckets = False  # of DistributedDataParallel
    for item in find_reached(what, *signature.objects):
        has_buckets |= isinstance(item, nn.parallel.DistributedDataParallel)
        if isinstance(item, nn.Module):
            for part in item.modules():
                refuse_lazy(part, f"cannot capture {name}: a part of it")
    if has_buckets:
        options = dataclasses.replace(options, ignore=(*options.ignore, *_LISTED_ANEW))
    leaves = _find_leaves(what, *signature.objects, *tensors)
    recorded.found = [(leaf, leaf.grad) for leaf in leaves]
    with (
        keep_python(what, args, kwargs) as recorded.sources,
        leave_as_found(step, args, kwargs),
        keep_gradients(leaves),
    ):
        loaded = load_step(step, Setting(), None)
        module = loaded.step
        assert module is not None
        if objects := _find_written_objects((args, kwargs), module.written, is_data):
            raise _WritesObjects(objects)
        chosen = _choose_kind(options.kind, loaded.device)
        if chosen == "graph" and not request.is_alone:
            raise OtherThreads(
                f"cannot capture {name}: to make a CUDA graph changes how torch runs in all threads"
            )
        if module.is_compiled:
            if has_communicated():
                raise UnsupportedError(
                    f"cannot capture {name}: torch.compile made a part of it, and it communicates "
                    "with other processes: capture what was compiled"
                )
            return record_compiled(
                what, loaded, signature, tensors, kind=options.kind, borrows=options.borrow
            )
        settled = look_at(loaded, recorded, roots, options)
        workspace = Workspace(loaded)
        makes_sizes = host_reads.refuse_memory_reads(recorded.reads, name, recorded.find_print)
        try:
            taped = workspace.taped
        except UnsupportedError as error:
            if recorded.kept:
                raise refuse_kept(name, recorded.kept[0].name) from error
            if transform := recorded.executed.transform:
                raise refuse_transform(name, transform) from error
            raise recorded.explain_failure(workspace.loaded, error) from error
        if recorded.executed.restoring and draws_random_numbers(taped.tape):
            raise refuse_seeding(name, recorded.executed.restoring)
        _require_same_bits(workspace.loaded, recorded, taped)
        if makes_sizes:
            host_reads.refuse_size_reads(workspace.loaded, taped.tape)
        dependent = find_dependent_reads(taped.tape)
        collectives = list_collectives(taped.tape)
        if collectives:
            refuse_collectives_of(collectives, name, is_followed=bool(grads))
        if dependent and (collectives or options.on_host_read == "refuse"):
            known: Sequence[int] = ()
            if not collectives:  # a call with other numbers is done again
                known = host_reads.list_library_reads(workspace.loaded, taped.tape, dependent)
            if others := [index for index in dependent if index not in known]:
                refusal = host_reads.refuse(
                    workspace.loaded, taped.tape, others, recorded.find_print
                )
                raise UnsupportedError(f"{refusal}{recorded.hint}")
        if used := recorded.find_used_again(taped.tape):
            raise refuse_kept(name, used)
        if grads and (
            dependent or recorded.kept or module.written_inputs or recorded.gradients.has_any
        ):
            raise refuse_open_graph(name)
        same = [index for index in taped.tape.host_reads if index not in dependent]
        baked = tuple(describe_place(taped.tape.calls[index]) for index in same)
        tape = taped.tape.without_host_reads(dependent)
        graphs: list[GraphPasses] = []
        warnings = [*loaded.warnings, *taped.warnings]
        passes = None
        if isinstance(recorded, FollowedCall):
            if torch.device(loaded.device).type == "cuda":
                tape = bake_transfers(loaded, tape)
            with preserve_state(loaded):
                passes = cut(tape, tensors, grads, recorded.shape, name)
            replay: Replay = TapeReplay(tape)
            if chosen == "graph":
                graphs = _make_graphs(
                    workspace, passes, tensors, tuple(module.written), settled, options, warnings
                )
                chosen = "graph" if graphs else "tape"
        elif collectives and chosen == "graph":
            replay = _make_graphs_between(
                collectives, workspace, tape, tuple(module.written), settled, request, warnings
            )
            chosen = "tape" if isinstance(replay, TapeReplay) else "graph"
        else:
            replay = _make_replay(chosen, workspace, tape, request)
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
            has_autograd=loaded.has_autograd and not recorded.hands_gradients,
            gradients=None if recorded.hands_gradients else recorded.gradients,
            unguarded=Unguarded(names=frozenset(options.ignore), places=recorded.kept),
        )
    if keeps_casts := torch.is_autocast_cache_enabled() and has_autocast(loaded.device):
        refuse_kept_casts(written, state.tensors, name)
    if chosen == "graph":
        refuse_shared_state(tensors, written, state.tensors, name)
    tree = recorded.tree
    if tree is None:
        raise RunnerError(f"{name} was never called")
    if keeps_casts:
        state.frozen.append("weights, while torch.autocast keeps what it has cast of them")
    lost = [item for item in written if not state.holds_all((item,), tensors)]
    if has_buckets:  # C++ alone knows and reads them
        lost = [item for item in lost if not is_scratch(tape, item)]
    facts: dict[str, Any] = {
        "signature": signature,
        "kind": chosen,
        "state": state,
        "executed": recorded.executed,
        "written": written,
        "written_inputs": module.written_inputs,
        "draws": draws_random_numbers(taped.tape),
        "generators": tuple(item for item, _ in module.generators),
        "gradients": recorded.gradients,
        "kept": recorded.kept,
        "groups": list_groups() if collectives else (),
        "operators": len(tape),
        "baked": baked,
        "checked": tuple(checked),
        "warnings": tuple(dict.fromkeys(warnings)),
        "unsettled": say_unsettled(changed, is_lost=bool(lost)),
        "given": tensors,
        "result_bytes": sum(item.numel() * item.element_size() for item in taped.reference),
    }
    if passes is None or not isinstance(recorded, FollowedCall):
        return Program(replay=replay, tree=tree, leaves=recorded.leaves, **facts)
    return make_followed(passes, recorded, facts, graphs)


def _find_check_inputs(
    signature: _core.Signature, tensors: Sequence[torch.Tensor], request: Request
) -> tuple[torch.Tensor, ...] | None:
    """The tensors of the second input; None: drawn. Raises InvalidArgumentError for check inputs
    that would be another call."""
    if request.check_inputs is not None:
        args, kwargs = split_inputs(request.check_inputs)
        found = signature.match(args, dict(kwargs))
        if found is None:
            raise InvalidArgumentError(
                "check_inputs has another structure, other shapes or other plain values than "
                f"inputs ({signature.describe()}): give the same arguments with other tensors"
            )
        return tuple(found)
    if request.options.on_host_read == "check":
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


def _require_same_bits(loaded: LoadedModel, recorded: Recorded, taped: Taped) -> None:
    other = find_other_replay(loaded, taped)
    if other is None:
        return
    why = "though it gives them itself each time"
    goes_back = any("convolution_backward" in name for name in taped.tape.operators)
    if goes_back and loaded.device != "cpu" and not torch.backends.cudnn.deterministic:
        why = (
            "as cuDNN's convolutions may add up gradients in any order: set "
            "torch.backends.cudnn.deterministic = True"
        )
    raise recorded.explain_failure(
        loaded, UnsupportedError(f"a replay does not give its bits ({other.describe()}), {why}")
    )


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


def _make_graphs(
    workspace: Workspace,
    passes: Passes,
    tensors: Sequence[torch.Tensor],
    written: Sequence[torch.Tensor],
    state: GuardedState,
    options: Options,
    warnings: list[str],
) -> list[GraphPasses]:
    """Pairs of CUDA graphs; none where one cannot be and was not asked for: a warning says why."""
    loaded = workspace.loaded
    try:
        refuse_shared_state(tensors, written, state.tensors, loaded.name)
        return [GraphPasses(workspace, passes, tensors) for _ in range(options.depth)]
    except UnsupportedError as error:
        if options.kind == "graph":
            raise
        warnings.append(f"replayed from C++, not as CUDA graphs: {error}")
        return []


def _make_graphs_between(
    collectives: Sequence[Mapping[str, Any]],
    workspace: Workspace,
    tape: _core.Tape,
    written: Sequence[torch.Tensor],
    state: GuardedState,
    request: Request,
    warnings: list[str],
) -> Replay:
    """CUDA graphs between these; the tape where they cannot be and were not asked for: a warning
    says why."""
    loaded = workspace.loaded
    try:
        refuse_new_results(collectives, loaded.name)
        refuse_shared_state(loaded.flat_inputs(), written, state.tensors, loaded.name)
        return _make_replay("graph", workspace, tape, request)
    except UnsupportedError as error:
        if request.options.kind == "graph":
            raise
        warnings.append(f"replayed from C++, not as CUDA graphs: {error}")
        return TapeReplay(tape)


def _make_replay(kind: Kind, workspace: Workspace, tape: _core.Tape, request: Request) -> Replay:
    if kind == "tape":
        return TapeReplay(tape)
    from ftax.captures.graph import make_graph_replay

    return make_graph_replay(workspace, tape, request.memory, borrows=request.options.borrow)
