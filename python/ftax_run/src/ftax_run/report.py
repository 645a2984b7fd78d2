"""What was found, in at most 35 lines for people, and as values for scripts."""

from __future__ import annotations

from ftax_run.account import Account, ProcessAccount
from ftax_run.causes import BLOCKED, CAUSES, GAP, OF_THE_DEVICE, WAIT
from ftax_run.findings import Findings, Line, find
from ftax_run.frames import Place, name_place
from ftax_run.sums import Sums
from ftax_run.window import Window

_LEAST_IDLE = 0.25  # of the time, of a device that the host bounds
_LEAST_BUSY = 0.05  # of the time of a process, that has a line
_MOST_LINES = 10
_MOST_OTHERS = 4
_LEAST_SHARE = 0.5  # of the recorded time in iterations, that needs no word
_MOST_SILENT = 3  # turns without a launch, at the end, that need no word
_MOST_SKEW = 1.3  # of the time in collectives, that is not worth a word


def describe(account: Account) -> list[str]:
    """The report, a line each."""
    process = account.find_main()
    if process is None:
        return describe_nothing(account)
    others = _describe_others(account, process)
    return [*_describe_process(process), *others, "", *describe_limits(account)]


def describe_nothing(account: Account) -> list[str]:
    """Why there is nothing to report."""
    problems = _list_problems(account)
    return problems or [
        "Nothing was seen: no process used a GPU, or ran a Python that is known (CPython 3.11 to "
        "3.14, with its symbols) for long enough"
    ]


def name_verdict(window: Window) -> str:
    """Who keeps whom waiting, and where to look first."""
    share = 100 * (1 - window.busy / window.wall)
    causes = window.sum_causes()
    hosts = {cause: causes[cause] for cause in CAUSES if cause not in OF_THE_DEVICE}
    waiting = 100 * causes[BLOCKED] / window.wall
    if causes[BLOCKED] > max(_LEAST_IDLE * window.wall, sum(hosts.values())):
        return (
            f"Kept waiting by others: for {waiting:.0f} % of the time work that was launched does "
            "not begin, while another process, stream or host function has its turn"
        )
    if sum(hosts.values()) < 0.05 * window.wall:
        part = 100 * causes[GAP] / window.wall
        gaps = f", but for {part:.0f} % in gaps between kernels" if part >= 5 else ""
        if waiting >= 5:
            gaps += f"; for {waiting:.0f} % work that was launched waits for others"
        return f"Device-bound: the device is never kept waiting{gaps}; look at its kernels"
    top = max(hosts, key=lambda cause: hosts[cause])
    kind = "Waiting for input" if top == WAIT else "Host-bound"
    if sum(hosts.values()) < _LEAST_IDLE * window.wall:
        kind = "Device-bound"
    where = ""
    if lines := window.sum_lines().list_largest(1):
        where = f"; look first at {name_place(lines[0][0])}"
    return f"{kind}: the device idles {share:.0f} % of the time, most for {top}{where}"


def make_verdict(account: Account) -> dict[str, object]:
    """For scripts: the sentence, and times in microseconds of an iteration, or of all where none
    was found; of exposed idle, or where no device was seen of the main thread."""
    process = account.find_main()
    if process is None:
        problems = _list_problems(account)
        return {"verdict": "no device", "exit_code": account.exit_code, "problems": problems}
    found = find(process)
    sentence = name_finding(process)
    times = found.causes.scale(1e-3)
    kind = "time_us" if found.busy is None else "idle_us"
    return {
        "verdict": "no device" if found.busy is None else sentence.partition(":")[0],
        "sentence": sentence,
        "exit_code": account.exit_code,
        "iterations": found.iterations,
        "wall_us": found.wall / 1e3,
        **({} if found.busy is None else {"busy_us": found.busy / 1e3}),
        kind: times,
        "lines": [
            {"file": file, "line": number, "function": name, kind: line.time / 1e3}
            for line in found.lines[:_MOST_LINES]
            for file, number, name in [line.place]
        ],
        **({} if found.busy is None else {"work": found.work}),
        "recording_cost": found.cost,
        "problems": _list_problems(account),
    }


def name_finding(process: ProcessAccount) -> str:
    """The first sentence on a process."""
    if process.windows:
        return name_verdict(process.correct()[0])
    return "No work on a GPU was seen: this is the time of the program's main thread"


def _describe_process(process: ProcessAccount) -> list[str]:
    found = find(process)
    lines = [name_finding(process), "", *describe_iterations(found)]
    if found.busy is None:
        lines.append(f"{_time(found.wall)} {found.unit}")
    else:
        busy = f"{_time(found.busy)} device busy ({100 * found.busy / found.wall:.0f} %)"
        lines.append(f"{_time(found.wall)} {found.unit} = {busy}")
    sign = "  " if found.busy is None else "  + "
    kind = "" if found.busy is None else "idle: "
    for cause, time in list_causes(found):
        lines.append(f"{sign}{_time(time):>9}  {kind}{cause}")
    if found.lines:
        what = "By line" if found.busy is None else "Exposed idle by line"
        lines += ["", f"{what} of the program, {found.unit}"]
        lines += [_describe_line(line) for line in found.lines[:_MOST_LINES]]
    if found.syncs:
        lines += ["", f"Synchronisations, {found.unit}"]
        for sync in found.syncs[:4]:
            near = "near " if sync.is_near else ""
            place, exposed = f"{near}{name_place(sync.place)}", _time(sync.exposed)
            lines.append(f"  {sync.count:7.1f}  {place}; {exposed} of idle begin in it")
    if work := [f"{amount:,.1f} {name}" for name, amount in found.work.items() if amount]:
        lines += ["", f"Work {found.unit}: {', '.join(work)}"]
    return lines + describe_recording(found)


def list_causes(found: Findings) -> list[tuple[str, float]]:
    """Those that can be seen, in the order in which reports have them."""
    return [
        (cause, found.causes[cause]) for cause in CAUSES if found.causes[cause] > 0.002 * found.wall
    ]


def describe_iterations(found: Findings) -> list[str]:
    """How many there are of what is reported."""
    if found.busy is None:
        return [f"{found.iterations:,} iterations that the program marks"] * (found.iterations > 0)
    if not found.iterations:
        return ["No iteration was found: nothing repeats in what the device was given"]
    others = f"; {found.others:,} others (warm-up, evaluation) are left out"
    lines = [
        f"{found.iterations:,} iterations of one kind were recorded{others if found.others else ''}"
    ]
    if found.share < _LEAST_SHARE:
        rest = f"; the rest idles most {_name_rest(*found.rest)}" if found.rest else ""
        lines.append(f"They are {100 * found.share:.0f} % of the recorded time{rest}")
    return lines


def _name_rest(line: Place, leaf: Place) -> str:
    return f"at {name_place(line)}" + (f", in {name_place(leaf)}" if leaf != line else "")


def _describe_line(line: Line) -> str:
    text = f"  {_time(line.time):>9}  {name_place(line.place)}  {line.cause}"
    if line.leaf != line.place:
        text += f"; {100 * line.leaf_share:.0f} % in {name_place(line.leaf)}"
    return text


def describe_recording(found: Findings) -> list[str]:
    """What recording left open, and what it cost."""
    lines = []
    if found.busy is not None and not found.work["launches"]:
        lines.append("No calls were recorded, so gaps between kernels count as the host's")
    if found.cost is not None:
        how = f"{abs(100 * found.cost):.1f} % {'longer' if found.cost > 0 else 'shorter'}"
        out = "; that is taken out" if found.cost > 0 else ""
        lines.append(f"While all was recorded, an iteration took {how}{out}")
    return lines


def _describe_others(account: Account, main: ProcessAccount) -> list[str]:
    """Other processes whose device worked, a line each, and who of all was late; without a device
    all others, those of one command in one line."""
    if not main.windows:
        return _describe_host_processes([item for item in account.processes if item is not main])
    working = [item for item in account.processes if item.windows]
    others = [item for item in working if item is not main]
    lines = ["", "Other processes with a device"] if others else []
    for item in others[:_MOST_OTHERS]:
        found = find(item)
        lines.append(
            f"  {item.pid}: {_time(found.wall)} {found.unit}, device busy "
            f"{100 * (found.busy or 0.0) / found.wall:.0f} %"
        )
    if others and (window := main.find_steady()).blocked > 0.05 * window.wall:
        lines.append(
            "  Processes that share a device take turns on it, unless it has MPS: launched work "
            "waits for its turn"
        )
    return lines + name_late(working)


def _describe_host_processes(processes: list[ProcessAccount]) -> list[str]:
    """Those that took most time first."""
    alike: dict[str, list[ProcessAccount]] = {}
    for item in processes:
        if item.host.total:
            alike.setdefault(item.command, []).append(item)
    times = Sums({name: sum(item.host.wall for item in each) for name, each in alike.items()})
    lines = ["", "Other processes"] if times else []
    for name, time in times.list_largest(_MOST_OTHERS):
        works: Sums[Place] = Sums()  # its own; waits are booked to what others ran
        for item in alike[name]:
            for (place, cause), amount in item.host.spent.items():
                works[place] += amount * item.host.unit * (cause != WAIT)
        busy = sum(works.values()) / max(1, time)
        count = f"{len(alike[name])} x " if len(alike[name]) > 1 else ""
        where = f"; most at {name_place(works.rank()[0][0])}" if busy > _LEAST_BUSY else ""
        lines.append(f"  {count}{name}: {_time(time)}, {100 * busy:.0f} % of it busy{where}")
    return lines


def name_late(processes: list[ProcessAccount]) -> list[str]:
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


def describe_limits(account: Account) -> list[str]:
    """What was not seen, and what reading stacks took."""
    torn = account.torn / max(1, account.samples + account.torn)
    lines = [f"{account.samples:,} samples of {account.sample_us:.0f} us; {torn:.1%} changed "
             "while they were read and are left out"]  # fmt: skip
    records = sum(item.lost for item in account.processes)
    if account.lost or records:
        lines.append(f"Lost: {account.lost:,} samples, {records:,} records of the device")
    if any(item.silent_turns > _MOST_SILENT for item in account.processes):
        lines.append(
            "Towards the end no launch was recorded: the program gave its device no work any more, "
            "or a profiler in it took the records (torch.profiler does)"
        )
    return lines + _list_problems(account)[:3]


def _list_problems(account: Account) -> list[str]:
    """Of who watched, and of processes, each once."""
    problems = (account.problem, *(item.problem for item in account.processes))
    return list(dict.fromkeys(filter(None, problems)))


def _time(ns: float) -> str:
    if ns >= 1e9:
        return f"{ns / 1e9:.2f} s"
    if ns >= 1e6:
        return f"{ns / 1e6:.2f} ms"
    return f"{ns / 1e3:.0f} us"
