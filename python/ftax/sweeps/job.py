"""What a parent asks of a worker, in JSON: models on one device, in all their dtypes and sizes.

The surprising choice: a job is also the list of what is left. When a worker dies, what it answered
is struck off, what it died at is taken out, and the rest is the next worker's job.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ftax.steps.setting import Setting
from ftax.timing.session import Plan

TASK = "ftax.sweeps.work:work"  # of the workers that do jobs

Say = Callable[..., None]  # answers: what it is, and its fields
Ask = Callable[[str], None]  # asks for a purpose, and returns when the parent lets the worker go on

# After the rounds of a whole job: counters first, because a trace slows its process for good;
# memory last, because everything that is ready has to go for it.
LOOKS = ("utilisation", "trace", "memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One cell of a job, by its place in the sweep."""

    place: int
    runtime: str
    host: str
    time: bool = True  # False: it has rounds, and only looks are missing
    looks: tuple[str, ...] = ()  # of LOOKS, in their order

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to do."""
        return not self.time and not self.looks


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Cells that differ in what runs them alone, and are timed in the same rounds. The device is
    the job's."""

    model: str
    setting: Setting
    items: tuple[Item, ...]
    count: bool = True  # whether to count its work; False once a worker died of that
    apart: bool = False  # one of several, timed alone because a worker died with all of them

    @property
    def build_key(self) -> tuple[str, Setting]:
        """What tells one built model from another: all but the size."""
        return self.model, replace(self.setting, batch=None, sequence=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Groups by model and dtype, in the order in which they are to be measured."""

    device: str
    groups: tuple[Group, ...]
    threads: int
    plan: Plan = field(default_factory=Plan)
    trace_iterations: int = 3
    utilisation_s: float = 0.5
    # Of torch, while all is made ready before anything is timed; None: that is not to be done.
    threads_ahead: int | None = None
    exports: bool = False  # True: make the files that runtimes load, and time nothing
    # Of time.monotonic: when looks have to be over too.
    end_at: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """The job as JSON, to be sent now: machines have no clock in common."""
        groups = [{**asdict(group), "setting": group.setting.to_dict()} for group in self.groups]
        end_at = None if self.end_at is None else self.end_at - time.monotonic()
        return {**asdict(self), "groups": groups, "end_at": end_at}

    @classmethod
    def from_dict(cls, job: Mapping[str, Any]) -> Job:
        """The job that `to_dict` wrote, just now."""
        groups = []
        end_at = None if job["end_at"] is None else job["end_at"] + time.monotonic()
        for group in job["groups"]:
            items = [Item(**{**item, "looks": tuple(item["looks"])}) for item in group["items"]]
            setting = Setting(**group["setting"])
            groups.append(Group(**{**group, "items": tuple(items), "setting": setting}))
        plan = Plan.from_dict(job["plan"])
        return cls(**{**job, "groups": tuple(groups), "plan": plan, "end_at": end_at})


def remove_done(groups: Iterable[Group], answer: Mapping[str, Any]) -> list[Group]:
    """What is left of the groups after an answer; a cell that failed is not looked at either."""
    left = []
    for group in groups:
        items = []
        for item in group.items:
            if item.place == answer.get("place"):
                if answer["say"] == "measured":
                    item = replace(item, time=False)
                elif answer["say"] == "failed":
                    item = replace(item, time=False, looks=())
                elif answer["say"] == "looked":
                    looks = tuple(look for look in item.looks if look != answer["look"])
                    item = replace(item, looks=looks)
            if not item.is_done:
                items.append(item)
        if items:
            left.append(replace(group, items=tuple(items)))
    return left


def split_apart(groups: Iterable[Group], places: Iterable[int]) -> list[Group]:
    """The groups, that with these cells as one group a cell."""
    wanted = set(places)
    made: list[Group] = []
    for group in groups:
        if wanted.isdisjoint(item.place for item in group.items):
            made.append(group)
        else:
            made += [replace(group, items=(item,), apart=True) for item in group.items]
    return made


def stop_counting(groups: Iterable[Group], places: Iterable[int]) -> list[Group]:
    """The groups, that with these cells without a count of its work."""
    wanted = set(places)
    return [
        replace(group, count=False) if any(item.place in wanted for item in group.items) else group
        for group in groups
    ]
