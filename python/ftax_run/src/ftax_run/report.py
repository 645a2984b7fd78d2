"""What was found, in at most 35 lines."""

from __future__ import annotations

from pathlib import Path
from statistics import median

from ftax_run.activities import LAUNCHES
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


def find_account(process: Process) -> tuple[Window, float | None]:
    """The steady state, without what recording cost, and that cost in percent; None where it is not
    known."""
    window = find_steady(process)
    iteration = find_iteration(process, window)
    if iteration is None:
        return window, None
    excess = window.wall - window.count * iteration
    return window.take_out(excess), 100 * excess / (window.wall - excess)


def find_iteration(process: Process, window: Window) -> float | None:
    """How long an iteration takes while only calls are recorded, in ns: from how many launches it
    makes, and how many are made in a second."""
    rates = [rate for kind, rate in process.launch_rates if kind == LAUNCHES and rate > 0]
    if not rates or not window.count or not window.work["launches"]:
        return None
    usual = median(rates)
    steady = [rate for rate in rates if 0.7 * usual < rate < 1.3 * usual]
    launches = window.work["launches"] / window.count
    return launches * 1e9 * len(steady) / sum(steady)


def _describe_device(process: Process) -> list[str]:
    window, cost = find_account(process)
    count = max(1, window.count)
    unit = "an iteration" if window.count else "in all"
    wall = window.wall / count
    causes = window.sum_causes()
    lines = [_name_verdict(window), ""]
    if window.count:
        rest = sum(other.count for other in process.windows) - window.count
        others = f"; {rest:,} others (warm-up, evaluation) are left out" if rest else ""
        lines.append(f"{window.count:,} iterations of one kind were recorded{others}")
    else:
        lines.append("No iteration was found: nothing repeats in what the device was given")
    busy = f"{_time(window.busy / count)} device busy ({100 * window.busy / window.wall:.0f} %)"
    lines.append(f"{_time(wall)} {unit} = {busy}")
    for cause in CAUSES:
        if causes[cause] / count > 0.002 * wall:
            lines.append(f"  + {_time(causes[cause] / count):>9}  idle: {cause}")
    if window.idle:
        lines += ["", f"Exposed idle by line of the program, {unit}"]
        lines += _list_lines(window.idle, window.leaves, count)
    if window.syncs:
        lines += ["", f"Synchronisations, {unit}"]
        for line, number in window.syncs.list_largest(4):
            exposed = _time(window.sync_idle[line] / count)
            lines.append(
                f"  {number / count:6.1f}  {_name_place(line)}; {exposed} of idle begin in it"
            )
    work = [f"{window.work[name] / count:,.1f} {name}" for name in window.work if window.work[name]]
    lines += ["", f"Work {unit}: {', '.join(work)}"]
    if not window.work["launches"] and not window.work["graphs"]:
        lines.append("CUPTI told of no calls, so gaps between kernels count as the host's")
    if cost is not None:
        lines.append(f"While all was recorded (a fifth of the time) it took {cost:+.1f} %; "
                     "that is taken out")  # fmt: skip
    return lines


def _name_verdict(window: Window) -> str:
    """Who keeps whom waiting, and where to look first."""
    share = 100 * (1 - window.busy / window.wall)
    causes = window.sum_causes()
    hosts = {cause: causes[cause] for cause in CAUSES if cause != GAP}
    if sum(hosts.values()) < 0.05 * window.wall:
        gaps = f", {share:.0f} % of it gaps between kernels" if share >= 5 else ""
        return f"Device-bound: the device has work all the time{gaps}; look at its kernels"
    top = max(hosts, key=lambda cause: hosts[cause])
    kind = "Waiting for input" if top == WAIT else "Host-bound"
    where = ""
    if lines := window.sum_lines().list_largest(1):
        where = f"; look first at {_name_place(lines[0][0])}"
    return f"{kind}: the device idles {share:.0f} % of the time, most for {top}{where}"


def _list_lines(
    idle: Sums[tuple[Place, str]], leaves: Sums[tuple[Place, Place]], count: float
) -> list[str]:
    by_line: dict[Place, Sums[str]] = {}
    for (line, cause), amount in idle.items():
        by_line.setdefault(line, Sums())[cause] += amount
    totals = Sums({line: sum(causes.values()) for line, causes in by_line.items()})
    shown = []
    for line, amount in totals.list_largest(_MOST_LINES):
        if amount < 0.005 * sum(totals.values()):
            break
        below = Sums({leaf: value for (of, leaf), value in leaves.items() if of == line})
        leaf, part = below.list_largest(1)[0]
        cause = by_line[line].list_largest(1)[0][0]
        text = f"  {_time(amount / count):>9}  {_name_place(line)}  {cause}"
        if leaf != line:
            text += f"; {100 * part / max(amount, 1e-9):.0f} % in {_name_place(leaf)}"
        shown.append(text)
    return shown


def _describe_host(process: Process) -> list[str]:
    host: HostTime = process.host
    wall = float(process.last_ns - process.first_ns)
    scale = host.total / wall if wall else 1.0  # samples a nanosecond
    lines = ["No work on a GPU was seen: this is the time of the program's main thread", ""]
    lines.append(f"{_time(wall)} in all")
    for cause in CAUSES:
        amount = sum(value for (_, of), value in host.spent.items() if of == cause)
        if amount > 0.002 * host.total:
            lines.append(f"  {_time(amount / scale):>9}  {cause}")
    lines += ["", "By line of the program"]
    return lines + _list_lines(host.spent, host.leaves, scale)


def _describe_limits(watcher: Watcher, process: Process) -> list[str]:
    lines = [""]
    taken = max(1, watcher.taken)
    lines.append(
        f"{watcher.taken:,} samples, {watcher.took_ns / taken / 1e3:.0f} us each; "
        f"{watcher.torn / (taken + watcher.torn):.1%} changed while they were read and are left out"
    )
    if watcher.lost or process.lost:
        lines.append(f"Lost: {watcher.lost} samples, {process.lost} records of the device")
    lines += [item.problem for item in watcher.processes.values() if item.problem][:3]
    return lines


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
