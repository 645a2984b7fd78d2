"""One device of a sweep, or one of several workers on it: has jobs done, one worker process after
the other.

The surprising choice: a worker that dies is never asked why. The lane knows what it was at, and
takes that out of what is left: a cell that was being prepared has failed, cells that were timed
together are timed apart next, and everything else is simply done again by the next worker. Only
SIGKILL, which others send (the kernel for want of memory, a person), is forgiven once a cell.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ftax.errors import RunnerError
from ftax.sweeps.job import Group, Job, remove_done, split_apart, stop_counting
from ftax.sweeps.sites import SiteWorker
from ftax.sweeps.turns import Turn
from ftax.workers.child import DONE
from ftax.workers.cluster import MachineLost
from ftax.workers.process import Stopped, WorkerDied

WAITING = "wait"  # the step of a worker that others keep from the device
_MOST_EARLY_DEATHS = 2  # in a row, of workers that began nothing
_STEPS: Mapping[str, str] = {
    "build": "building the model",
    "inputs": "making inputs",
    "prepare": "making the runtime ready",
    "measure": "timing it",
}
_WAYS = ("build", "inputs", "prepare")  # steps on the way to a look

Result = dict[str, Any]


@dataclass(slots=True, kw_only=True)
class Lane:
    """Has jobs done by workers that ``start`` starts, here or on another machine.

    It knows no folder, grid or record of the sweep. A result says under "say" what it is:
    "machine", "begin" with a step and the places that it is for, "measured", "failed", "looked" and
    "exported" of one place, "late" if there was no time for all of a job. A worker says them, but
    for steps outside of jobs and for what becomes of cells that one died of.

    Attributes:
        limit_s: that one step of a worker may take.
        turn: on the device, which several lanes may share.
        left: of the job that is being done, what has no answer yet.
        places: that the worker is at.
    """

    start: Callable[[], SiteWorker]
    limit_s: float
    turn: Turn
    left: Sequence[Group] = field(default=(), init=False)
    places: Sequence[int] = field(default=(), init=False)
    _worker: SiteWorker | None = field(default=None, init=False)
    _early_deaths: int = field(default=0, init=False)
    _killed_at: set[int] = field(default_factory=set, init=False)  # tried once more after that

    def do(self, job: Job) -> Generator[Result]:
        """Do a job, with as many workers as it takes; less of it if the sweep is to end.

        Raises MachineLost if the machine does not answer, or workers do not even start there.
        """
        self.left = job.groups
        try:
            while self.left:
                self.left = yield from self._run_job(replace(job, groups=tuple(self.left)))
        except Stopped:
            pass

    def close(self) -> None:
        """There are no more jobs."""
        self._end_worker()
        self.turn.leave()

    def _run_job(self, job: Job) -> Generator[Result, None, Sequence[Group]]:
        """Have one worker do a job; what is left of it if it dies."""
        step, is_late = "", False
        self.places = ()
        yield _begin(WAITING)
        self.turn.get_ready()
        yield _begin("start")
        try:
            worker = self._worker = self._worker or self.start()
            self.turn.pid = worker.pid
            worker.wait_until_ready()
            worker.send(job.to_dict())
            while (answer := worker.receive(self.limit_s))["say"] != DONE:
                if answer["say"] == "ask":
                    yield _begin(WAITING)
                    worker.send(self._wait_for_turn(answer["purpose"]))
                    continue
                if answer["say"] == "begin":
                    step, self.places, self._early_deaths = answer["step"], answer["places"], 0
                is_late |= answer["say"] == "late"
                self.left = remove_done(self.left, answer)
                yield answer
        except MachineLost:
            self._worker = None
            raise
        except WorkerDied as death:
            self._end_worker()
            found, left = ([], []) if job.exports else self._blame(death, step)
            yield from found
            return left
        yield _begin("end")
        if not answer["result"]:  # no longer fit for timing
            self._end_worker()
        if self.left and not (is_late or job.exports):
            count = sum(len(group.items) for group in self.left)
            models = ", ".join(dict.fromkeys(group.model for group in self.left))
            raise RunnerError(f"a worker left {count} cells of {models} without an answer")
        return []

    def _wait_for_turn(self, purpose: str) -> list[int]:
        """Until the worker may go on, or measure alone; the processes that idle meanwhile."""
        if purpose == "measuring":
            self.turn.measure()
        else:
            self.turn.get_ready()  # after those who are to measure
        return self.turn.list_others()

    def _blame(self, death: WorkerDied, step: str) -> tuple[list[Result], Sequence[Group]]:
        """What becomes of cells when a worker died at the step that it had begun, and what is left
        to do."""
        groups, places = self.left, self.places
        items = [item for group in groups for item in group.items if item.place in places]
        open_places = [item.place for item in items if item.time]
        if death.killed and places and not self._killed_at.issuperset(places):
            self._killed_at.update(places)
            return [], groups
        if open_places and step == "count":
            return [], stop_counting(groups, open_places)
        if open_places and step == "measure" and len(open_places) > 1:
            return [], split_apart(groups, open_places)
        if open_places:
            reason = f"{_STEPS[step]}: {death}"
            found = [_fail(place, reason) for place in open_places]
        else:  # they have their rounds, and it died at a look or on the way to it
            found = [
                {"say": "looked", "place": item.place, "look": look, "fact": str(death)}
                for item in items
                for look in item.looks
                if step in (look, *_WAYS)
            ]
        if not found:  # it died of nothing that can be taken out
            self._early_deaths += 1
            if self._early_deaths >= _MOST_EARLY_DEATHS:
                raise MachineLost(f"workers end before they begin anything: {death}")
        for answer in found:
            groups = remove_done(groups, answer)
        return found, groups

    def _end_worker(self) -> None:
        if self._worker is not None:
            self._worker.end()
        self._worker = None


def _begin(step: str) -> Result:
    return {"say": "begin", "step": step, "places": []}


def _fail(place: int, reason: str) -> Result:
    return {"say": "failed", "place": place, "status": "failed", "reason": reason}
