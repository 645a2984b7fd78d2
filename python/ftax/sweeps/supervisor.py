"""Has jobs done at a site, by one worker process after the other; and finds out what one died of.

A worker that dies is never asked why. Its supervisor knows what it was at, and takes that out of
what is left: a cell that was being prepared has failed, cells that were timed together are timed
apart next, and everything else is simply done again by the next worker. Only SIGKILL, which others
send (the kernel for want of memory, a person), is forgiven once a cell.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ftax.errors import RunnerError
from ftax.sweeps.job import Cells, Job, remove_done
from ftax.sweeps.sites import SiteWorker
from ftax.workers.child import DONE
from ftax.workers.cluster import MachineLost
from ftax.workers.process import Stop, Stopped, WorkerDied

WAITING = "wait"  # the step of a worker that others keep from the device
_MOST_EARLY_DEATHS = 2  # in a row, of workers that began nothing
_STEPS: Mapping[str, str] = {
    "build": "building the model",
    "inputs": "making inputs",
    "prepare": "making the runtime ready",
    "measure": "timing it",
}
_WAYS = ("build", "inputs", "prepare")  # steps on the way to a look
_LOOK_S = 0.2  # at whether the sweep is to end

Result = dict[str, Any]
_State = Literal["away", "getting ready", "waiting to measure", "measuring"]


class DeviceLock:
    """Who may use a device that several workers share: many that get ready, or one that measures.

    One that waits to measure goes before those that get ready, which stop for it between two cells.
    A measurement so waits for one cell of each other worker, not for its whole job.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._states: dict[Supervisor, _State] = {}

    def share(self, user: Supervisor) -> None:
        """Return when no worker measures, or waits to. Raises Stopped if the sweep is to end."""
        self._take(user, "away", "getting ready", ("measuring", "waiting to measure"))

    def hold(self, user: Supervisor) -> None:
        """Return when the user has the device alone. Raises Stopped if the sweep is to end."""
        self._take(user, "waiting to measure", "measuring", ("measuring", "getting ready"))

    def release(self, user: Supervisor) -> None:
        """Its worker has ended, or does nothing."""
        with self._changed:
            self._put(user, "away")

    def list_idle(self, user: Supervisor) -> list[int]:
        """The processes of the others, which idle while this one measures."""
        with self._changed:
            return [other.pid for other in self._states if other is not user and other.pid]

    def _take(
        self, user: Supervisor, meanwhile: _State, then: _State, against: Collection[_State]
    ) -> None:
        with self._changed:
            self._put(user, meanwhile)
            while any(state in against for state in self._states.values()):
                if user.stop.is_set:
                    self._put(user, "away")
                    raise Stopped
                self._changed.wait(_LOOK_S)
            self._put(user, then)

    def _put(self, user: Supervisor, state: _State) -> None:
        self._states[user] = state
        self._changed.notify_all()


@dataclass(slots=True, kw_only=True, eq=False)
class Supervisor:
    """Has jobs done by workers that ``start`` starts, here or on another machine.

    It knows no folder, grid or record of the sweep. A result says under "say" what it is:
    "machine", "begin" with a step and the places that it is for, "measured", "failed", "looked" and
    "exported" of one place, "late" if there was no time for all of a job. A worker says them, but
    for steps outside of jobs and for what becomes of cells that one died of.

    Attributes:
        limit_s: that one step of a worker may take.
        lock: of the device, which several supervisors may share.
        stop: says that the sweep is to end.
        pid: of its worker; 0 before there is one.
        left: of the job that is being done, what has no answer yet.
        places: that the worker is at.
    """

    start: Callable[[Stop], SiteWorker]
    limit_s: float
    lock: DeviceLock
    stop: Stop
    pid: int = field(default=0, init=False)
    left: Cells = field(default=(), init=False)
    places: Sequence[int] = field(default=(), init=False)
    _worker: SiteWorker | None = field(default=None, init=False)
    _early_deaths: int = field(default=0, init=False)
    _killed_at: set[int] = field(default_factory=set, init=False)  # tried once more after that

    def do(self, job: Job) -> Generator[Result]:
        """Do a job, with as many workers as it takes; less of it if the sweep is to end.

        Raises MachineLost if the machine does not answer, or workers do not even start there.
        """
        self.left = job.cells
        try:
            while self.left:
                self.left = yield from self._run_job(replace(job, cells=self.left))
        except Stopped:
            pass

    def close(self) -> None:
        """There are no more jobs."""
        self._end_worker()
        self.lock.release(self)

    def _run_job(self, job: Job) -> Generator[Result, None, Cells]:
        """Have one worker do a job; what is left of it if it dies."""
        step, is_late = "", False
        self.places = ()
        yield _begin(WAITING)
        self.lock.share(self)
        yield _begin("start")
        try:
            worker = self._worker = self._worker or self.start(self.stop)
            self.pid = worker.pid
            worker.wait_until_ready()
            worker.send(job.to_dict())
            while (answer := worker.receive(self.limit_s))["say"] != DONE:
                if answer["say"] == "ask":
                    yield _begin(WAITING)
                    worker.send(self._wait_for_device(answer["purpose"]))
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
            found, left = ([], ()) if job.exports else self._blame(death, step)
            yield from found
            return left
        yield _begin("end")
        if not answer["result"]:  # no longer fit for timing
            self._end_worker()
        if self.left and not (is_late or job.exports):
            models = ", ".join(dict.fromkeys(cell.model for cell in self.left))
            raise RunnerError(f"a worker left {len(self.left)} cells of {models} without an answer")
        return ()

    def _wait_for_device(self, purpose: str) -> list[int]:
        """Until the worker may go on, or measure alone; the processes that idle meanwhile."""
        if purpose == "measuring":
            self.lock.hold(self)
        else:
            self.lock.share(self)  # after those that are to measure
        return self.lock.list_idle(self)

    def _blame(self, death: WorkerDied, step: str) -> tuple[list[Result], Cells]:
        """What becomes of cells when a worker died at the step that it had begun, and what is left
        to do."""
        left, places = self.left, self.places
        cells = [cell for cell in left if cell.place in places]
        to_time = [cell.place for cell in cells if cell.time]
        if death.killed and places and not self._killed_at.issuperset(places):
            self._killed_at.update(places)
            return [], left
        if to_time and step == "count":
            return [], _change(left, to_time, count=False)
        if step == "measure" and len(to_time) > 1:
            return [], _change(left, to_time, apart=True)
        if to_time:
            found = [make_failure(place, f"{_STEPS[step]}: {death}") for place in to_time]
        else:  # they have their rounds, and it died at a look or on the way to it
            found = [
                {"say": "looked", "place": cell.place, "look": look, "fact": str(death)}
                for cell in cells
                for look in cell.looks
                if step in (look, *_WAYS)
            ]
        if not found:  # it died of nothing that can be taken out
            self._early_deaths += 1
            if self._early_deaths >= _MOST_EARLY_DEATHS:
                raise MachineLost(f"workers end before they begin anything: {death}")
        for answer in found:
            left = remove_done(left, answer)
        return found, left

    def _end_worker(self) -> None:
        if self._worker is not None:
            self._worker.end()
        self._worker = None


def _begin(step: str) -> Result:
    return {"say": "begin", "step": step, "places": []}


def make_failure(place: int, reason: str) -> Result:
    """The answer that a cell has failed."""
    return {"say": "failed", "place": place, "status": "failed", "reason": reason}


def _change(cells: Cells, places: Collection[int], **changes: Any) -> Cells:
    return tuple(replace(cell, **changes) if cell.place in places else cell for cell in cells)
