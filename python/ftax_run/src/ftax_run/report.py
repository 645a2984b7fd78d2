"""What was found, in at most 35 lines."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from ftax_run.frames import UNKNOWN, Place
from ftax_run.watcher import HostTime, Process, Watcher
from ftax_run.window import CAUSES, COPY, CPP, GAP, GIL, PYTHON, SYNC, WAIT, Window

_MOST_LINES = 10


def find_main(watcher: Watcher) -> Process | None:
    """The process whose device worked most; else the one that was sampled most."""
    processes = list(watcher.processes.values())
    with_device = [item for item in processes if item.windows]
    if with_device:
        return max(with_device, key=lambda item: sum(w.wall for w in item.windows.values()))
    sampled = [item for item in processes if item.host.total]
    return max(sampled, key=lambda item: item.host.total, default=None)


def find_steady(process: Process) -> Window:
    """The iterations that took most of the time; without any, all that was recorded."""
    found = [window for window in process.windows.values() if window.count]
    return max(found or process.windows.values(), key=lambda window: window.wall)


def describe(watcher: Watcher) -> list[str]:
    """The report, a line each."""
    process = find_main(watcher)
    if process is None:
        problems = [item.problem for item in watcher.processes.values() if item.problem]
        return problems or ["Nothing was seen: no process ran a Python whose frames are known."]
    if not process.windows:
        lines = _describe_host(process)
    else:
        lines = _describe_device(process)
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
        rest = sum(other.count for other in process.windows.values()) - window.count
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
        for line, number in window.syncs.most_common(4):
            exposed = _time(window.sync_idle[line] / count)
            lines.append(f"  {number / count:6.1f}  {_name_place(line)}, idle begins in it: {exposed}")
    work = [f"{window.work[name] / count:,.1f} {name}" for name in window.work if window.work[name]]
    lines += ["", f"Work {unit}: {', '.join(work)}"]
    return lines


def _name_verdict(window: Window) -> str:
    idle = window.wall - window.busy
    share = 100 * idle / window.wall
    by = {cause: window.causes[cause] for cause in CAUSES}
    if share < 10:
        return f"Device-bound: the device is busy {100 - share:.0f} % of the time; the host is not in its way"
    top = max(by, key=lambda cause: by[cause])
    where = ""
    if window.lines:
        line, _ = window.lines.most_common(1)[0]
        where = f"; look first at {_name_place(line)}"
    if top == WAIT:
        return f"Waiting for input: the device idles {share:.0f} % of the time, most while the host waits{where}"
    if top == GAP:
        return f"Device-bound by gaps: the device idles {share:.0f} % of the time between kernels that were launched in time"
    return f"Host-bound: the device idles {share:.0f} % of the time, most for {top}{where}"


def _list_lines(
    lines: Counter[Place],
    line_causes: Counter[tuple[Place, str]],
    leaves: Counter[tuple[Place, Place]],
    count: float,
) -> list[str]:
    shown = []
    for line, amount in lines.most_common(_MOST_LINES):
        if amount < 0.005 * sum(lines.values()):
            break
        cause = max(CAUSES, key=lambda item: line_causes[line, item])
        below = Counter({leaf: value for (of, leaf), value in leaves.items() if of == line})
        leaf, part = below.most_common(1)[0]
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
            f"Watching: while all was recorded (a fifth of the time) the program was {cost:+.1f} % slower"
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
    """By how many percent the program launches more slowly while all is recorded, by the median of
    neighbouring windows; None where that was not seen."""
    ratios = [
        100 * (after / before - 1)
        for (kind, before), (other, after) in zip(
            process.launch_rates[2:], process.launch_rates[3:], strict=False
        )
        if kind == 1 and other == 2 and before and after
    ]
    return sorted(ratios)[len(ratios) // 2] if ratios else None


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


__all__ = ["COPY", "CPP", "GIL", "PYTHON", "SYNC", "describe", "find_cost", "find_main"]
