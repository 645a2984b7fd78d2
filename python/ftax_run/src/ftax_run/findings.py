"""What a report says of a process, as values."""

from __future__ import annotations

from dataclasses import dataclass, field

from ftax_run.account import ProcessAccount
from ftax_run.frames import Place
from ftax_run.sums import Sums
from ftax_run.window import WORK

_LEAST_OF_REST = 0.1  # of the time beside the iterations idles, to have a line


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the program, and the innermost line below it that took most of its time."""

    place: Place
    time: float
    cause: str  # of most of it
    leaf: Place  # the line itself where nothing is below it
    leaf_share: float


@dataclass(frozen=True, slots=True)
class Synchronisation:
    """A line that waits for the device."""

    place: Place
    count: float
    exposed: float  # idle time that begins in it
    is_near: bool = False  # no sample was within one: the line may be another one beside it


@dataclass(frozen=True, slots=True)
class Findings:
    """Times in ns and counts, of an iteration; of all that was recorded where none was found."""

    unit: str
    iterations: int
    others: int  # iterations that are left out
    wall: float
    busy: float | None  # of the device; None where there is none
    causes: Sums[str]  # of exposed idle; without a device, of the main thread's time
    lines: list[Line]
    stacks: Sums[tuple[Place, ...]]  # from the outermost frame
    syncs: list[Synchronisation] = field(default_factory=list)
    work: Sums[str] = field(default_factory=Sums)
    cost: float | None = None  # of recording, as a share
    share: float = 1.0  # of the recorded time that is in the iterations
    rest: tuple[Place, Place] | None = None  # line and innermost line of most idle beside them


def find(process: ProcessAccount) -> Findings:
    """Of its device's idle time, or of its main thread where no device was seen."""
    return _find_idle(process) if process.windows else _find_host(process)


def _find_idle(process: ProcessAccount) -> Findings:
    window, cost = process.correct()
    share = 1 / max(1, window.count)
    syncs = [
        Synchronisation(
            place,
            count * share,
            window.sync_idle[place] * share,
            window.near_syncs[place] > count / 2,
        )
        for place, count in window.syncs.rank()
    ]
    return Findings(
        "an iteration" if window.count else "in all",
        window.count,
        sum(other.count for other in process.windows) - window.count + process.left_out,
        window.wall * share,
        window.busy * share,
        window.sum_causes().scale(share),
        list_lines(window.idle.scale(share), window.leaves.scale(share)),
        window.stacks.scale(share),
        syncs,
        Sums({name: window.work[name] * share for name in WORK}),
        cost,
        process.find_steady().wall / process.recorded if process.recorded else 1.0,
        _find_rest(process),
    )


def _find_rest(process: ProcessAccount) -> tuple[Place, Place] | None:
    steady, leaves = process.find_steady(), Sums(process.rest)
    for window in process.windows:
        if window is not steady:
            leaves.add(window.leaves)
    lines: Sums[Place] = Sums()
    for (line, _), amount in leaves.items():
        lines[line] += amount
    beside = process.recorded - steady.wall
    if not lines or sum(lines.values()) < _LEAST_OF_REST * beside:
        return None
    (largest, _), *_ = lines.rank()
    return next(pair for pair, _ in leaves.rank() if pair[0] == largest)


def _find_host(process: ProcessAccount) -> Findings:
    host, iterations = process.host, max(1, process.marked)
    each = host.unit / iterations
    causes: Sums[str] = Sums()
    for (_, cause), count in host.spent.items():
        causes[cause] += count * each
    lines = list_lines(host.spent.scale(each), host.leaves.scale(each))
    stacks = host.stacks.scale(each)
    unit = "an iteration" if process.marked else "in all"
    return Findings(unit, process.marked, 0, host.wall / iterations, None, causes, lines, stacks)


def list_lines(times: Sums[tuple[Place, str]], leaves: Sums[tuple[Place, Place]]) -> list[Line]:
    """The largest first, without those that take less than half a percent of all."""
    by_line: dict[Place, Sums[str]] = {}
    for (line, cause), time in times.items():
        by_line.setdefault(line, Sums())[cause] += time
    below: dict[Place, Sums[Place]] = {}
    for (line, leaf), time in leaves.items():
        below.setdefault(line, Sums())[leaf] += time
    totals = Sums({line: sum(causes.values()) for line, causes in by_line.items()})
    least = 0.005 * sum(totals.values())
    lines = []
    for line, time in totals.rank():
        if time <= least:
            break
        cause, _ = by_line[line].rank()[0]
        leaf, part = below.get(line, Sums({line: 0.0})).rank()[0]
        lines.append(Line(line, time, cause, leaf, part / time))
    return lines
