"""Why a call cannot be captured, in words: each with what would be wrong, and the remedy.

What is refused before the call runs is in `around.py`, reads by Python in `host_reads.py`.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ftax import _core
from ftax.captures.gradients import Gradients
from ftax.captures.names import list_names, reads_versions
from ftax.captures.program import TENSOR
from ftax.captures.recorded import Recorded
from ftax.errors import UnsupportedError, name_type
from ftax.steps.writes import find_storage

# What each call of a learning-rate scheduler changes.
_OF_SCHEDULES = ("last_epoch", "_step_count", "_last_lr")


def refuse_what_ran(recorded: Recorded, name: str) -> None:
    """Raises UnsupportedError for a result that cannot be made again of tensors, and for
    arguments that become others."""
    if recorded.resized:
        raise UnsupportedError(
            f"cannot capture {name}: it gives an argument another size, layout or memory, or "
            "has it need a gradient (resize_, .data = , requires_grad_), which a replay would "
            "not do: return a new tensor instead"
        )
    if recorded.is_other:
        raise UnsupportedError(
            f"cannot capture {name}: it changes a list, dictionary or dataclass that it is "
            "given, or another object, which a replay would leave as it is: return what it "
            "puts there, and take out before the call what it takes out"
        )
    if read := list_names(recorded.executed.codes).intersection(recorded.attributes):
        raise UnsupportedError(
            f"cannot capture {name}: its code names {min(read)!r}, an attribute that Python "
            "code gave to a tensor among the arguments, which no call could be compared by: "
            "give it as an argument of its own"
        )
    if recorded.executed.seeding:
        raise refuse_seeding(name, recorded.executed.seeding)
    if reads_versions(recorded.executed.codes):
        raise UnsupportedError(
            f"cannot capture {name}: its code asks how often a tensor was written (_version), "
            "which no guard follows: compute anew what depends on it, or decide outside of the "
            "call"
        )
    if recorded.executed.thread:
        raise UnsupportedError(
            f"cannot capture {name}: it starts a thread ({recorded.executed.thread}), and nobody "
            "sees what operators are called there: do that work outside of the call"
        )
    if recorded.drawn:
        where = f" ({recorded.executed.draws})" if recorded.executed.draws else ""
        raise UnsupportedError(
            f"cannot capture {name}: it draws random numbers of "
            f"{'Python' if isinstance(recorded.drawn[0], random.Random) else 'numpy'}{where}, and "
            "a replay would not: draw them before the call and give them as arguments, or "
            "draw torch's"
        )
    if recorded.is_lazy:
        raise UnsupportedError(
            f"cannot capture {name}: it returns a tensor that is conjugated or negated when it "
            "is read: return it through resolve_conj() or resolve_neg()"
        )
    for leaf in recorded.leaves:
        if leaf is not TENSOR and not _core.is_plain_value(leaf):
            raise UnsupportedError(
                f"cannot capture {name}: it returns {name_type(leaf)}, which cannot be made "
                "again from tensors: return tensors in tuples, lists, dicts or dataclasses "
                "that torch.utils._pytree knows, and leave caches out (use_cache=False)"
            )


def refuse_seeding(name: str, place: str) -> UnsupportedError:
    """A random generator that is set."""
    return UnsupportedError(
        f"cannot capture {name}: it sets a random generator ({place}), and a replay would go on "
        "where the one before has ended: seed outside of the call, or give it the random tensor as "
        "an argument"
    )


def refuse_kept(name: str, place: str) -> UnsupportedError:
    """A tensor of the call before."""
    return UnsupportedError(
        f"cannot capture {name}: it computes with what the call before left in {place}, and a "
        "replay would compute with what was there when it was recorded: keep it in a tensor that "
        "is written in place (copy_)"
    )


def say_unsettled(changed: str | None, *, is_lost: bool) -> str:
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


def refuse_transform(name: str, transform: str) -> UnsupportedError:
    """One of torch.func's."""
    return UnsupportedError(
        f"cannot capture {name}: it calls {transform}, a transform of torch.func, which a "
        "recording cannot follow: capture the function that is given to it, or ask for gradients "
        "by torch.autograd.grad"
    )


def refuse_open_graph(name: str) -> UnsupportedError:
    """A result that autograd would follow."""
    return UnsupportedError(
        f"cannot capture {name}: autograd would have to follow its result, and a replay "
        "records no graph: call ftax.capture, and what it gives, under torch.no_grad() or "
        "torch.inference_mode(); or capture the whole training step, with its backward pass"
    )


def refuse_collectives_of(
    calls: Sequence[Mapping[str, Any]], name: str, *, is_followed: bool
) -> None:
    """Raises UnsupportedError for collectives that replays would make in other ways."""
    if is_followed:
        raise UnsupportedError(
            f"cannot capture {name} under autograd: it communicates with other processes "
            f"({calls[0]['operator']}), and its backward pass may: capture the whole training "
            "step, or a module between the collectives"
        )
    groups = {call["group"] for call in calls if call["group"]}
    if len(groups) > 1 and any(call["overlaps"] for call in calls):
        raise UnsupportedError(
            f"cannot capture {name}: it communicates with {len(groups)} process groups "
            "(async_op=True, or DistributedDataParallel and another group), and where it waits for "
            "which no recording tells: wait for each (async_op=False)"
        )


def refuse_new_results(calls: Sequence[Mapping[str, Any]], name: str) -> None:
    """Raises UnsupportedError for collectives whose results are new tensors, in memory that the
    graph after them cannot know."""
    for call in calls:
        if call["operator"].startswith("_c10d_functional"):
            raise UnsupportedError(
                f"cannot capture {name} as CUDA graphs: {call['operator']} gives a new tensor each "
                "time: call torch.distributed.all_reduce and the like, which write in place"
            )


def refuse_read_gradient(name: str, weight: torch.Tensor) -> UnsupportedError:
    """A gradient that is looked at and then replaced."""
    return UnsupportedError(
        f"cannot capture {name}: it looks at the gradient that was there before it puts another "
        f"one there (of a weight of shape {tuple(weight.shape)}), which a replay would not: keep "
        "what it needs of it in a tensor of its own"
    )


def refuse_changes(name: str, changed: str, attribute: str) -> UnsupportedError:
    """Python state that each call changes."""
    return UnsupportedError(
        f"cannot capture {name}: each call changes {changed}, which a replay would leave as it "
        f"is: {_choose_remedy(attribute)}"
    )


def _choose_remedy(name: str) -> str:
    """What to do about an attribute that each call changes."""
    if name in _OF_SCHEDULES:
        return "call scheduler.step() outside of the captured call"
    ignored = f"; or, if nothing depends on it, give ignore=({name!r},)" if name else ""
    return (
        "keep it in a tensor that is written in place, or change it outside of the call" + ignored
    )


def refuse_gradients_of(inputs: Sequence[torch.Tensor], gradients: Gradients, name: str) -> None:
    """Raises UnsupportedError for a call that leaves a gradient at an argument: another call has
    other arguments."""
    changed = {id(leaf) for leaf in (*gradients.added, *gradients.made, *gradients.dropped)}
    if any(id(item) in changed for item in inputs):
        raise UnsupportedError(
            f"cannot capture {name}: it leaves a gradient in .grad of an argument, which is "
            "another tensor in each call: return the gradient (torch.autograd.grad)"
        )


def refuse_shared_state(
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


def has_autocast(device: str) -> bool:
    """Whether torch.autocast is on around the call."""
    return torch.is_autocast_enabled(torch.device(device).type)


def refuse_kept_casts(
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
