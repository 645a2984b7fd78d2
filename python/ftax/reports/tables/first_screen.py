"""What a receipt says on one screen: the answer, a bar a line, what gives it back, what to paste.

A number that is not resolved is a question mark, and one sentence above all says why and what to
do. The rest is in `draw_receipt`, which ``--all`` prints.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import indent

from ftax.errors import cut, say_count
from ftax.ladders.advice import compute_tax_share, find_code, list_adoptable
from ftax.ladders.lines import Line
from ftax.ladders.receipt import Receipt
from ftax.ladders.rows import RuntimeRow
from ftax.reports.columns import Cell as Written
from ftax.reports.table import Printout, Rows
from ftax.reports.tables.one_reason import say_reason
from ftax.reports.tables.receipt_table import (
    count_items,
    is_call,
    list_threads,
    name_work,
    number_receipt,
    say_again,
)
from ftax.sweeps.side_by_side import name_device
from ftax.timing.candidate import Place
from ftax.timing.cell import Cell
from ftax.timing.measurement import Measurement, describe_page_faults
from ftax.timing.units import choose_unit, format_time

_UNKNOWN = "?"
_BAR = 20  # columns of the longest bar
_MOST_ROWS = 5  # of a table of runtimes
_MOST_WITH_LEGEND = 3  # of them, where lines are explained
_MOST_CODE = 9  # lines that are pasted from the first screen
_NEXT_TO_NO_LONGER = 1.1  # times the fastest
_LONGEST_REASON = 100  # characters of why a runtime is not advised
_LONGEST_REFUSAL = 400  # of why a capture refuses
_MEASURE_IT = "; --runtimes capture measures what ftax.capture gives of that"
_NOTHING = "Nothing that was measured gives it back: no runtime is right and surely faster."
# What people write, of the runtimes that are known by another name than ours.
_WRITTEN = {
    "aoti": "AOTInductor",
    "capture": "ftax.capture",
    "compile": "torch.compile",
    "compile-max-autotune": 'torch.compile(mode="max-autotune-no-cudagraphs")',
    "compile-reduce-overhead": 'torch.compile(mode="reduce-overhead")',
    "eager-channels-last": "channels_last",
    "eager-one-thread": "torch.set_num_threads(1)",
    "torchscript": "torch.jit.trace",
    "torchscript-frozen": "torch.jit.freeze",
}


def draw_receipt_first(
    receipt: Receipt, *, saved: str = "", more: str = "print(receipt.details)", legend: bool = False
) -> Printout:
    """The first screen of a receipt: ``saved`` says where it is, ``more`` what shows all of it, and
    ``legend`` whether lines are explained."""
    gains, adoptable = _list_gains(receipt), list_adoptable(receipt)
    pasted = _choose_pasted(adoptable)
    most = _MOST_WITH_LEGEND if legend else _MOST_ROWS
    is_fastest = adoptable[:1] in ([], [pasted])
    hidden = [
        "" if is_fastest else f"the code for {_name(adoptable[0].measurement.place)}",
        f"{len(gains) - most} more runtimes" if len(gains) > most else "",
        *("rungs", "percentiles", "evidence" if receipt.evidence else "", "costs"),
    ]
    notes = len(receipt.collect_warnings()) + len(receipt.unavailable)
    return Printout(
        head=(
            *say_reason(receipt),
            *say_again(receipt),
            _make_title(receipt),
            say_answer(receipt),
        ),
        tables=(
            *_draw_lines(receipt),
            *_draw_gains(_cut(gains, most, pasted), receipt.rungs[0].cell, receipt.latency_ns),
        ),
        notes=(
            *_list_notes(receipt, gains),
            *_say_left_out(pasted),
            *_paste(pasted, is_fastest),
            *(_explain(receipt) if legend else ()),
            _say_more(saved, more, hidden, notes),
        ),
        numbers=lambda: number_receipt(receipt),
    )


# --- the answer -----------------------------------------------------------------------------------


def say_answer(found: Receipt) -> str:
    """How long a call takes, and how much of that is not the work that was asked for."""
    top = found.rungs[0]
    each = top.cell.units
    whole = f"{format_time(found.latency_ns)} a {_name_run(top.cell)}"
    if each > 1:
        whole += f" ({format_time(found.latency_ns / each)} a {top.cell.unit})"
    if top.long_run_ns != top.latency_ns:
        whole += f", {format_time(top.long_run_ns)} in the mean: some are slow"
    if top.doubt:
        return f"About {whole}"
    told = "" if found.work_problem else _say_share(found)
    return f"{whole}{', ' if told else ''}{told}"


def _say_share(found: Receipt) -> str:
    """``'of which 85 % (85 to 85) are not the GPU's work'``; "" if that is not known."""
    share, what = compute_tax_share(found), "are not the GPU's work"
    if share is not None and found.lines[-1].doubt:
        return ""
    if share is None:
        share, what = _compute_share_above(found)
    if share is None:
        return ""
    ratio, low, high = (f"{100 * value:.0f}" for value in share)
    if share[1] <= 0:
        return f"of which at most {high} % {what}" if share[2] < 1 else ""
    return f"of which {ratio} % ({low} to {high}) {what}"


def _compute_share_above(found: Receipt) -> tuple[tuple[float, float, float] | None, str]:
    """Without busy time: the share of Python, or else of all that is above the last line."""
    rungs, without = found.rungs, found.ladder.without_python
    places = [rung.place for rung in rungs]
    last = places.index(without) if without in places else len(rungs) - 1
    if last == 0 or rungs[last].doubt:
        return None, ""
    time_ns, interval = found.compute_step(0, last)
    if interval is None or interval[1] <= 0:
        return None, ""
    what = "is Python" if without in places else f"is not {found.lines[-1].name}"
    total_ns = found.latency_ns
    return (time_ns / total_ns, interval[0] / total_ns, interval[1] / total_ns), what


def _name_run(cell: Cell) -> str:
    """``'call'`` of a forward pass or a function, ``'step'``, ``'step of 8 tokens'``."""
    if is_call(cell):
        return "call"
    return f"step of {cell.units} {cell.unit}s" if cell.units > 1 else "step"


def _make_title(receipt: Receipt) -> str:
    cell = receipt.rungs[0].cell
    sizes = " x ".join(filter(None, [f"batch {cell.batch}", count_items(cell)]))
    name = f"{receipt.label}: " * bool(receipt.label) + name_work(cell, cell.model)
    return "  ".join([name, *_list_setting(receipt.rungs[0], sizes)])


def _list_setting(top: Measurement, *sizes: str) -> list[str]:
    """Device, dtype, sizes, threads, and the machine."""
    cell = top.cell
    device, torch = name_device(top.environment), top.environment.software.torch
    for name in ("(R)", "(TM)", " CPU", " Processor"):
        device = device.replace(name, "")
    machine = f"{device.partition(' @')[0]}, torch {torch.partition('+')[0]}"
    return [cell.device, cell.dtype, *sizes, *list_threads(top), machine]


# --- the ladder -----------------------------------------------------------------------------------


def _draw_lines(found: Receipt) -> Iterator[Rows]:
    """A bar a line; none where there is one alone, of work that cannot be taken apart."""
    if len(found.lines) == 1:
        return
    longest = max(line.time_ns for line in found.lines)
    rows = [_draw_line(line, found.latency_ns, longest) for line in found.lines]
    if found.loader_ns and not found.rungs[0].doubt:
        share = f"{100 * found.loader_ns / found.latency_ns:.0f} %"
        rows.append(("+ loader", format_time(found.loader_ns, found.latency_ns), share, ""))
    yield Rows(
        columns=("line", "time", "share", "bar"),
        numeric=("time", "share"),
        gives_way=("bar",),
        rows=tuple(rows),
        look="bare",
    )


def _draw_line(line: Line, total_ns: float, longest_ns: float) -> tuple[str, str, str, str]:
    if not line.resolved:
        return line.name, _UNKNOWN, _UNKNOWN, ""
    bar = "#" * max(1, round(_BAR * line.time_ns / longest_ns))
    return line.name, format_time(line.time_ns, total_ns), f"{100 * line.share_ratio:.0f} %", bar


def _explain(found: Receipt) -> tuple[str, ...]:
    if len(found.lines) == 1:
        return ()
    told = "; ".join(f"{line.name} = {line.removes}" for line in found.lines)
    return (f"The lines: {told}. (Told once; --all repeats it.)", "")


# --- what gives it back ---------------------------------------------------------------------------


def _list_gains(receipt: Receipt) -> list[RuntimeRow]:
    """What is faster for certain and right, fastest first, without instruments; each runtime once:
    as Python calls it, if that is faster too."""
    found: dict[str, RuntimeRow] = {}
    for row in _list_right(receipt):
        place = row.measurement.place
        if not row.is_rung and (place.runtime not in found or place.host == "python"):
            found[place.runtime] = row
    return sorted(found.values(), key=lambda row: row.latency_ns)


def _list_right(receipt: Receipt) -> list[RuntimeRow]:
    """What is faster for certain and gives the model's outputs, rungs too; fastest first."""
    return [row for row in receipt.runtimes if row.is_faster and not row.excluded]


def _cut(gains: Sequence[RuntimeRow], most: int, pasted: RuntimeRow | None) -> list[RuntimeRow]:
    """So many of the fastest, that whose code is pasted among them."""
    named = [row for row in gains[most:] if pasted and row.label == pasted.label]
    return [*gains[: most - len(named)], *named]


def _draw_gains(gains: Sequence[RuntimeRow], cell: Cell, like_ns: float) -> Iterator[Rows]:
    if not gains:
        return
    cells: dict[str, Written] = {
        "What gives it back": lambda row: _name(row.measurement.place),
        f"{choose_unit(like_ns)[0]} a {_name_run(cell).split()[0]}": lambda row: _drop_unit(
            row.latency_ns, like_ns
        ),
        "times": lambda row: _say_times(row.speedup_ratio),
        "outputs": lambda row: row.outputs.removeprefix("equal ").partition(",")[0],
    }
    if any(row.preparation.seconds is not None for row in gains):
        cells["ready in"] = (
            "preparation.seconds",
            lambda time_s: f"{time_s:.{int(time_s < 10)}f} s",
        )
    yield Rows.of(
        "",
        gains,
        cells,
        text=("What gives it back", "outputs"),
        gives_way=("ready in", "outputs"),
        look="light",
    )


def _name(place: Place) -> str:
    name = _WRITTEN.get(place.runtime, place.runtime)
    return name if place.host == "python" else f"{name}, called from C++"


def _drop_unit(time_ns: float, like_ns: float) -> str:
    return format_time(time_ns, like_ns).rpartition(" ")[0]


def _list_notes(found: Receipt, gains: Sequence[RuntimeRow]) -> Iterator[str]:
    """Notes below the tables, with an empty line after each."""
    is_known = not found.rungs[0].doubt and not found.work_problem
    notes = [
        _say_stand_in(found) if is_known and not gains and len(found.lines) > 1 else "",
        _say_wrong(found) if is_known else "",
        _say_refusal(gains, found),
        *(f"{text[0].upper()}{text[1:]}." for text in describe_page_faults(found.rungs[:1])),
    ]
    for note in filter(None, notes):
        yield note
        yield ""


def _say_wrong(found: Receipt) -> str:
    """The first of the runtimes that are faster, but not right."""
    for row in found.runtimes:
        if row.is_faster and row.excluded and not row.is_rung and not row.preparation.baseline:
            name, times = _name(row.measurement.place), _say_times(row.speedup_ratio)
            reason = cut(row.excluded, _LONGEST_REASON)
            return f"Faster, but not advised: {name}, {times} ({reason})."
    return ""


def _say_stand_in(found: Receipt) -> str:
    """What a capture would give, if none was measured; or that there is nothing."""
    ladder = found.ladder
    places = set(ladder.stand_ins).intersection(ladder.places)
    best = next((row for row in _list_right(found) if row.measurement.place in places), None)
    if best is None or any(item.place.runtime == "capture" for item in found.others):
        return _NOTHING
    missing = {item.runtime for item in found.unavailable if item.error}
    told = "" if "capture" in missing else _MEASURE_IT
    return (
        f"The same work without Python takes {format_time(best.latency_ns)} "
        f"({_say_times(best.speedup_ratio)}){told}."
    )


def _say_refusal(gains: Sequence[RuntimeRow], receipt: Receipt) -> str:
    """Where nothing gives it back, why a capture does not; or why nothing is taken apart. With what
    to change."""
    reasons: dict[Place | None, str] = {item.place: item.reason for item in receipt.unavailable}
    tried = {item.place: item.reason for item in receipt.unavailable if item.error}
    tape = reasons.get(receipt.ladder.without_python, "")
    capture = tried.get(Place(runtime="capture", host="python"), "")
    if len(receipt.lines) == 1 and tape:
        return f"Nothing is taken apart: {_drop_name(tape)}."
    return f"ftax.capture refuses it: {_drop_name(capture)}." if capture and not gains else ""


def _drop_name(reason: str) -> str:
    """A reason without ``cannot capture Net: `` before it."""
    told = reason.partition(": ")[2] if reason.startswith("cannot ") else reason
    return cut(told, _LONGEST_REFUSAL)


def _say_left_out(row: RuntimeRow | None) -> Iterator[str]:
    """What the code that is pasted does not do though the model does, in a capture's warning."""
    for text in row.measurement.warnings if row is not None else ():
        if text.startswith("replays of the capture"):
            yield f"{text[0].upper()}{text[1:]}."
            yield ""


def _say_times(ratio: float | None) -> str:
    ratio = ratio or 1.0
    return f"{ratio:.{int(ratio < 10)}f}x"


def _choose_pasted(rows: Sequence[RuntimeRow]) -> RuntimeRow | None:
    """The fastest whose code is short; a capture if it takes next to no longer, since its bits are
    eager's, and other shapes need no other code."""
    short = [row for row in rows if len(find_code(row, brief=True).splitlines()) <= _MOST_CODE]
    limit_ns = _NEXT_TO_NO_LONGER * min((row.latency_ns for row in short), default=0.0)
    captures = [row for row in short if row.measurement.place.runtime == "capture"]
    return next((row for row in captures if row.latency_ns <= limit_ns), next(iter(short), None))


def _paste(row: RuntimeRow | None, is_fastest: bool) -> tuple[str, ...]:
    if row is None:
        return ()
    what = "" if is_fastest else f" ({_name(row.measurement.place)})"
    return (f"Paste{what}:", indent(find_code(row, brief=True), "    "), "")


# --- the rest -------------------------------------------------------------------------------------


def _say_more(saved: str, more: str, hidden: Sequence[str], notes: int) -> str:
    """``'Saved in receipt.jsonl. ftax show --all: rungs, evidence, costs (2 notes)'``."""
    told = f"{more}: {', '.join(filter(None, hidden))}"
    return f"{saved} {told}".strip() + (f" ({say_count(notes, 'note')})" if notes else "")
