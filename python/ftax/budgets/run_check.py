"""Counts the steps of a ``ftax.toml``, each in a fresh process, and holds them to budgets.

One worker process imports torch and forks once a step. So no step finds what another one left in
caches, and the number of steps costs little. The worker has a fixed hash seed: a step that goes
through a set of names makes the same calls each time.
"""

from __future__ import annotations

import functools
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ftax.budgets import callgrind
from ftax.budgets.baselines import Baseline, make_baseline, read_baseline, write_baseline
from ftax.budgets.budget_file import LATENCY, BudgetedStep, BudgetFile
from ftax.budgets.count_step import count, profile
from ftax.budgets.counts import KINDS, Counts, Tally
from ftax.budgets.held import Held, find_other_setting, hold
from ftax.errors import FtaxError, InvalidArgumentError, RunnerError, UnsupportedError, attempt
from ftax.ladders.pairs import DURATION_S, PairSide
from ftax.steps.revision import Revision, check_origin, list_own_path, suggest_setup
from ftax.steps.setting import Setting
from ftax.timing.plan import Progress
from ftax.workers.child import Line
from ftax.workers.forks import Fork
from ftax.workers.process import Worker, make_error

if TYPE_CHECKING:
    from ftax.budgets.latency import HeldLatency

_LIMIT_S = 3600.0  # of one step
_ENVIRONMENT = {"PYTHONHASHSEED": "0"}


@dataclass(frozen=True, slots=True)
class Tree:
    """Where the code of steps is: the folder of the file, and where modules are found."""

    folder: Path
    path: tuple[str, ...]
    revision: Revision | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What was found of one step: each count held to its budget, or the error that it ended with;
    ``notes`` are what to know of its baseline."""

    step: BudgetedStep
    held: tuple[Held | HeldLatency, ...] = ()
    error: FtaxError | None = None
    notes: tuple[str, ...] = ()

    @property
    def is_unknown(self) -> bool:
        """Whether nothing says what it may do, or a budget is a share of a baseline that lacks."""
        more = self.step.budget.more
        return self.error is None and (
            all(item.source == "" for item in self.held)
            or any(item.verdict == "no budget" and item.kind in more for item in self.held)
        )

    @property
    def cannot_tell(self) -> bool:
        """Whether something could not be told, or nothing was asked."""
        if self.error is not None:
            return isinstance(self.error, UnsupportedError)
        return self.is_unknown or any(item.verdict == "cannot tell" for item in self.held)


def check(
    file: BudgetFile,
    steps: Sequence[BudgetedStep],
    *,
    update: bool = False,
    base: Revision | None = None,
    duration_s: float = DURATION_S,
    progress: Progress | None = None,
) -> list[Checked]:
    """Each step, held to its budget and its baseline; or, with ``base``, to what it does at that
    revision. ``update``: the baseline is what was counted now.

    Where a budget names a latency, it is measured once all is counted, for ``duration_s`` at most,
    unless baselines are updated.
    """
    trees = [Tree(file.folder, (*(list_own_path(base) if base else ()), *sys.path))]
    if base is not None:
        trees.append(Tree(_find_folder(file.folder, base), (*base.path, *sys.path), base))
    checked = []
    for step, (found, *known) in zip(steps, count_apart(steps, trees, progress), strict=True):
        if isinstance(found, FtaxError):
            checked.append(Checked(step=step, error=found))
            continue
        kept = file.find_baseline(step)
        if update:
            write_baseline(kept, make_baseline(found), step.step)
        if base is None:
            baseline = attempt(functools.partial(read_baseline, kept))
        else:
            baseline = _take_base(known[0], base)
        if isinstance(baseline, FtaxError):
            checked.append(Checked(step=step, error=baseline))
            continue
        held = hold(step.name, found, step.budget, baseline)
        checked.append(Checked(step=step, held=tuple(held), notes=_list_notes(found, baseline)))
    if update:
        return checked
    return [_add_latency(item, trees, duration_s, progress) for item in checked]


def _add_latency(
    checked: Checked, trees: Sequence[Tree], duration_s: float, progress: Progress | None
) -> Checked:
    step = checked.step
    if checked.error is not None or LATENCY not in step.budget.more:
        return checked
    from ftax.budgets.latency import hold_latency  # which imports what else needs not

    sides = [
        PairSide(
            model=step.step,
            label=tree.revision.ref if tree.revision else "now",
            path=(str(tree.folder), *tree.path),
            revision=tree.revision,
            folder=str(tree.folder),
            setting=step.setting,
        )
        for tree in reversed(trees)
    ]
    held = hold_latency(step.name, step.budget.more[LATENCY], sides, duration_s, progress)
    return replace(checked, held=(*checked.held, held), notes=(*checked.notes, *held.notes))


def _find_folder(folder: Path, base: Revision) -> Path:
    """The folder at the revision."""
    repository = Path(base.repository).resolve()
    if not folder.is_relative_to(repository):
        raise InvalidArgumentError(
            f"--base {base.ref} is a revision of {repository}, and {folder} is not in it: run the "
            "command in the repository of the file"
        )
    return Path(base.worktree) / folder.relative_to(repository)


def _take_base(known: Counts | FtaxError, base: Revision) -> Baseline | FtaxError:
    if isinstance(known, FtaxError):
        return type(known)(f"at {base.ref}: {known}")
    return make_baseline(known, base.ref)


def _list_notes(counts: Counts, baseline: Baseline | None) -> tuple[str, ...]:
    """Where the baseline is of another setting, each such setting once."""
    if baseline is None:
        return ()
    kinds = [kind for kind in KINDS if kind in counts.tallies and kind in baseline.facts]
    found = [find_other_setting(kind, counts.setting, baseline) for kind in kinds]
    return tuple(dict.fromkeys(filter(None, found)))


def count_apart(
    steps: Sequence[BudgetedStep], trees: Sequence[Tree], progress: Progress | None = None
) -> list[list[Counts | FtaxError]]:
    """What each step does, in each of the trees: counted in a fresh process each; of one that
    cannot be counted the error."""
    worker = Worker(f"{__name__}:serve", environment=_ENVIRONMENT)
    try:
        worker.wait_until_ready()
        found = []
        for place, step in enumerate(steps):
            if progress:
                progress(step.name, place, len(steps))
            found.append([_count_in(tree, step, worker) for tree in trees])
        return found
    finally:
        worker.end()


def _count_in(tree: Tree, step: BudgetedStep, worker: Worker) -> Counts | FtaxError:
    job = {
        "step": step.step, "setting": step.setting.to_dict(),
        "with_instructions": step.budget.asks_for("instructions"),
        "folder": str(tree.folder), "path": list(tree.path),
        "revision": asdict(tree.revision) if tree.revision else None,
    }  # fmt: skip
    worker.send(job)
    answer = worker.receive(_LIMIT_S)["result"]
    if "error" in answer:
        return make_error(answer)
    found = Counts.from_dict(answer["counts"])
    return _add_callgrind(found, job) if step.budget.asks_for("callgrind") else found


def _add_callgrind(counts: Counts, job: Mapping[str, Any]) -> Counts:
    """With what callgrind counts, or why it does not."""
    found = attempt(functools.partial(_run_under_callgrind, job))
    if isinstance(found, FtaxError):
        return replace(counts, missing={"callgrind": str(found)})
    tally, software = found
    return replace(
        counts,
        tallies={**counts.tallies, "callgrind": tally},
        setting={**counts.setting, "software": software},
    )


def _run_under_callgrind(job: Mapping[str, Any]) -> tuple[Tally, str]:
    with tempfile.TemporaryDirectory(prefix="ftax-callgrind-") as folder:
        early, late = callgrind.split_environment(os.environ)
        worker = Worker(
            f"{__name__}:serve_profile",
            environment=_ENVIRONMENT,
            base=early,
            wrapper=callgrind.make_command(Path(folder)),
        )
        try:
            worker.send({**job, "profiles": folder, "environment": late})
            answer = worker.receive(_LIMIT_S)["result"]
        finally:
            worker.end()
        tally, version = callgrind.read_profiles([Path(path) for path in answer["profiles"]])
    return tally, f"{version}, {answer['software']}"


def serve(job: Mapping[str, Any], _line: Line) -> dict[str, Any]:
    """The task of the worker: a fork counts one step. An error is an answer, too."""
    fork = Fork(functools.partial(_count_in_fork, job))
    try:
        return {"counts": fork.receive(_LIMIT_S)["result"]}
    except FtaxError as error:
        return {"error": type(error).__name__, "reason": str(error)}
    finally:
        fork.end()


def serve_profile(job: Mapping[str, Any], _line: Line) -> dict[str, Any]:
    """The task of the worker that runs under callgrind."""
    os.environ.update(job["environment"])
    with _inside(job):
        paths = profile(job["step"], Setting(**job["setting"]), Path(job["profiles"]))
    return {"profiles": [str(path) for path in paths], "software": callgrind.describe_software()}


def _count_in_fork(job: Mapping[str, Any], _line: Line) -> dict[str, object]:
    setting, with_instructions = Setting(**job["setting"]), job["with_instructions"]
    with _inside(job):
        root = Path(job["folder"])
        found = count(job["step"], None, setting, root, with_instructions=with_instructions)
    return found.to_dict()


@contextmanager
def _inside(job: Mapping[str, Any]) -> Iterator[None]:
    """In the folder of a job, with its path; an error says what a revision may lack."""
    revision = Revision(**job["revision"]) if job["revision"] else None
    sys.path[:] = [job["folder"], *job["path"]]
    os.chdir(job["folder"])
    try:
        yield
    except RunnerError as error:
        hint = suggest_setup(str(error)) if revision else ""
        if hint:
            raise RunnerError(f"{error}; {hint}") from error
        raise
    if revision:
        check_origin(revision)
