"""Times the cells of one job, in a worker: every model is built once, and the cells of a size are
timed in the same rounds.

On a GPU what was timed is kept ready until the end, for the looks that come after the last round of
the last model. If memory runs short it is let go, and made ready again. Beside other workers all is
made ready before anything is timed, as far as there is memory; between two cells another worker
that is ready to measure goes first.
"""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch

from ftax.errors import (
    UnavailableError,
    UnsupportedError,
    describe,
    describe_fault,
    is_out_of_memory,
    release,
)
from ftax.records.record import JsonScalar
from ftax.runtimes.catalogue import check_host, find_runtime
from ftax.runtimes.workspace import Workspace
from ftax.steps.load import load_model
from ftax.steps.loaded import LoadedModel
from ftax.sweeps.job import Ask, Cells, Job, JobCell, Say
from ftax.timing.candidate import Candidate
from ftax.timing.checks import Checks
from ftax.timing.measurement import Measurement, describe_slow_calls
from ftax.timing.session import UNSTEADY, Session, measure

_APART = (
    "timed apart from the other runtimes of this size, because a worker died when all were timed "
    "together"
)
_NOISY = 0.5  # of the rounds that count were disturbed: more, and a size is timed again
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
    """Cells of a size with their inputs made, and the runtimes that are ready to run, by place."""

    cells: Cells
    workspace: Workspace
    prepared: dict[int, Candidate] = field(default_factory=dict)
    ahead: dict[int, Attempt] = field(default_factory=dict)  # how preparing went, until it is timed


class CellTimer:
    """The models of a job, and all that is ready to run of them."""

    def __init__(self, job: Job, say: Say, ask: Ask) -> None:
        self.job, self.say = job, say
        self._ask, self._is_alone = ask, False
        self.models: dict[tuple[object, ...], LoadedModel | BaseException] = {}
        self.ready: dict[Cells, Ready] = {}
        self.failed: set[int] = set()  # places, which are not looked at
        self.latency_ns: dict[int, float] = {}  # of places that were timed here
        self._counts: dict[tuple[object, ...], tuple[dict[str, int], str]] = {}

    def time_size(self, cells: Cells) -> dict[int, Attempt]:
        """Time what is to be timed of a size, and answer for each of its cells; how they went, by
        place, if a neighbour was there so often that to time them again pays."""
        to_time = [cell for cell in cells if cell.time]
        if not to_time:
            return {}
        outcome = self._attempt(cells, to_time)
        short = [cell for cell in to_time if _is_short_of_memory(outcome[cell.place])]
        if short and self.keeps_others(cells):
            self.drop(cells)
            outcome |= self._attempt(cells, short)
        for cell in to_time:
            self._answer(cell, outcome[cell.place])
        if max(attempt.disturbed for attempt in outcome.values()) > _NOISY:
            return outcome
        self._finish(cells)
        return {}

    def time_again(self, cells: Cells, before: Mapping[int, Attempt]) -> None:
        """Time a size once more that went so beside a neighbour on the host's core, if it is ready
        still, and answer for what had fewer of them this time."""
        timed = [cell for cell in cells if before.get(cell.place, Attempt()).fields]
        if cells in self.ready:
            outcome = self._attempt(cells, timed)
            for cell in timed:
                first, second = before[cell.place], outcome[cell.place]
                if second.fields is not None and second.disturbed < first.disturbed:
                    second.seconds += first.seconds
                    second.fields["facts"]["timed_again"] = True
                    self._answer(cell, second)
        self._finish(cells)

    def _finish(self, cells: Cells) -> None:
        """Let go of a size, unless it is looked at later."""
        if not any(cell.looks for cell in cells):
            self.ready.pop(cells, None)

    def get_ready_ahead(self, sizes: Iterable[Cells]) -> None:
        """Make ready what is to be timed, as far as there is memory, but for what has to have the
        device to itself. What cannot be made ready says so when it is timed."""
        for cells in sizes:
            ahead = [c for c in cells if c.time and not find_runtime(c.runtime).tunes]
            if self._find_free_share() < _LEAST_FREE_AHEAD:
                return
            self._ask("going on")
            try:
                ready = self.get_ready(cells)
            except Exception as error:  # as when it is timed
                release(error)
                continue
            for cell in ahead:
                self._ask("going on")
                ready.ahead[cell.place] = self._try_to_prepare(ready, cell)
            if ahead:
                self._count(cells, ready.workspace.loaded, [cell.place for cell in ahead])

    def wait(self) -> None:
        """Return when the device is this worker's, and stays so."""
        if not self._is_alone:
            if torch.cuda.is_initialized():
                torch.cuda.empty_cache()  # what torch keeps in reserve is missing elsewhere
            self._ask("measuring")
            self._is_alone = True

    def _try_to_prepare(self, ready: Ready, cell: JobCell) -> Attempt:
        attempt, start = Attempt(), time.perf_counter()
        try:
            self.prepare(ready, cell)
        except Exception as error:
            release(error)
            attempt.error = error
        attempt.seconds = time.perf_counter() - start
        return attempt

    def export_size(self, cells: Cells) -> None:
        """Make the files of a size's cells, and answer for each. One that cannot be made fails
        again when its cell is timed, which then says why."""
        for cell in cells:
            start, reason = time.perf_counter(), ""
            try:
                ready = self.get_ready(cells)
                self.begin("export", [cell.place])
                find_runtime(cell.runtime).make_files(ready.workspace)
            except Exception as error:
                release(error)
                reason = describe_fault(error)
            seconds = time.perf_counter() - start
            self.say("exported", place=cell.place, seconds=seconds, reason=reason)
        self.ready.pop(cells, None)

    def get_ready(self, cells: Cells) -> Ready:
        """A size with its inputs. Raises what building the model or making inputs raises."""
        if cells not in self.ready:
            self._spare_memory(cells)
            model = self._load(cells[0])
            self.begin("inputs", [cell.place for cell in cells])
            setting = cells[0].setting
            loaded = model.with_size(batch=setting.batch, sequence=setting.sequence)
            self.ready[cells] = Ready(cells=cells, workspace=Workspace(loaded))
        return self.ready[cells]

    def prepare(self, ready: Ready, cell: JobCell) -> Candidate:
        """The runtime of a cell made ready. Raises what preparing raises."""
        if cell.place not in ready.prepared:
            self.begin("prepare", [cell.place])
            spec = find_runtime(cell.runtime)
            ready.prepared[cell.place] = spec.prepare(ready.workspace, check_host(cell.host))
        return ready.prepared[cell.place]

    def begin(self, step: str, places: Sequence[int]) -> None:
        """Tell the parent what comes next, and whose fault it is if it does not end."""
        self.say("begin", step=step, places=list(places))

    def keeps_others(self, cells: Cells) -> bool:
        """Whether anything but this size is ready, and could be let go."""
        return any(other != cells for other in self.ready)

    def drop(self, cells: Cells) -> None:
        """Let go of all that is ready, and of other models, so that a size has the device's
        memory."""
        self._let_go(cells[0].build_key)
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

    def _attempt(self, cells: Cells, wanted: Sequence[JobCell]) -> dict[int, Attempt]:
        try:
            ready = self.get_ready(cells)
        except Exception as error:  # costs its cells alone
            release(error)
            return {cell.place: Attempt(error=error) for cell in wanted}
        outcome = {
            cell.place: ready.ahead.pop(cell.place)
            if cell.place in ready.ahead
            else self._try_to_prepare(ready, cell)
            for cell in wanted
        }
        runnable = [cell for cell in wanted if outcome[cell.place].error is None]
        if runnable:
            self._measure(ready, runnable, outcome)
        return outcome

    def _measure(
        self, ready: Ready, wanted: Sequence[JobCell], outcome: dict[int, Attempt]
    ) -> None:
        places = [cell.place for cell in wanted]
        loaded, prepared = ready.workspace.loaded, [ready.prepared[place] for place in places]
        work, problem = self._count(ready.cells, loaded, places)
        self.wait()
        self.begin("measure", places)
        start = time.perf_counter()
        plan = replace(self.job.plan, seed=self.job.plan.seed + places[0])
        try:
            session = measure(loaded, prepared, plan)
        except Exception as error:
            release(error)
            session = Session(
                measurements=(None,) * len(places), errors=(describe_fault(error),) * len(places),
                stop_reason="failed", elapsed_s=0.0, gc_ms=0.0,
            )  # fmt: skip
        share_s = (time.perf_counter() - start) / len(places)
        for place, found, fault in zip(places, session.measurements, session.errors, strict=True):
            attempt = outcome[place]
            attempt.seconds += share_s
            if found is None or fault is not None:
                attempt.error = fault or "no round was complete within the time limit"
            else:
                attempt.fields = make_fields(loaded, found, work, problem, is_apart=wanted[0].apart)
                counted = found.counted_rounds
                disturbed = set(counted).intersection(found.disturbed_rounds)
                attempt.disturbed = len(disturbed) / len(counted)

    def _count(
        self, cells: Cells, loaded: LoadedModel, places: Sequence[int]
    ) -> tuple[dict[str, int], str]:
        """Work of one inference by the record's names, and why there is none; once a size."""
        setting = cells[0].setting
        size = (*cells[0].variant, setting.batch, setting.sequence)
        if not all(cell.count for cell in cells):
            return {}, "work was not counted: a worker died of that"
        if size not in self._counts:
            self.begin("count", places)
            self._counts[size] = count_work_of(loaded)
        return self._counts[size]

    def _answer(self, cell: JobCell, attempt: Attempt) -> None:
        if attempt.fields is not None:
            self.latency_ns[cell.place] = statistics.fmean(attempt.fields["values_ns"])
            self.say("measured", place=cell.place, seconds=attempt.seconds, **attempt.fields)
            return
        self.failed.add(cell.place)
        error = attempt.error or "it was not run"
        reason = describe(error) if isinstance(error, str) else describe_fault(error)
        self.say(
            "failed", place=cell.place, seconds=attempt.seconds, status=choose_status(error),
            reason=reason,
        )  # fmt: skip

    def _load(self, cell: JobCell) -> LoadedModel:
        """The model in a dtype, built when it is first asked for. Raises its error every time."""
        key = cell.build_key
        if key not in self.models:
            self.begin("build", [other.place for other in self.job.cells if other.build_key == key])
            if self.job.device == "cpu" or self.job.exports:
                self.models.clear()  # its sizes are done
            _collect()
            setting = replace(cell.setting, batch=None, sequence=None)
            try:
                self.models[key] = load_model(cell.model, setting=setting, device=self.job.device)
            except Exception as error:
                release(error)
                self.models[key] = error
        found = self.models[key]
        if isinstance(found, BaseException):
            raise found
        return found

    def _spare_memory(self, cells: Cells) -> None:
        if self.ready and self._find_free_share() < _LEAST_FREE_SHARE:
            self.drop(cells)

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


def make_fields(
    loaded: LoadedModel,
    found: Measurement,
    work: Mapping[str, int],
    problem: str,
    *,
    is_apart: bool = False,
) -> dict[str, Any]:
    """The fields of a measured cell; see `ftax.sweeps.sweep_records.SweepCell`."""
    outputs = Checks.of(found.checks).judge_outputs()
    facts = {
        **keep_scalars(found.cell.options),
        **keep_scalars(found.preparation),
        "outputs_equal": outputs.equal,
        "outputs": outputs.words,
        "warmup_steady": UNSTEADY not in found.warnings,
        "stop_reason": found.stop_reason,
        "session": found.process.session,  # whose cells shared their rounds
        "disturbed_rounds": len(found.disturbed_rounds),
        "core_hz": found.core_hz,  # of the host
        "queued_ratio": found.queued_ratio,
    }
    # A sweep stays too short with each cell for most to be steady by its rules: a fact, no warning.
    warnings = [text for text in (*loaded.warnings, *found.warnings) if text != UNSTEADY]
    warnings += describe_slow_calls([found])
    warnings += [_APART] if is_apart else []
    if problem:
        warnings.append(problem)
    return {
        "values_ns": list(found.values_ns),
        "parameter_count": loaded.parameter_count,
        "inputs": [item.to_dict() for item in found.inputs],
        **work,
        "facts": facts,
        "warnings": list(dict.fromkeys(warnings)),
    }


def keep_scalars(values: Mapping[str, object]) -> dict[str, JsonScalar]:
    """What a record can hold under `facts`: no lists, no dicts, no infinities."""
    return {
        name: value
        for name, value in values.items()
        if value is None
        or isinstance(value, str | int)
        or (isinstance(value, float) and math.isfinite(value))
    }


def count_work_of(loaded: LoadedModel) -> tuple[dict[str, int], str]:
    """Work of one inference by the record's names, and why there is none; never raises: what cannot
    be counted is no reason not to time it."""
    from ftax.steps.macs import count_work  # not cheap to import

    try:
        work = asdict(count_work(loaded))
    except Exception as error:
        release(error)
        return {}, f"work was not counted: {describe_fault(error)}"
    return work, ""


def choose_status(error: BaseException | str) -> str:
    """ "unavailable" for what cannot be had here or not of this model, however often one tries. A
    disk that refused to be written may do so another time."""
    final = isinstance(error, UnavailableError | UnsupportedError) and not isinstance(
        error.__cause__, OSError
    )
    return "unavailable" if final else "failed"
