"""One device of a sweep, or one of several workers on it: takes tasks from the queue and has them
done, one worker process after the other.

The surprising choice: a worker that dies is never asked why. The parent knows what it was at, and
takes that out of what is left: a cell that was being prepared has failed, cells that were timed
together are timed apart next, and everything else is simply done again by the next worker. Only
SIGKILL, which others send (the kernel for want of memory, a person), is forgiven once a cell.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from ftax.errors import RunnerError
from ftax.machines.environment import Environment
from ftax.sweeps.job import (
    LOOKS,
    Group,
    Job,
    split_apart,
    start_worker,
    stop_counting,
    strike_look,
    strike_timed,
)
from ftax.sweeps.plan import Task
from ftax.sweeps.progress import SweepProgress
from ftax.sweeps.step_clock import WAITING, StepClock, Switch
from ftax.sweeps.store import CellStore
from ftax.sweeps.turns import Turn
from ftax.workers.child import DONE
from ftax.workers.process import Stop, Stopped, Worker, WorkerDied

# Cells, in whole models, that a worker on a GPU times before it looks at any: its context, its
# libraries and its kernels are loaded once for all, and a trace makes it useless for timing.
_TOGETHER = 60
_CELL_S = 2.0  # about what a cell takes of a GPU, all in all
_MOST_EARLY_DEATHS = 2  # in a row, of workers that began nothing


class TaskQueue:
    """Tasks in their order, shared by lanes."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._tasks = list(tasks)
        self._lock = threading.Lock()

    def take(self, device: str, shares: bool, most: int = 1, lanes: int = 1) -> list[Task]:
        """The next tasks for a device, with ``shares`` also of those for any GPU: as many as have
        ``most`` cells, at least one, and with several lanes no more than half of what is left, so
        that they end together."""
        with self._lock:
            found = self._find(device, shares)
            if lanes > 1:
                found = found[: max(1, len(found) // 2)]
            cells = list(accumulate(task.size for task in found))
            found = found[: max(1, sum(count <= most for count in cells))]
            self._tasks = [task for task in self._tasks if task not in found]
        return found

    def has_more(self, device: str, shares: bool) -> bool:
        """Whether `take` would find one."""
        with self._lock:
            return bool(self._find(device, shares))

    def _find(self, device: str, shares: bool) -> list[Task]:
        return [
            task
            for task in self._tasks
            if task.device == device or (shares and task.device == "cuda")
        ]


@dataclass(slots=True, kw_only=True)
class Step:
    """What a worker said that it was about to do."""

    name: str
    places: list[int]


@dataclass(slots=True, kw_only=True)
class Lane:
    """Runs on ``device``; ``make_job`` adds to groups what all jobs of a sweep share."""

    device: str
    shares: bool  # whether it takes tasks for any GPU
    lanes: int = 1  # that take from the queue, with this one
    workers: int = 1  # that take turns on the device, with this one
    queue: TaskQueue
    store: CellStore
    make_job: Callable[[str, tuple[Group, ...]], Job]
    machine: str  # of this device, as the parent knows it
    limit_s: float
    end_at: float | None = None  # of time.monotonic; after it, no worker is given anything
    stop: Stop
    turn: Turn | None = None  # on a device that several lanes share
    progress: SweepProgress
    spend: Switch = field(default_factory=lambda: StepClock().add_worker())
    is_late: bool = field(default=False, init=False)  # the time was over, and it left something
    _worker: Worker | None = field(default=None, init=False)
    _spare: Worker | None = field(default=None, init=False)
    _step: Step | None = field(default=None, init=False)
    _is_timing: bool = field(default=False, init=False)  # the worker, from now until its looks
    _early_deaths: int = field(default=0, init=False)
    _killed_at: set[int] = field(default_factory=set, init=False)  # tried once more after that

    def run(self) -> None:
        """Do tasks until there are none left. Raises RunnerError if workers do not even start,
        ResultsError if results cannot be written."""
        try:
            while not self._is_over() and (
                tasks := self.queue.take(self.device, self.shares, self._find_most(), self.lanes)
            ):
                groups = [group for task in tasks for group in task.groups]
                while groups:
                    groups = self._run_job(groups)
        except Stopped:
            pass
        finally:
            for worker in (self._worker, self._spare):
                if worker is not None:
                    worker.end()
            self._worker = self._spare = None
            if self.turn is not None:
                self.turn.leave()
            self.spend(None)

    def _find_most(self) -> int:
        """Cells of the next job: no more than there is time for, with the device's other workers
        at work on theirs."""
        if self.device == "cpu":
            return 1
        if self.end_at is None:
            return _TOGETHER
        left_s = self.end_at - time.monotonic()
        return max(1, min(_TOGETHER, int(left_s / (_CELL_S * self.workers))))

    def _is_over(self) -> bool:
        is_past = self.end_at is not None and time.monotonic() > self.end_at
        self.is_late |= is_past and self.queue.has_more(self.device, self.shares)
        return self.is_late

    def _run_job(self, groups: list[Group]) -> list[Group]:
        """Have one worker do groups; what is left of them if it dies."""
        if self.turn is not None:
            self.spend(WAITING)
            self.turn.get_ready()
        worker = self._worker = self._worker or self._spare or start_worker(self.stop)
        if self.turn is not None:
            self.turn.pid = worker.pid
        if worker is self._spare:
            self._spare = None
        self._step, self._is_timing = None, False
        self.spend("start")
        try:
            worker.wait_until_ready()
            worker.send(self.make_job(self.device, tuple(groups)).to_dict())
            answer = worker.receive(self.limit_s)
            while answer["say"] != DONE:
                groups = self._take_answer(answer, groups, worker)
                answer = worker.receive(self.limit_s)
        except WorkerDied as death:
            self._end_worker()
            return self._blame(groups, death)
        finally:
            self.spend("end")
        if not answer["result"]:  # no longer fit for timing
            self._end_worker()
        if groups and not self.is_late:
            left = sum(len(group.items) for group in groups)
            models = ", ".join(dict.fromkeys(group.model for group in groups))
            raise RunnerError(f"a worker left {left} cells of {models} without an answer")
        return []

    def _take_answer(
        self, answer: dict[str, Any], groups: list[Group], worker: Worker
    ) -> list[Group]:
        """Note an answer; what is left to do after it."""
        say = answer.pop("say")
        if say == "machine":
            environment = Environment.from_dict(answer["environment"])
            self.machine = self.store.add_machine(environment)
        elif say == "begin":
            self._begin(Step(name=answer["step"], places=answer["places"]), groups)
        elif say == "ask":
            self.spend(WAITING)
            if answer["purpose"] == "measuring":
                self._wait_for_others()
            elif self.turn is not None:
                self.turn.get_ready()  # after those who are to measure
            worker.send([] if self.turn is None else self.turn.list_others())
        elif say == "late":
            self.is_late = True
        elif say == "measured":
            place = answer.pop("place")
            self.store.add_measured(place, self.machine, self.device, answer)
            groups = strike_timed(groups, [place], failed=False)
            self.progress.finish([place])
        elif say == "failed":
            self.store.add_failed(machine=self.machine, **answer)
            groups = strike_timed(groups, [answer["place"]], failed=True)
            self.progress.finish([answer["place"]])
        elif say == "looked":
            self.store.add_look(**answer)
            groups = strike_look(groups, answer["place"], answer["look"])
        return groups

    def _wait_for_others(self) -> None:
        """Until the spare worker and those of other lanes on the device idle, so that nothing
        disturbs what is about to be timed."""
        self._is_timing = True
        if self.turn is not None:
            self.turn.measure()
        if self._spare is not None:
            try:
                self._spare.wait_until_ready()
            except WorkerDied:  # the next one says why, if it dies of it too
                self._spare.end()
                self._spare = None

    def _begin(self, step: Step, groups: Sequence[Group]) -> None:
        self._early_deaths = 0
        self.spend(step.name)
        self._step = step
        label = self.store.cells[step.places[0]].label() if step.places else ""
        if step.name == "prepare":
            to_time = {item.place for group in groups for item in group.items if item.time}
            self.progress.note_ready(to_time.intersection(step.places))
        if step.name in _TOLD:
            self.progress.tell(step.name, label, len(step.places))
        more = not self.is_late and self.queue.has_more(self.device, self.shares)
        ends_after = any(item.looks for group in groups for item in group.items)
        is_alone = self.turn is None  # others get ready meanwhile, and no spare has to
        is_free = step.name == "trace" or (step.name in _NOT_TIMED and not self._is_timing)
        if is_alone and is_free and more and ends_after and self._spare is None:
            self._spare = start_worker(self.stop)  # it gets ready while this one does, or is traced

    def _blame(self, groups: list[Group], death: WorkerDied) -> list[Group]:
        """What is left after a worker died at the step that it had begun."""
        step, reason = self._step, str(death)
        if step is None:
            return self._start_again(groups, reason)
        if death.killed and not self._killed_at.issuperset(step.places):
            self._killed_at.update(step.places)
            return groups
        timed = {item.place for group in groups for item in group.items if item.time}
        open_places = [place for place in step.places if place in timed]
        if not open_places:
            left = self._give_up_looks(groups, step, reason)
            return left if left != groups else self._start_again(groups, reason)
        if step.name == "count":
            return stop_counting(groups, open_places)
        if step.name == "measure" and len(open_places) > 1:
            return split_apart(groups, open_places)
        what = _STEPS[step.name]
        for place in open_places:
            self.store.add_failed(place, self.machine, "failed", f"{what}: {reason}")
        self.progress.finish(open_places)
        return strike_timed(groups, open_places, failed=True)

    def _start_again(self, groups: list[Group], reason: str) -> list[Group]:
        """All that is left, for a worker died of nothing that can be taken out."""
        self._early_deaths += 1
        if self._early_deaths >= _MOST_EARLY_DEATHS:
            raise RunnerError(f"workers for {self.device} end before they begin anything: {reason}")
        return groups

    def _give_up_looks(self, groups: list[Group], step: Step, reason: str) -> list[Group]:
        """Of cells that have their rounds, and whose worker died at a look or on the way to it."""
        if step.name in ("count", "measure"):
            return groups  # which was over
        wanted = {item.place: item.looks for group in groups for item in group.items}
        for place in step.places:
            for look in wanted.get(place, ()):
                if step.name in (look, *_WAYS):
                    self.store.add_look(place, look, fact=reason)
                    groups = strike_look(groups, place, look)
        return groups

    def _end_worker(self) -> None:
        if self._worker is not None:
            self._worker.end()
        self._worker = None


_NOT_TIMED = ("build", "inputs", "prepare")
_TOLD = ("build", "measure", *LOOKS)  # in the progress
_WAYS = _NOT_TIMED  # steps on the way to a look
_STEPS: Mapping[str, str] = {
    "build": "building the model",
    "inputs": "making inputs",
    "prepare": "making the runtime ready",
    "measure": "timing it",
}
