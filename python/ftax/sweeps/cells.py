"""Times the groups of one job, in a worker: every model is built once, every group is one session.

The surprising choice: on a GPU what was timed is kept ready until the end, for the looks that come
after the last round of the last model. If memory runs short it is let go, and made ready again.
Beside other workers all is made ready before anything is timed, as far as there is memory; between
two cells whoever else is ready to measure goes first.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from ftax.errors import describe, describe_fault, is_out_of_memory, release
from ftax.runtimes.catalogue import check_host, find_runtime
from ftax.runtimes.workspace import Workspace
from ftax.steps.load import load_model
from ftax.steps.loaded import LoadedModel
from ftax.sweeps.facts import choose_status, count, make_fields
from ftax.sweeps.job import Ask, Group, Item, Job, Say
from ftax.timing.candidate import Candidate
from ftax.timing.session import Session, measure

_NOISY = 0.5  # of the rounds that count were disturbed: more, and a group is timed again
_LEAST_FREE_SHARE = 0.5  # of the device's memory, below which nothing is kept ready
_LEAST_FREE_AHEAD = 0.6  # and below which nothing more is made ready ahead


@dataclass(slots=True, kw_only=True)
class Attempt:
    """How one cell went: fields of its answer, or the error."""

    seconds: float = 0.0
    fields: dict[str, Any] | None = None
    error: BaseException | str | None = None
    disturbed: float = 0.0  # of its rounds that count, the share beside a neighbour


@dataclass(slots=True, kw_only=True)
class Ready:
    """A group with its inputs made, and the runtimes that are ready to run, by place."""

    group: Group
    workspace: Workspace
    prepared: dict[int, Candidate] = field(default_factory=dict)
    ahead: dict[int, Attempt] = field(default_factory=dict)  # how preparing went, until it is timed


class Bench:
    """The models of a job, and all that is ready to run of them."""

    def __init__(self, job: Job, say: Say, ask: Ask) -> None:
        self.job, self.say = job, say
        self._ask, self._is_alone = ask, False
        self.models: dict[tuple[object, ...], LoadedModel | BaseException] = {}
        self.ready: dict[Group, Ready] = {}
        self.failed: set[int] = set()  # places, which are not looked at
        self.latency_ns: dict[int, float] = {}  # of places that were timed here
        self._counts: dict[tuple[object, ...], tuple[dict[str, int], str]] = {}

    def time_group(self, group: Group) -> dict[int, Attempt]:
        """Time what is to be timed of a group, and answer for each of its cells; how they went, by
        place, if a neighbour was there so often that to time them again pays."""
        items = [item for item in group.items if item.time]
        if not items:
            return {}
        outcome = self._attempt(group, items)
        short = [item for item in items if _is_short_of_memory(outcome[item.place])]
        if short and self.keeps_others(group):
            self.drop(group)
            outcome |= self._attempt(group, short)
        for item in items:
            self._answer(item, outcome[item.place])
        if max(attempt.disturbed for attempt in outcome.values()) > _NOISY:
            return outcome
        if not any(item.looks for item in group.items):
            self.ready.pop(group, None)
        return {}

    def time_again(self, group: Group, before: Mapping[int, Attempt]) -> None:
        """Time a group once more that went so beside a neighbour on the host's core, if it is ready
        still, and answer for what had fewer of them this time."""
        items = [item for item in group.items if before.get(item.place, Attempt()).fields]
        if group in self.ready:
            outcome = self._attempt(group, items)
            for item in items:
                first, second = before[item.place], outcome[item.place]
                if second.fields is not None and second.disturbed < first.disturbed:
                    second.seconds += first.seconds
                    second.fields["facts"]["timed_again"] = True
                    self._answer(item, second)
        if not any(item.looks for item in group.items):
            self.ready.pop(group, None)

    def get_ready_ahead(self, groups: Iterable[Group]) -> None:
        """Make ready what is to be timed, as far as there is memory, but for what has to have the
        device to itself. What cannot be made ready says so when its group is timed."""
        for group in groups:
            items = [i for i in group.items if i.time and not find_runtime(i.runtime).tunes]
            if self._find_free_share() < _LEAST_FREE_AHEAD:
                return
            self._ask("going on")
            try:
                ready = self.get_ready(group)
            except Exception as error:  # as when it is timed
                release(error)
                continue
            for item in items:
                self._ask("going on")
                ready.ahead[item.place] = self._try_to_prepare(ready, item)
            if items:
                self._count(group, ready.workspace.loaded, [item.place for item in items])

    def wait(self) -> None:
        """Return when the device is this worker's, and stays so."""
        if not self._is_alone:
            if torch.cuda.is_initialized():
                torch.cuda.empty_cache()  # what torch keeps in reserve is missing elsewhere
            self._ask("measuring")
            self._is_alone = True

    def _try_to_prepare(self, ready: Ready, item: Item) -> Attempt:
        attempt, start = Attempt(), time.perf_counter()
        try:
            self.prepare(ready, item)
        except Exception as error:
            release(error)
            attempt.error = error
        attempt.seconds = time.perf_counter() - start
        return attempt

    def export_group(self, group: Group) -> None:
        """Make the files of a group's cells, and answer for each. One that cannot be made fails
        again when its cell is timed, which then says why."""
        for item in group.items:
            start, reason = time.perf_counter(), ""
            try:
                ready = self.get_ready(group)
                self.begin("export", [item.place])
                find_runtime(item.runtime).make_files(ready.workspace)
            except Exception as error:
                release(error)
                reason = describe_fault(error)
            seconds = time.perf_counter() - start
            self.say("exported", place=item.place, seconds=seconds, reason=reason)
        self.ready.pop(group, None)

    def get_ready(self, group: Group) -> Ready:
        """The group with its inputs. Raises what building the model or making inputs raises."""
        if group not in self.ready:
            self._spare_memory(group)
            model = self._load(group)
            self.begin("inputs", [item.place for item in group.items])
            sizes = group.setting
            loaded = model.with_size(batch=sizes.batch, sequence=sizes.sequence)
            workspace = Workspace(loaded)
            self.ready[group] = Ready(group=group, workspace=workspace)
        return self.ready[group]

    def prepare(self, ready: Ready, item: Item) -> Candidate:
        """The runtime of a cell made ready. Raises what preparing raises."""
        if item.place not in ready.prepared:
            self.begin("prepare", [item.place])
            spec = find_runtime(item.runtime)
            ready.prepared[item.place] = spec.prepare(ready.workspace, check_host(item.host))
        return ready.prepared[item.place]

    def begin(self, step: str, places: Sequence[int]) -> None:
        """Tell the parent what comes next, and whose fault it is if it does not end."""
        self.say("begin", step=step, places=list(places))

    def keeps_others(self, group: Group) -> bool:
        """Whether anything but this group is ready, and could be let go."""
        return any(other != group for other in self.ready)

    def drop(self, group: Group) -> None:
        """Let go of all that is ready, and of other models, so that a group has the device's
        memory."""
        self._let_go(group.build_key)
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()

    def drop_all(self) -> None:
        """Let go of all models and all that is ready, down to the workspaces of libraries."""
        self._let_go(None)
        if torch.cuda.is_initialized():
            torch._C._cuda_clearCublasWorkspaces()
            torch.cuda.synchronize(self.job.device)
            torch.cuda.empty_cache()

    def _let_go(self, but: tuple[object, ...] | None) -> None:
        self.ready.clear()
        self.models = {
            key: found
            for key, found in self.models.items()
            if key == but or isinstance(found, BaseException)
        }
        _collect()

    def _attempt(self, group: Group, items: Sequence[Item]) -> dict[int, Attempt]:
        try:
            ready = self.get_ready(group)
        except Exception as error:  # whatever a model raises costs its cells alone
            release(error)
            return {item.place: Attempt(error=error) for item in items}
        outcome = {
            item.place: ready.ahead.pop(item.place)
            if item.place in ready.ahead
            else self._try_to_prepare(ready, item)
            for item in items
        }
        runnable = [item for item in items if outcome[item.place].error is None]
        if runnable:
            self._measure(ready, runnable, outcome)
        return outcome

    def _measure(self, ready: Ready, items: Sequence[Item], outcome: dict[int, Attempt]) -> None:
        places = [item.place for item in items]
        loaded, prepared = ready.workspace.loaded, [ready.prepared[place] for place in places]
        work, problem = self._count(ready.group, loaded, places)
        self.wait()
        self.begin("measure", places)
        start = time.perf_counter()
        plan = replace(self.job.plan, seed=self.job.plan.seed + places[0])
        try:
            session = measure(loaded, prepared, plan)
        except Exception as error:
            release(error)
            session = Session(
                measurements=(None,) * len(items), errors=(describe_fault(error),) * len(items),
                stop_reason="failed", elapsed_s=0.0, gc_ms=0.0,
            )  # fmt: skip
        share_s = (time.perf_counter() - start) / len(items)
        for place, found, fault in zip(places, session.measurements, session.errors, strict=True):
            attempt = outcome[place]
            attempt.seconds += share_s
            if found is None or fault is not None:
                attempt.error = fault or "no round was complete within the time limit"
            else:
                attempt.fields = make_fields(loaded, found, ready.group, work, problem)
                counted = found.counted_rounds
                disturbed = set(counted).intersection(found.disturbed_rounds)
                attempt.disturbed = len(disturbed) / len(counted)

    def _count(
        self, group: Group, loaded: LoadedModel, places: Sequence[int]
    ) -> tuple[dict[str, int], str]:
        """Work of one inference by the record's names, and why there is none; once a size."""
        size = (group.model, replace(group.setting, dtype=None))
        if not group.count:
            return {}, "work was not counted: a worker died of that"
        if size not in self._counts:
            self.begin("count", places)
            self._counts[size] = count(loaded)
        return self._counts[size]

    def _answer(self, item: Item, attempt: Attempt) -> None:
        if attempt.fields is not None:
            self.latency_ns[item.place] = statistics.fmean(attempt.fields["values_ns"])
            self.say("measured", place=item.place, seconds=attempt.seconds, **attempt.fields)
            return
        self.failed.add(item.place)
        error = attempt.error or "it was not run"
        reason = describe(error) if isinstance(error, str) else describe_fault(error)
        self.say(
            "failed", place=item.place, seconds=attempt.seconds, status=choose_status(error),
            reason=reason,
        )  # fmt: skip

    def _load(self, group: Group) -> LoadedModel:
        """The model in a dtype, built when it is first asked for. Raises its error every time."""
        if group.build_key not in self.models:
            same = [other for other in self.job.groups if other.build_key == group.build_key]
            self.begin("build", [item.place for other in same for item in other.items])
            if self.job.device == "cpu" or self.job.exports:
                self.models.clear()  # its groups are done
            _collect()
            try:
                model, setting = group.build_key
                self.models[group.build_key] = load_model(
                    model, setting=setting, device=self.job.device
                )
            except Exception as error:
                release(error)
                self.models[group.build_key] = error
        found = self.models[group.build_key]
        if isinstance(found, BaseException):
            raise found
        return found

    def _spare_memory(self, group: Group) -> None:
        if self.ready and self._find_free_share() < _LEAST_FREE_SHARE:
            self.drop(group)

    def _find_free_share(self) -> float:
        """Of the device's memory; what torch holds and does not use is free. 1 on a CPU."""
        if self.job.device == "cpu":
            return 1.0
        free, total = torch.cuda.mem_get_info(self.job.device)
        free += torch.cuda.memory_reserved(self.job.device)
        free -= torch.cuda.memory_allocated(self.job.device)
        return float(free / total)


def _collect() -> None:
    """Also what `ftax.timing.session.quiet` froze."""
    gc.unfreeze()
    gc.collect()


def _is_short_of_memory(attempt: Attempt) -> bool:
    return attempt.error is not None and is_out_of_memory(attempt.error)
