"""What was found, in at most 35 lines."""

from __future__ import annotations

from pathlib import Path
from statistics import median

from ftax_run.activities import ALL, LAUNCHES
from ftax_run.frames import UNKNOWN, Place
from ftax_run.sums import Sums
from ftax_run.watcher import HostTime, Process, Watcher
from ftax_run.window import CAUSES, GAP, WAIT, Window

_MOST_LINES = 10


def find_main(watcher: Watcher) -> Process | None:
    """The process whose device worked most; else the one that was sampled most."""
    processes = list(watcher.processes.values())
    with_device = [item for item in processes if item.windows]
    if with_device:
        return max(with_device, key=lambda item: sum(window.wall for window in item.windows))
    sampled = [item for item in processes if item.host.total]
    return max(sampled, key=lambda item: item.host.total, default=None)


def find_steady(process: Process) -> Window:
    """The iterations that took most of the time; without any, all that was recorded."""
    found = [window for window in process.windows if window.count]
    return max(found or process.windows, key=lambda window: window.wall)


def describe(watcher: Watcher) -> list[str]:
    """The report, a line each."""
    process = find_main(watcher)
    if process is None:
        problems = [item.problem for item in watcher.processes.values() if item.problem]
        return problems or ["Nothing was seen: no process ran a Python whose frames are known."]
    lines = _describe_device(process) if process.windows else _describe_host(process)
    return lines + _describe_limits(watcher, process)


def _describe_device(process: Process) -> list[str]:
    window = find_steady(process)
    count = max(1, window.count)
    unit = "an iteration" if window.count else "in all"
    wall = window.wall / count
    share = 100 * window.busy / window.wall
    idle = {cause: amount / count for cause, amount in window.causes.items() if amount > 0}
    lines = [_name_verdict(window), ""]
    if window.count:
        rest = sum(other.count for other in process.windows) - window.count
        others = f"; {rest:,} others (warm-up, evaluation) are left out" if rest else ""
        lines.append(f"{window.count:,} iterations of one kind were recorded{others}")
    else:
        lines.append("No iteration was found: nothing repeats in what the device was given")
    lines.append(f"{_time(wall)} {unit} = {_time(window.busy / count)} device busy ({share:.0f} %)")
    for cause in CAUSES:
        if idle.get(cause, 0) > 0.002 * wall:
            lines.append(f"  + {_time(idle[cause]):>9}  idle: {cause}")
    if window.lines:
        lines += ["", f"Exposed idle by line of the program, {unit}"]
        lines += _list_lines(window.lines, window.line_causes, window.leaves, count)
    if window.syncs:
        lines += ["", f"Synchronisations, {unit}"]
        for line, number in window.syncs.list_largest(4):
            exposed = _time(window.sync_idle[line] / count)
            lines.append(
                f"  {number / count:6.1f}  {_name_place(line)}, idle begins in it: {exposed}"
            )
    work = [f"{window.work[name] / count:,.1f} {name}" for name in window.work if window.work[name]]
    lines += ["", f"Work {unit}: {', '.join(work)}"]
    return lines


def _name_verdict(window: Window) -> str:
    """Who keeps whom waiting, and where to look first."""
    share = 100 * (1 - window.busy / window.wall)
    hosts = {cause: window.causes[cause] for cause in CAUSES if cause != GAP}
    host_share = 100 * sum(hosts.values()) / window.wall
    if host_share < 5:
        gaps = f", {share:.0f} % of it gaps between kernels" if share >= 5 else ""
        return f"Device-bound: the device has work all the time{gaps}; look at its kernels"
    top = max(hosts, key=lambda cause: hosts[cause])
    kind = "Waiting for input" if top == WAIT else "Host-bound"
    where = ""
    if window.lines:
        where = f"; look first at {_name_place(window.lines.list_largest(1)[0][0])}"
    return f"{kind}: the device idles {share:.0f} % of the time, most for {top}{where}"


def _list_lines(
    lines: Sums[Place],
    line_causes: Sums[tuple[Place, str]],
    leaves: Sums[tuple[Place, Place]],
    count: float,
) -> list[str]:
    shown = []
    for line, amount in lines.list_largest(_MOST_LINES):
        if amount < 0.005 * sum(lines.values()):
            break
        cause = max(CAUSES, key=lambda item: line_causes[line, item])
        below = Sums({leaf: value for (of, leaf), value in leaves.items() if of == line})
        leaf, part = below.list_largest(1)[0]
        text = f"  {_time(amount / count):>9}  {_name_place(line)}  {cause}"
        if leaf != line:
            text += f"; {100 * part / amount:.0f} % in {_name_place(leaf)}"
        shown.append(text)
    return shown


def _describe_host(process: Process) -> list[str]:
    host: HostTime = process.host
    wall = float(process.last_ns - process.first_ns)
    scale = host.total / wall if wall else 1.0  # samples a nanosecond
    lines = ["No work on a GPU was seen: this is the time of the program's main thread", ""]
    lines.append(f"{_time(wall)} in all")
    for cause in CAUSES:
        if host.causes[cause] > 0.002 * host.total:
            lines.append(f"  {_time(host.causes[cause] / scale):>9}  {cause}")
    lines += ["", "By line of the program"]
    return lines + _list_lines(host.lines, host.line_causes, host.leaves, scale)


def _describe_limits(watcher: Watcher, process: Process) -> list[str]:
    lines = [""]
    cost = find_cost(process)
    if cost is not None:
        lines.append(
            f"While all was recorded, a fifth of the time, the program ran {abs(cost):.1f} % "
            f"{'slower' if cost > 0 else 'faster'} than while launches alone were"
        )
    taken = max(1, watcher.taken)
    lines.append(
        f"{watcher.taken:,} samples, {watcher.took_ns / taken / 1e3:.0f} us each; "
        f"{watcher.torn / (taken + watcher.torn):.1%} changed while they were read and are left out"
    )
    if watcher.lost or process.lost:
        lines.append(f"Lost: {watcher.lost} samples, {process.lost} records of the device")
    lines += [item.problem for item in watcher.processes.values() if item.problem][:3]
    return lines


def find_cost(process: Process) -> float | None:
    """By how many percent the program launches more slowly while all is recorded, by the medians of
    the windows after the first; None where too few were seen."""
    rates: dict[int, list[float]] = {ALL: [], LAUNCHES: []}
    for kind, rate in process.launch_rates[2:-1]:
        rates[kind].append(rate)
    if min(map(len, rates.values())) < 2 or not median(rates[ALL]):
        return None
    return 100 * (median(rates[LAUNCHES]) / median(rates[ALL]) - 1)


def _name_place(place: Place) -> str:
    file, line, name = place
    if place == UNKNOWN:
        return "?"
    parts = Path(file).parts
    keep = 2 if "-packages" in file or "lib/python" in file else 1
    return f"{'/'.join(parts[-keep:])}:{line} {name.rpartition('.')[2]}"


def _time(ns: float) -> str:
    if ns >= 1e9:
        return f"{ns / 1e9:.2f} s"
    if ns >= 1e6:
        return f"{ns / 1e6:.2f} ms"
    return f"{ns / 1e3:.0f} us"
