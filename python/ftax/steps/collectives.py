"""Calls that communicate with other processes.

ftax runs a call more often than its user does, and on one rank perhaps more often than on another.
Its collectives would no longer pair, and a rank would wait for ever. So the first run of what is
measured ends at the first module, tensor or operator that communicates; and what is captured, or
what all ranks measure together, is recorded and looked at with collectives that this process
answers alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import torch
from torch import nn

from ftax import _core
from ftax.errors import RunnerError, UnsupportedError, describe
from ftax.steps.echoes import PlainMode
from ftax.steps.module_calls import watch_module_calls

_NAMESPACES = ("c10d", "_c10d_functional", "_c10d_functional_autograd", "symm_mem")
_WRAPPERS = ("torch.distributed.", "torch.nn.parallel.distributed")
_ALONE = ("torch.distributed.algorithms._checkpoint.",)  # recomputes activations on its own rank
# Why a capture does not take them.
_REASONS = {
    "torch.distributed.fsdp": "gathers weights into memory that it frees again",
    "torch.distributed._composable": "gathers weights into memory that it frees again",
    "torch.distributed.pipelining": "sends to other ranks and receives of them by a schedule",
    "torch.distributed.tensor": "is no plain tensor",
    "torch.distributed._functional": "is no plain tensor (torch.distributed.all_reduce gives one)",
}


class Unsettled(UnsupportedError):
    """It will communicate otherwise in later calls."""


class _Alone:
    """Collectives that this process answers while a call is recorded or looked at, how they are
    answered now, whether there were any, and what a refusal says cannot be done."""

    collectives: _core.Collectives | None = None
    answer: _core.Answer | None = None
    has_any = False
    purpose = "capture"


_alone = _Alone()


def is_distributed() -> bool:
    """Whether this process belongs to a process group."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def list_groups() -> tuple[Any, ...]:
    """The process groups that this process belongs to."""
    if not is_distributed():
        return ()
    world: Any = torch.distributed.distributed_c10d._world
    return tuple(world.pg_map)


def make_collectives() -> _core.Collectives:
    """Those of all process groups, to be answered in other ways."""
    return _core.Collectives([group.group_name for group in list_groups()])


@contextmanager
def without_other_ranks(name: str) -> Iterator[None]:
    """Inside, this process answers its collectives alone, as if each rank gave the same. Raises
    UnsupportedError for one that it cannot answer so."""
    with answer_alone("capture"), explain_unanswered(name):
        yield


@contextmanager
def answer_alone(purpose: str) -> Iterator[None]:
    """Inside, this process answers its collectives alone, as if each rank gave the same, but for
    what is inside of `answered_by`, or comes after `stop_answering`. Where it does already, there
    is no difference. ``purpose`` is what cannot be done with a call that is refused."""
    collectives = None if _alone.collectives is not None else _answer_alone()
    if collectives is None:
        yield
        return
    _alone.collectives, _alone.answer = collectives, _core.Answer.alone
    _alone.has_any, _alone.purpose = False, purpose
    try:
        yield
    finally:
        stop_answering()
        _alone.has_any, _alone.purpose = False, "capture"


def stop_answering() -> None:
    """From now on the other ranks answer, as ever."""
    if _alone.collectives is not None:
        _alone.collectives.close()
    _alone.collectives = None


@contextmanager
def answered_by(answer: _core.Answer | None) -> Iterator[_core.Collectives | None]:
    """Inside of `answer_alone`, has collectives answered in another way; None: by the other ranks,
    as if nobody looked. Elsewhere nothing happens."""
    collectives, before = _alone.collectives, _alone.answer
    if collectives is None:
        yield None
        return
    _switch(collectives, answer)
    try:
        yield collectives
    finally:
        _switch(collectives, before)


def _switch(collectives: _core.Collectives, answer: _core.Answer | None) -> None:
    if answer is None:
        collectives.close()
    else:
        collectives.open(answer)
    _alone.answer = answer


@contextmanager
def explain_unanswered(name: str) -> Iterator[None]:
    """Raises UnsupportedError for what failed inside, or will fail, because a collective cannot be
    answered by this process alone."""
    try:
        yield
    except Exception as error:
        _refuse_unanswered(name, error)
        if isinstance(error, RunnerError) and _alone.has_any:
            raise UnsupportedError(
                f"cannot {_alone.purpose} {name}: it fails where each rank gives to its "
                f"collectives what this one gives ({describe(error)})"
            ) from error
        raise


def _answer_alone() -> _core.Collectives | None:
    """None where there are none, or a backend is of an odd kind: what communicates is refused."""
    if not is_distributed():
        return None
    try:
        collectives = make_collectives()
        collectives.open(_core.Answer.alone)
    except (UnsupportedError, RuntimeError):
        return None
    return collectives


def has_communicated() -> bool:
    """Whether what was watched inside of `answer_alone` had a collective."""
    return _alone.has_any


def _refuse_unanswered(name: str, cause: Exception | None = None) -> None:
    if _alone.collectives is not None and _alone.collectives.refusal:
        refusal = f"cannot {_alone.purpose} {name}: {_alone.collectives.refusal}"
        raise UnsupportedError(refusal) from cause


@contextmanager
def refuse_collectives(name: str, reached: Iterable[object] = ()) -> Iterator[None]:
    """In a process group, raises UnsupportedError for a call inside that communicates; at once if
    anything in ``reached`` is a wrapper such as DistributedDataParallel. Inside of
    `answer_alone`, only for wrappers and collectives that no recording can hold."""
    if not is_distributed():
        yield
        return
    watch = _Watch(name)
    for item in reached:
        watch.look_at(item)
    with watch_module_calls(lambda part, _: watch.look_at(part)), watch:
        yield
    _refuse_unanswered(name)
    if watch.found is not None:  # the call has caught the error, and went on without its collective
        raise watch.found


class _Watch(PlainMode):
    def __init__(self, name: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: UnsupportedError | None = None
        self._name = name

    def look_at(self, item: object) -> None:
        """Refuse a module, an optimizer or a tensor that communicates."""
        for part in item.modules() if isinstance(item, nn.Module) else (item,):
            own = part.parameters(recurse=False) if isinstance(part, nn.Module) else ()
            for each in (part, *own):
                if not _communicates(type(each)):
                    continue
                if _alone.collectives is None or not _is_data_parallel(each):
                    self.refuse(f"a {type(each).__name__}", type(each))
                self._look_at_data_parallel(each)
                _alone.has_any = True

    def _look_at_data_parallel(self, module: Any) -> None:
        if why := _explain_option(module):
            self._raise(UnsupportedError(f"cannot {_alone.purpose} {self._name}: {why}"))
        if not getattr(module, "_has_rebuilt_buckets", False):
            self._raise(
                Unsettled(
                    f"cannot {_alone.purpose} {self._name} yet: DistributedDataParallel orders its "
                    "buckets in the second call: train two steps before"
                )
            )

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace in _NAMESPACES:
            if _alone.collectives is None:
                self.refuse(func._schema.name)
            _alone.has_any = True
        for kind in types:
            if _communicates(kind):
                self.refuse(f"a {kind.__name__}", kind)
        return func(*args, **(kwargs or {}))

    def refuse(self, found: str, kind: type = object) -> NoReturn:
        if _alone.collectives is None:
            self._raise(
                UnsupportedError(
                    f"{self._name} communicates with other processes ({found}), and ftax would run "
                    "it more often on one rank than on another: give the part of it that needs one "
                    "rank alone, or use the original"
                )
            )
        doing, modules = _alone.purpose, [base.__module__ for base in kind.__mro__]
        reasons = (why for module in modules for key, why in _REASONS.items() if key in module)
        why = next(reasons, "communicates in ways that no recording has")
        self._raise(
            UnsupportedError(
                f"cannot {doing} {self._name}: it uses {found}, which {why}: {doing} a part that "
                "has none, or use the original"
            )
        )

    def _raise(self, error: UnsupportedError) -> NoReturn:
        self.found = error
        raise error


def _is_data_parallel(item: object) -> bool:
    return isinstance(item, nn.parallel.DistributedDataParallel)


def _explain_option(module: Any) -> str:
    """Why replays of what DistributedDataParallel wraps would not do as it does; "" if they do."""
    if module.find_unused_parameters or module.static_graph:
        return (
            "DistributedDataParallel reads which weights a call used (find_unused_parameters or "
            "static_graph), and a replay would not: leave both out"
        )
    if module._join_config.enable:
        return "it is inside of a join() of DistributedDataParallel: capture it outside"
    options = ("mixed_precision", "_comm_hooks", "_delay_all_reduce_all_params")
    if any(getattr(module, option, None) for option in (*options, "_use_python_reducer")):
        return (
            "DistributedDataParallel has a communication hook, mixed precision or another reducer, "
            "which a replay would leave out: use none of them"
        )
    return ""


def _communicates(kind: type) -> bool:
    return any(
        base.__module__.startswith(_WRAPPERS) and not base.__module__.startswith(_ALONE)
        for base in kind.__mro__
    )
