"""What the numbers of a receipt advise, in sentences; docs/receipt.md states the rules.

Only what is resolved is said to be so. A latency that is not to go by (`Measurement.doubt`) is
compared with nothing, a saving whose interval contains 0 is no saving, outputs beyond tolerance are
no alternative, and where neither host nor device accounts for more than half of a latency for
certain, the sentence says that.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from ftax.ladders.ladder import AUTOGRAD
from ftax.ladders.lines import Line
from ftax.ladders.receipt import Receipt
from ftax.ladders.rows import BAKED, IN_THE_MEAN, RuntimeRow
from ftax.runtimes.adoption import find_lines
from ftax.timing.candidate import name_caller
from ftax.timing.differences import compute_difference, find_doubt_of
from ftax.timing.measurement import Measurement
from ftax.timing.trust import NOT_RESOLVED
from ftax.timing.units import format_interval, format_time

# What the lines of code begin with, of a forward pass and of other steps.
_GIVEN = {
    False: "# inputs: the tensors of one request, a tuple in the order of forward\n"
    "# requests: such tuples, in the same shapes\n",
    True: "# step: the ftax.Step that was measured, in the grad mode of the program\n"
    "# inputs: its arguments, a tuple\n",
}


def recommend(receipt: Receipt) -> str:
    """Host-bound or device-bound, the largest tax, and what gives most of it back."""
    if receipt.work_problem:
        return _say_not_the_same(receipt)
    sentences = [
        _say_what_binds(receipt),
        _say_largest_line(receipt),
        _say_waits(receipt),
    ]
    stand_ins = receipt.ladder.stand_ins
    rows = [
        row for row in receipt.runtimes
        if row.measurement.place in stand_ins or not row.is_rung  # others are instruments
    ]  # fmt: skip
    able = [row for row in rows if row.is_faster and not row.excluded]
    places = {row.measurement.place: row for row in able}
    same = next((places[place] for place in stand_ins if place in places), None)
    other = next((row for row in able if row.measurement.place not in stand_ins), None)
    if same is not None:
        sentences.append(_say_same_work(receipt, same))
    if other is not None:
        sentences.append(_say_alternative(receipt, other, same))
    if same is None and other is None:
        sentences.append(
            f"No other runtime measured here is faster than {receipt.ladder.top} for certain."
        )
    sentences.append(_say_excluded(rows, other or same))
    return " ".join(sentence for sentence in sentences if sentence)


def _say_not_the_same(receipt: Receipt) -> str:
    return (
        f"Not the same work: {receipt.work_problem}. So there is no tax to tell, and no "
        "runtime that could take the model's place; measure a step whose work does not change."
    )


def adopt(receipt: Receipt) -> str:
    """The lines of code that put in the model's place the fastest runtime which is faster for
    certain and gives its outputs; "" if there is none."""
    row = next(iter(list_adoptable(receipt)), None)
    if row is None:
        return ""
    is_step = row.measurement.cell.step != "forward"
    title = f"# {row.measurement.cell.runtime}, called from Python: {_say_latency(row)}\n"
    return f"{title}{_GIVEN[is_step]}{find_code(row)}"


def list_adoptable(receipt: Receipt) -> list[RuntimeRow]:
    """The runtimes that Python can call, that are faster for certain and give the model's outputs,
    and for which there is code; fastest first."""
    return [
        row
        for row in receipt.runtimes
        if row.measurement.cell.host == "python"
        and row.is_faster
        and not row.excluded
        and find_code(row)
    ]


def find_code(row: RuntimeRow, *, brief: bool = False) -> str:
    """The code that puts a runtime in the model's place; ``brief``: with one request, not many."""
    cell = row.measurement.cell
    return find_lines(
        cell.runtime,
        step=cell.step != "forward",
        grad_mode=cell.grad_mode,
        details=row.preparation.details,
        brief=brief,
    )


def _say_waits(receipt: Receipt) -> str:
    """How often the first rung waits for the device, and what of that nothing hides."""
    top = receipt.rungs[0]
    found = (item.waits for item in receipt.evidence if item.place == top.place)
    waits = next((item for item in found if item is not None and any(item.counts)), None)
    if waits is None:
        return ""
    count = median(waits.counts)
    each = ""
    if top.cell.units > 1:
        each = f", {count / top.cell.units:.3g} a {top.cell.unit}"
    exposed_ns = median(waits.wait_ns) - median(waits.masked_ns)
    return (
        f"While it is issued it waits for the device {count:g} time{'s' if count != 1 else ''}"
        f"{each}; of these waits {format_time(exposed_ns)} are exposed, as traced."
    )


def compute_tax_share(receipt: Receipt) -> tuple[float, float, float] | None:
    """The share of the latency in which no kernel, copy or fill keeps the device busy, and the ends
    of its interval; None on a CPU, and without a reliable trace."""
    kernels, latency = receipt.lines[-1], receipt.rungs[0].interval_ns
    if not kernels.is_kernels or kernels.interval_ns is None or latency is None:
        return None
    # The extremes of both intervals: wider than need be, and right whatever their correlation.
    low = 1 - kernels.interval_ns[1] / latency[0]
    high = 1 - kernels.interval_ns[0] / latency[1]
    return 1 - kernels.time_ns / receipt.latency_ns, low, high


def _say_what_binds(receipt: Receipt) -> str:
    """On a GPU the share of tax, by the busy time that the receipt's last line has."""
    found, where = compute_tax_share(receipt), f"at batch {receipt.rungs[0].cell.batch}"
    if found is None:
        return _say_python(receipt)
    if doubt := receipt.lines[-1].doubt:
        return f"Whether host or device binds {where} is {NOT_RESOLVED}: {doubt}."
    share, low, high = found
    what = f"{share:.0%} ({low:.0%} to {high:.0%}) of {format_time(receipt.latency_ns)} is tax"
    if low > 0.5:
        return f"Host-bound {where}: {what}."
    if high < 0.5:
        resolved = what if low > 0 else f"the tax is not resolved ({low:.0%} to {high:.0%})"
        return f"Device-bound {where}: {resolved}."
    return f"Whether host or device binds {where} is not resolved: {what}."


def _say_python(receipt: Receipt) -> str:
    """Without busy time (a CPU, or no trace): the cost of Python is what the ladder knows."""
    tax = receipt.python_tax_ns
    if tax is None:
        return ""
    time_ns, interval = tax
    total = format_time(receipt.latency_ns)
    without = receipt.ladder.without_python
    tape = next(rung for rung in receipt.rungs if rung.place == without)  # or there is no tax
    if doubt := find_doubt_of([receipt.rungs[0], tape]):
        return f"Python's cost is {NOT_RESOLVED}: {doubt}."
    if interval is None or interval[0] <= 0:
        return f"Python's cost is not resolved: {format_interval(interval)} of {total}."
    return (
        f"Python costs {format_time(time_ns)} of {total} "
        f"({time_ns / receipt.latency_ns:.0%}; {format_interval(interval)})."
        f"{_say_with_autograd(receipt, tape)}"
    )


def _say_with_autograd(receipt: Receipt, tape: Measurement) -> str:
    """Where there is a rung below autograd too: what both cost."""
    lowest = receipt.rungs[-1]
    if lowest.place == tape.place or lowest.doubt or receipt.ladder.name != AUTOGRAD.name:
        return ""
    both_ns, interval = receipt.compute_step(0, len(receipt.rungs) - 1)
    if interval is None or interval[0] <= 0:
        return ""
    share = both_ns / receipt.latency_ns
    return (
        f" With autograd it is {format_time(both_ns)} ({share:.0%}; {format_interval(interval)})."
    )


def _say_largest_line(receipt: Receipt) -> str:
    taxes: list[Line] = [
        line for line in receipt.lines if line.resolved and line.lower and line.time_ns > 0
    ]
    if not taxes:
        return ""
    largest, *others = sorted(taxes, key=lambda line: -line.time_ns)
    unknown = [line.name for line in receipt.lines if line.lower and _may_exceed(line, largest)]
    if unknown:
        return (
            f"Which part of the tax is the largest is not known: {' and '.join(unknown)} "
            f"{'is' if len(unknown) == 1 else 'are'} not resolved."
        )
    close = [line for line in others if _overlap(line, largest)]
    told = "; their intervals do not tell which" if close else ""
    return f"The largest part of the tax is {' or '.join(map(_say, (largest, *close)))}{told}."


def _may_exceed(line: Line, other: Line) -> bool:
    """Whether a line that is not resolved may be the larger one."""
    if line.resolved:
        return False
    return bool(line.doubt) or line.interval_ns is None or line.interval_ns[1] > other.time_ns


def _overlap(line: Line, other: Line) -> bool:
    """Whether the intervals of two lines, the second of which is the larger, meet."""
    ends, others = line.interval_ns, other.interval_ns
    return ends is not None and others is not None and ends[1] > others[0]


def _say(line: Line) -> str:
    return (
        f"{line.name}: {format_time(line.time_ns)} "
        f"({line.share_ratio:.0%}; {format_interval(line.interval_ns)})"
    )


def _say_same_work(receipt: Receipt, row: RuntimeRow) -> str:
    place = row.measurement.place
    work = next((item for item in receipt.evidence if item.place == place), None)
    what = receipt.ladder.stand_ins[place]
    kernels = "kernels" if work is not None and work.same_kernels else "operators"
    if work is not None and work.same_kernels is False:
        kernels = "operators, with other kernels,"
    if "." not in what:  # a name in code is written as it is
        what = f"{what[0].upper()}{what[1:]}"
    return f"{what} of the same {kernels} {_say_gain(row)}."


def _say_alternative(receipt: Receipt, row: RuntimeRow, same: RuntimeRow | None) -> str:
    cell = row.measurement.cell
    name = f"{cell.runtime} called from {name_caller(cell.host)}"
    if cell.runtime == "eager":  # beside the rungs of compiled code
        name = f"{name}, without compiling,"
    sentence = f"{name} {_say_gain(row)}{_say_split(row)}{_say_pay_back(row)}"
    if same is None:
        return f"{sentence}."
    measured = (*receipt.rungs, *receipt.others)
    saved_ns, interval = compute_difference(
        measured, measured.index(same.measurement), measured.index(row.measurement)
    )
    if interval is None or interval[0] <= 0 <= interval[1]:
        return f"{sentence}; which of the two is faster is not resolved."
    if saved_ns < 0:
        return f"{sentence}; it is {format_time(-saved_ns)} slower than that."
    return f"{sentence}; it is {format_time(saved_ns)} faster than that."


def _say_gain(row: RuntimeRow) -> str:
    return f"gives back {format_time(row.saved_ns or 0.0)}, {_say_latency(row)}"


def _say_latency(row: RuntimeRow) -> str:
    ratio = f"{row.speedup_ratio:.2f}x"
    if row.speedup_interval is not None:
        ratio += "; {:.2f} to {:.2f}".format(*row.speedup_interval)
    return f"{format_time(row.latency_ns)} a call ({ratio})"


def _say_split(row: RuntimeRow) -> str:
    if row.tax_removed_ns is None or row.busy_removed_ns is None:
        return ""
    tax, busy = row.tax_removed_ns, row.busy_removed_ns
    parts = [f"{format_time(abs(tax))} {'less' if tax >= 0 else 'more'} tax",
             f"{format_time(abs(busy))} {'less' if busy >= 0 else 'more'} device time"]  # fmt: skip
    kernels = f" (kernels: {row.difference})" if row.difference else ""
    return f": {' and '.join(parts)}{kernels}"


def _say_pay_back(row: RuntimeRow) -> str:
    seconds = row.preparation.seconds
    if seconds is None or row.calls_to_pay_back is None:
        return ""
    return f"; preparing it takes {seconds:.2g} s, paid back after {row.calls_to_pay_back:,} calls"


def _say_excluded(rows: Sequence[RuntimeRow], best: RuntimeRow | None) -> str:
    """What would have been recommended if its outputs were eager's, on any input, or all its calls
    like most."""
    limit_ns = None if best is None else best.latency_ns
    names: dict[str, list[str]] = {}
    found = [
        row
        for row in rows
        if (row.excluded == row.outputs and not row.outputs_equal)
        or row.excluded.startswith((BAKED, IN_THE_MEAN))
        if row.is_faster and (limit_ns is None or row.latency_ns < limit_ns)
    ]
    for row in found:
        names.setdefault(row.excluded, []).append(row.label)
    if not names:
        return ""
    verb = "is" if len(found) == 1 else "are"
    listed = (f"{', '.join(labels)} ({reason})" for reason, labels in names.items())
    still = "" if best is None else " still"
    return f"Faster{still}, but not recommended, {verb} {', '.join(listed)}."
