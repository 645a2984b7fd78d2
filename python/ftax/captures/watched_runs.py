"""Runs a call before it is recorded, and notes what it does: which code runs, what it leaves in
Python, what becomes of gradients, and whether autograd goes on from its result.

A graph that a backward pass has gone through and did not retain counts as none, since it is used
up; so the roots of backward passes are noted while the call runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

from ftax.captures import host_reads
from ftax.captures.followed_call import FollowedCall, draw_grads
from ftax.captures.gradients import (
    find_gradients,
)
from ftax.captures.guards import GuardedState, Unguarded, guard_state
from ftax.captures.options import Options
from ftax.captures.passes import Grads
from ftax.captures.recorded import Recorded
from ftax.captures.refusals import (
    refuse_changes,
    refuse_gradients_of,
    refuse_open_graph,
    refuse_read_gradient,
    refuse_what_ran,
)
from ftax.captures.returned_reads import Call
from ftax.steps.loaded import LoadedModel
from ftax.steps.outputs import call_model
from ftax.tape.tape import preserve_state

_ENGINE = "_engine_run_backward"


class IsFollowed(Exception):
    """Autograd goes on from what the call returns; ``grads`` are like those that it would bring;
    ``call``: by which numbers that it returns are read later."""

    def __init__(self, grads: Grads, call: Call | None) -> None:
        super().__init__()
        self.grads, self.call = grads, call


def look_at(
    loaded: LoadedModel,
    recorded: Recorded,
    roots: Mapping[str, object],
    options: Options,
) -> GuardedState:
    """Run the call and note what ran, which tensors it leaves in Python, and what becomes of
    gradients; refuse one that changes what else Python keeps, or whose result autograd would have
    to follow. What Python keeps after it."""

    grads: list[torch.Tensor] = []

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
        grads.extend(draw_grads(followed))
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
            has_autograd=loaded.has_autograd and not recorded.hands_gradients,
            gradients=None
            if recorded.uses_gradients(loaded) or recorded.hands_gradients
            else recorded.gradients,
            unguarded=Unguarded(names=frozenset(options.ignore), places=recorded.kept),
        )

    leaves = [*loaded.module.parameters(), *loaded.flat_inputs()]
    recorded.is_watched = True
    run()
    recorded.is_watched = False
    refuse_what_ran(recorded, loaded.name)
    recorded.functions = recorded.executed.list_functions()
    state = guard()
    recorded.find_returned_reads(run, loaded.device)
    may_go_on = leaves_graph(run_followed)
    if kept := state.find_kept():
        recorded.kept = kept
        state = guard()
        run()
    if changed := state.find_change():
        name = state.name_change()
        raise refuse_changes(loaded.name, changed, name)
    if may_go_on and loaded.has_autograd:
        if isinstance(recorded, FollowedCall):
            raise refuse_open_graph(loaded.name)
        raise IsFollowed(tuple(grads), recorded.read_later)
    if recorded.uses_gradients(loaded):
        leaves += state.tensors
        unique = {id(leaf): leaf for leaf in leaves}
        found, recorded.found = recorded.found, []  # or what is planted would be taken away
        for leaf, grad in found:
            leaf.grad = grad
        recorded.gradients = find_gradients(run_inside, unique.values())
        recorded.found = found
        refuse_gradients_of(loaded.flat_inputs(), recorded.gradients, loaded.name)
        if recorded.gradients.read:
            raise refuse_read_gradient(loaded.name, recorded.gradients.read[0])
    return state


@contextmanager
def _keep_roots() -> Iterator[list[Any]]:
    """Of the backward passes that Python starts inside: the nodes of autograd where they begin."""
    autograd: Any = torch.autograd
    engine = getattr(autograd, _ENGINE)
    found: list[Any] = []

    def run(roots: Sequence[torch.Tensor], *args: Any, **kwargs: Any) -> Any:
        keeps_graph = args[1] if len(args) > 1 else kwargs.get("keep_graph", False)
        if not keeps_graph:
            found.extend(root.grad_fn for root in roots if root.grad_fn is not None)
        return engine(roots, *args, **kwargs)

    places = [autograd, autograd.graph]
    places = [place for place in places if getattr(place, _ENGINE, None) is engine]
    for place in places:
        setattr(place, _ENGINE, run)
    try:
        yield found
    finally:
        for place in places:
            setattr(place, _ENGINE, engine)


def leaves_graph(run: Callable[[], Sequence[torch.Tensor]]) -> bool:
    """Whether autograd could go on from any of the tensors that ``run`` gives."""
    with _keep_roots() as begun:
        nodes = [item.grad_fn for item in run()]  # None: of a weight itself
    used = _follow(begun)
    return any(node not in used if node else not begun for node in nodes)


def _follow(roots: Sequence[Any]) -> set[Any]:
    """Nodes by which backward passes from ``roots`` have gone. They are used up, as the graph of a
    loss is, and autograd cannot go on from there."""
    seen, queue = set(roots), list(roots)
    while queue:
        for further, _ in queue.pop().next_functions:
            if further is not None and further not in seen:
                seen.add(further)
                queue.append(further)
    return seen
