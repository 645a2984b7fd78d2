"""What was found, in at most 35 lines for people, and as values for scripts."""

from __future__ import annotations

from ftax_run.account import Account, ProcessAccount
from ftax_run.causes import CAUSES, GAP, WAIT
from ftax_run.frames import Place, name_place
from ftax_run.sums import Sums
from ftax_run.window import Window

_MOST_LINES = 10
_MOST_OTHERS = 4
_MOST_SILENT = 3  # turns without a launch, at the end, that need no word
_MOST_SKEW = 1.3  # of the time in collectives, that is not worth a word


def describe(account: Account) -> list[str]:
    """The report, a line each."""
    process = account.find_main()
    if process is None:
        problems = [item.problem for item in account.processes if item.problem]
        return problems or ["Nothing was seen: no process ran a Python whose frames are known"]
    lines = _describe_device(process) if process.windows else _describe_host(process)
    return lines + _describe_others(account, process) + _describe_limits(account)


def name_verdict(window: Window) -> str:
    """Who keeps whom waiting, and where to look first."""
    share = 100 * (1 - window.busy / window.wall)
    causes = window.sum_causes()
    hosts = {cause: causes[cause] for cause in CAUSES if cause != GAP}
    if sum(hosts.values()) < 0.05 * window.wall:
        gaps = f", but for {share:.0f} % in gaps between kernels" if share >= 5 else ""
        return f"Device-bound: the device is never kept waiting{gaps}; look at its kernels"
    top = max(hosts, key=lambda cause: hosts[cause])
    kind = "Waiting for input" if top == WAIT else "Host-bound"
    where = ""
    if lines := window.sum_lines().list_largest(1):
        where = f"; look first at {name_place(lines[0][0])}"
    return f"{kind}: the device idles {share:.0f} % of the time, most for {top}{where}"


def make_verdict(account: Account) -> dict[str, object]:
    """For scripts: the sentence, and times in microseconds of an iteration, or of all where none
    was found."""
    process = account.find_main()
    if process is None or not process.windows:
        return {"verdict": "no device", "exit_code": account.exit_code}
    window, cost = process.correct()
    count = max(1, window.count)
    sentence = name_verdict(window)
    return {
        "verdict": sentence.partition(":")[0],
        "sentence": sentence,
        "exit_code": account.exit_code,
        "iterations": window.count,
        "wall_us": window.wall / count / 1e3,
        "busy_us": window.busy / count / 1e3,
        "idle_us": {cause: amount / count / 1e3 for cause, amount in window.sum_causes().items()},
        "lines": [
            {"file": file, "line": line, "function": name, "idle_us": amount / count / 1e3}
            for (file, line, name), amount in window.sum_lines().list_largest(_MOST_LINES)
        ],
        "work": {name: amount / count for name, amount in window.work.items()},
        "recording_cost": cost,
    }


def _describe_device(process: ProcessAccount) -> list[str]:
    window, cost = process.correct()
    count = max(1, window.count)
    unit = "an iteration" if window.count else "in all"
    lines = [name_verdict(window), "", _count_iterations(process, window)]
    busy = f"{_time(window.busy / count)} device busy ({100 * window.busy / window.wall:.0f} %)"
    lines.append(f"{_time(window.wall / count)} {unit} = {busy}")
    causes = window.sum_causes()
    for cause in CAUSES:
        if causes[cause] > 0.002 * window.wall:
            lines.append(f"  + {_time(causes[cause] / count):>9}  idle: {cause}")
    if window.idle:
        lines += ["", f"Exposed idle by line of the program, {unit}"]
        lines += _list_lines(window.idle, window.leaves, count)
    if window.syncs:
        lines += ["", f"Synchronisations, {unit}"]
        for line, number in window.syncs.list_largest(4):
            exposed = _time(window.sync_idle[line] / count)
            lines.append(
                f"  {number / count:7.1f}  {name_place(line)}; {exposed} of idle begin in it"
            )
    work = [f"{amount / count:,.1f} {name}" for name, amount in window.work.items() if amount]
    lines += ["", f"Work {unit}: {', '.join(work)}"]
    if not window.work["launches"]:
        lines.append("No calls were recorded, so gaps between kernels count as the host's")
    if cost is not None:
        how = f"{abs(100 * cost):.1f} % {'longer' if cost > 0 else 'shorter'}"
        out = "; that is taken out" if cost > 0 else ""
        lines.append(f"While all was recorded, a fifth of the time, it took {how}{out}")
    return lines


def _count_iterations(process: ProcessAccount, window: Window) -> str:
    if not window.count:
        return "No iteration was found: nothing repeats in what the device was given"
    rest = sum(other.count for other in process.windows) - window.count + process.left_out
    others = f"; {rest:,} others (warm-up, evaluation) are left out" if rest else ""
    return f"{window.count:,} iterations of one kind were recorded{others}"


def _list_lines(
    amounts: Sums[tuple[Place, str]], leaves: Sums[tuple[Place, Place]], count: float
) -> list[str]:
    by_line: dict[Place, Sums[str]] = {}
    for (line, cause), amount in amounts.items():
        by_line.setdefault(line, Sums())[cause] += amount
    totals = Sums({line: sum(causes.values()) for line, causes in by_line.items()})
    shown = []
    for line, amount in totals.list_largest(_MOST_LINES):
        if amount <= 0.005 * sum(totals.values()):
            break
        text = f"  {_time(amount / count):>9}  {name_place(line)}  "
        text += by_line[line].list_largest(1)[0][0]
        below = Sums({leaf: value for (of, leaf), value in leaves.items() if of == line})
        leaf, part = below.list_largest(1)[0] if below else (line, 0.0)
        if leaf != line:
            text += f"; {100 * part / amount:.0f} % in {name_place(leaf)}"
        shown.append(text)
    return shown


def _describe_host(process: ProcessAccount) -> list[str]:
    host = process.host
    count = max(1, process.marked)
    scale = count * host.total / host.wall if host.wall else 1.0  # samples a nanosecond
    lines = ["No work on a GPU was seen: this is the time of the program's main thread", ""]
    if process.marked:
        lines.append(f"{process.marked:,} iterations that the program marks")
    lines.append(f"{_time(host.wall / count)} {'an iteration' if process.marked else 'in all'}")
    for cause in CAUSES:
        amount = sum(value for (_, of), value in host.spent.items() if of == cause)
        if amount > 0.002 * host.total:
            lines.append(f"  {_time(amount / scale):>11}  {cause}")
    lines += ["", "By line of the program"]
    return lines + _list_lines(host.spent, host.leaves, scale)


def _describe_others(account: Account, main: ProcessAccount) -> list[str]:
    """Other processes whose device worked, a line each, and who of all was late."""
    working = [item for item in account.processes if item.windows]
    others = [item for item in working if item is not main]
    lines = ["", "Other processes with a device"] if others else []
    for item in others[:_MOST_OTHERS]:
        window, _ = item.correct()
        lines.append(
            f"  {item.pid}: {_time(window.wall / max(1, window.count))} an iteration, device busy "
            f"{100 * window.busy / window.wall:.0f} %"
        )
    return lines + _name_late(working)


def _name_late(processes: list[ProcessAccount]) -> list[str]:
    """Of processes that communicate, the one that the others wait for: in its collectives it waits
    least."""
    waits = {}
    for item in processes:
        window = item.find_steady()
        if window.count and window.collectives:
            waits[item.pid] = window.collectives / window.count
    if len(waits) < 2 or max(waits.values()) < _MOST_SKEW * min(waits.values()):
        return []
    late = min(waits, key=lambda pid: waits[pid])
    most = _time(max(waits.values()))
    return [
        f"Process {late} is late: its collectives take {_time(waits[late])} an iteration, those of "
        f"the others up to {most}, in which they wait for it"
    ]


def _describe_limits(account: Account) -> list[str]:
    torn = account.torn / max(1, account.samples + account.torn)
    lines = ["", f"{account.samples:,} samples of {account.sample_us:.0f} us; {torn:.1%} changed "
             "while they were read and are left out"]  # fmt: skip
    records = sum(item.lost for item in account.processes)
    if account.lost or records:
        lines.append(f"Lost: {account.lost:,} samples, {records:,} records of the device")
    if any(item.silent_turns > _MOST_SILENT for item in account.processes):
        lines.append(
            "Towards the end no launch was recorded: the program gave its device no work any more, "
            "or a profiler in it took the records (torch.profiler does)"
        )
    problems = dict.fromkeys(item.problem for item in account.processes if item.problem)
    return lines + list(problems)[:3]


def _time(ns: float) -> str:
    if ns >= 1e9:
        return f"{ns / 1e9:.2f} s"
    if ns >= 1e6:
        return f"{ns / 1e6:.2f} ms"
    return f"{ns / 1e3:.0f} us"
