"""Other ranks that measure the same step, in the same rounds.

What comes before the rounds and after them each rank does alone (`ftax.steps.collectives`). For the
rounds they meet: each says what it has made ready, and then all agree on the largest of numbers, so
that all run the same requests in the same order. They agree over a process group made for that,
which no recording sees. A rank that fails leaves, and the others read why in the store of the
default process group. No rank waits for another for longer than that group's timeout.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import torch

from ftax.errors import InvalidArgumentError, RunnerError, describe
from ftax.steps.collectives import (
    answer_alone,
    has_communicated,
    is_distributed,
    stop_answering,
)
from ftax.timing.candidate import Place
from ftax.timing.plan import Plan

_c10d: Any = getattr(torch.distributed, "distributed_c10d", None)  # a build may have none

_POLL_S = 0.01
_TELLING_S = 2.0  # that a rank may need to say why it leaves, once its connections are closed
_OWN = ("cpus", "process_index", "session", "quiet_probe_ns")  # of a plan: each rank's
_numbers = itertools.count()  # of meetings: ranks that measure the same steps count alike


class Ranks:
    """All ranks of the default process group; this process is one of them."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._store: Any = None  # of this meeting
        self._group: Any = None
        self._others: list[int] = []
        self._rank = 0
        # Now, while the backend of the group is its own.
        self._timeout = _find_timeout() if is_distributed() else timedelta()
        with torch.inference_mode(False):  # which its writes could not leave
            self._number = torch.zeros(1, dtype=torch.int64, device="cpu")

    def find(self) -> Ranks | None:
        """These, where the step that has run communicates; None where it does not, and is measured
        as any other."""
        if not has_communicated():
            stop_answering()
            return None
        return self

    def meet(self, plan: Plan, ready: Sequence[Place], **wanted: object) -> dict[Place, str]:
        """Wait until all ranks are here. Gives what another rank has not made ready, and which.

        Raises InvalidArgumentError if a rank measures by another plan or wants something else, and
        RunnerError if one has failed, or does not come.
        """
        rules = {key: value for key, value in plan.to_dict().items() if key not in _OWN} | wanted
        own = json.dumps({"rules": rules, "ready": [str(place) for place in ready]})
        missing: dict[Place, str] = {}
        with self.explaining():
            self._open()
            self._store.set(f"given/{self._rank}", own)
            for rank in self._others:
                self._wait_for(rank)
                given = json.loads(self._store.get(f"given/{rank}"))
                _check_same(json.loads(own)["rules"], given["rules"], rank)
                for place in ready:
                    if str(place) not in given["ready"]:
                        missing[place] = f"rank {rank} has not made it ready, and says why"
            size = len(self._others) + 1
            self._group = _make_group(self._store, self._rank, size, self._timeout)
        return missing

    def agree(self, number: int) -> int:
        """The largest number that a rank gives, once all have given one. Raises RunnerError where
        one has left."""
        with self.explaining():
            if self._group is None:
                raise RuntimeError("the ranks have not met")
            self._number.fill_(number)
            self._group.allreduce([self._number], _largest()).wait()
        return int(self._number)

    @contextmanager
    def explaining(self) -> Iterator[None]:
        """Raises RunnerError that names the rank, if it says so, where a connection is lost inside,
        or a request fails because another rank has."""
        try:
            yield
        except RunnerError as error:
            if reason := self._find_failure():
                raise RunnerError(reason) from error
            raise
        except RuntimeError as error:
            self._group = None  # the others wait no longer
            raise RunnerError(self._explain_loss()) from error

    def leave(self, error: BaseException | None = None) -> None:
        """Have the others wait for this rank no longer, and say why if it fails."""
        if error is not None and (self._store is not None or has_communicated()):
            with suppress(RuntimeError):
                self._open()
                self._store.set(f"failed/{self._rank}", _name_failure(error))
        self._group = None

    def _open(self) -> None:
        if self._store is not None:
            return
        size = torch.distributed.get_world_size()
        self._rank = torch.distributed.get_rank()
        self._others = [rank for rank in range(size) if rank != self._rank]
        number = next(_numbers)
        self._store = _c10d.PrefixStore(f"ftax/{number}", _c10d._get_default_store())

    def _wait_for(self, rank: int) -> None:
        end = time.monotonic() + self._timeout.total_seconds()
        while not self._store.check([f"given/{rank}"]):
            if reason := self._find_failure():
                raise RunnerError(reason)
            if time.monotonic() > end:
                raise RunnerError(
                    f"rank {rank} has not begun to measure {self._name} within "
                    f"{self._timeout.total_seconds():,.0f} s, the process group's timeout: call "
                    "ftax.tax of it on every rank"
                )
            time.sleep(_POLL_S)

    def _find_failure(self) -> str:
        """Which other rank has failed, and why; "" if none has said so."""
        with suppress(RuntimeError):  # the store may be gone
            for rank in self._others:
                if self._store.check([f"failed/{rank}"]):
                    said = self._store.get(f"failed/{rank}").decode()
                    return f"rank {rank} has ended its measurement: {said}"
        return ""

    def _explain_loss(self) -> str:
        end = time.monotonic() + _TELLING_S
        while self._others and time.monotonic() < end:
            if reason := self._find_failure():
                return reason
            time.sleep(_POLL_S)
        return (
            f"another rank no longer measures {self._name}, or was silent for "
            f"{self._timeout.total_seconds():,.0f} s: its own output says why"
        )


@contextmanager
def join_ranks(name: str) -> Iterator[Ranks]:
    """Inside, collectives are answered by this process alone until the ranks that it yields have
    met, and but for the rounds. The other ranks are told of what is raised inside."""
    ranks = Ranks(name)
    with answer_alone("measure"):
        try:
            yield ranks
        except BaseException as error:
            ranks.leave(error)
            raise
        ranks.leave()


def _check_same(own: Mapping[str, object], other: Mapping[str, object], rank: int) -> None:
    for name, value in own.items():
        if other.get(name) != value:
            raise InvalidArgumentError(
                f"{name} is {value!r} here and {other.get(name)!r} on rank {rank}; give the same "
                "on every rank"
            )


def _make_group(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    """One that `torch.distributed` does not list, so no recording looks at it."""
    return _c10d.ProcessGroupGloo(_c10d.PrefixStore("group", store), rank, size, timeout)


def _largest() -> Any:
    options = _c10d.AllreduceOptions()
    options.reduceOp = _c10d.ReduceOp.MAX
    return options


def _find_timeout() -> timedelta:
    """Of the default process group."""
    group = _c10d._get_default_group()
    backend = group._get_backend(group._device_types[0])
    options = getattr(backend, "options", None)
    found = getattr(options, "_timeout", None)
    return found if isinstance(found, timedelta) else timedelta(minutes=30)  # torch's own


def _name_failure(error: BaseException) -> str:
    return "it was interrupted" if isinstance(error, KeyboardInterrupt) else describe(error)
