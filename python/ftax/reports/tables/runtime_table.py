"""All runtimes of a receipt side by side, fastest first: how fast, why, and at what cost.

Columns for which no row has a value (tax and kernels on a CPU, throughput unless asked for) are
left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import indent

from ftax.errors import LEFT_OUT, LONGEST_REASON, cut, shorten
from ftax.ladders.receipt import Receipt, Unavailable
from ftax.ladders.rows import RuntimeRow
from ftax.reports.columns import NOTHING, PLACE, Column, choose, for_programs, or_dash
from ftax.reports.table import Printout, Rows
from ftax.reports.tables.energy_table import format_bytes
from ftax.reports.tables.measurement_table import make_percentile_table
from ftax.runtimes.plugins.conform import Conformance
from ftax.timing.candidate import name_caller
from ftax.timing.measurement import format_measured
from ftax.timing.trust import NOT_RESOLVED
from ftax.timing.units import format_interval, format_time

_LONGEST_OUTPUTS = 100  # characters; a warning says more
_GIVE_WAY = ("limit", "95 % of speed-up", "throughput", "of", "speed-up",
             "kernel time", "issue time", "kernels against eager's", "kernels",
             "peak device memory", "peak host memory")  # fmt: skip


def make_runtime_tables(receipt: Receipt) -> list[Rows]:
    """Latencies; and beside alternatives why they are faster, and what preparing them costs.

    Rungs alone stay in the order of the ladder, and have nothing to be told why.
    """
    rows = list(receipt.runtimes)
    if not receipt.others:
        rows.sort(key=lambda row: receipt.rungs.index(row.measurement))
    percentiles = make_percentile_table([row.measurement for row in rows])
    if not receipt.others:
        return [_make_table("Rungs", rows, _LATENCIES), percentiles]
    cell = receipt.rungs[0].cell
    title = f"Runtimes of {cell.model}, batch {cell.batch}, fastest first"
    tables = [_make_table(title, rows, _LATENCIES)]
    if any(row.kernels is not None or row.issue_ns is not None for row in rows):
        tables.append(_make_table("Why: tax or kernels", rows, _WORK))
    costs = _make_table("What preparing them costs", rows, _COSTS)
    return [*tables, costs, percentiles]


def _make_table(title: str, rows: list[RuntimeRow], columns: Sequence[Column]) -> Rows:
    used = [column for column in columns if any(column.write(row) != NOTHING for row in rows)]
    return Rows.of_columns(title, rows, used, gives_way=_GIVE_WAY)


def make_unavailable_tables(receipt: Receipt) -> list[Rows]:
    """What could not be measured; none if all could."""
    if not receipt.unavailable:
        return []
    columns = [*PLACE, Column("why", tell_why, is_text=True)]
    return [Rows.of_columns("Not measured", receipt.unavailable, columns)]


def tell_why(missing: Unavailable) -> str:
    """Its reason, of a record of any age in a few lines."""
    return shorten(missing.reason, LONGEST_REASON)


def say_where_errors_are(receipt: Receipt) -> tuple[str, ...]:
    """That there is more of an error than its line in the table; () if there is not."""
    if not any(item.error and item.reason.count(LEFT_OUT) for item in receipt.unavailable):
        return ()
    return ("All of an error is in the record (--json FILE): ftax show FILE --all.", "")


def show_adoption(receipt: Receipt) -> tuple[str, ...]:
    """The lines of code that adopt what is advised, apart from the sentences above them."""
    return ("", indent(receipt.adoption, "    ")) if receipt.adoption else ()


def draw_conformance(found: Conformance) -> Printout:
    """What `ftax conform` found of a runtime, a row a check. What to do about it stands below: a
    library for another model fails most checks for one reason."""
    cells = {"check": "name", "result": "status", "why": "reason"}
    return Printout(tables=(Rows.of(found.describe(), found.findings, cells, text=cells),))


def _say_speedup(row: RuntimeRow) -> str | None:
    if row.baseline is None or row.speedup_ratio is None:
        return None
    return NOT_RESOLVED if row.doubt else f"{row.speedup_ratio:.2f}x"


def _say_speedup_interval(row: RuntimeRow) -> str | None:
    ends = row.speedup_interval
    if _say_speedup(row) is None or ends is None or row.doubt or row.baseline is row.measurement:
        return None
    return "{:.2f} to {:.2f}".format(*ends)


def _say_baseline(row: RuntimeRow) -> str | None:
    """What the speed-up is of, if that is not Python eager."""
    return None if _say_speedup(row) is None else row.preparation.baseline or None


def _say_outputs(row: RuntimeRow) -> str:
    """What became of the outputs."""
    outputs = cut(row.outputs, _LONGEST_OUTPUTS)
    if row.is_reference:
        return "the reference" if row.outputs_equal else f"its own change: {outputs}"
    return outputs.removeprefix("equal ")


def _say_limit(row: RuntimeRow) -> str | None:
    """How far equal outputs may be from eager's."""
    is_limited = row.outputs_equal and row.outputs.startswith("equal ")
    if row.is_reference or row.tolerance is None or not is_limited:
        return None
    return f"{row.tolerance:.0e}"


def _say_preparation(row: RuntimeRow) -> str | None:
    cost = row.preparation
    if cost.seconds is None:
        return None
    return f"{cost.seconds:.2g} s{' (cached)' if cost.from_cache else ''}"


def _format_rate(rate: float) -> str:
    return f"{rate:,.0f}/s" if rate >= 100 else f"{rate:.3g}/s"


def _make_unsure(head: str, key: str) -> Column:
    """A time that is not told where the latency is not resolved."""

    def write(row: RuntimeRow) -> str | None:
        time_ns = getattr(row, key)
        return NOT_RESOLVED if row.doubt and time_ns is not None else or_dash(time_ns, format_time)

    return Column(head, write, key, key)


ROW = (
    Column("speed-up", _say_speedup, "speedup_ratio", "speedup_ratio"),
    _make_unsure("saved", "saved_ns"),
    Column("outputs", _say_outputs, "outputs", "outputs", is_text=True),
    *for_programs("outputs_equal"),
    Column("limit", _say_limit, "tolerance", "tolerance"),
    Column("kernels", "kernels", "kernels"),
    Column("kernel time", ("kernel_ns", format_time), "kernel_ns"),
    *for_programs("busy_ns"),
    Column("issue time", ("issue_ns", format_time), "issue_ns"),
    _make_unsure("tax left", "tax_left_ns"),
    _make_unsure("tax removed", "tax_removed_ns"),
    Column("device time removed", ("busy_removed_ns", format_time), "busy_removed_ns"),
    Column("throughput", ("examples_per_s", _format_rate), "examples_per_s"),
    Column("paid back after", ("calls_to_pay_back", "{:,} calls".format), "calls_to_pay_back"),
    Column(
        "95 % of speed-up",
        _say_speedup_interval,
        ("speedup_low", "speedup_high"),
        "speedup_interval",
    ),
    *for_programs(saved_low_ns="saved_interval_ns.0", saved_high_ns="saved_interval_ns.1"),
    # For people alone:
    Column("runtime", "measurement.cell.runtime", is_text=True),
    Column("called from", ("measurement.cell.host", name_caller), is_text=True),
    Column("latency", ("measurement", format_measured)),
    Column("95 % interval", ("measurement.interval_ns", format_interval)),
    Column("of", _say_baseline, is_text=True),
    Column("kernels against eager's", lambda row: row.difference or None, is_text=True),
    Column("saves a call", (lambda row: row.saved_ns if row.is_faster else None, format_time)),
)
PREPARATION = (
    Column("preparation", _say_preparation, "preparation_s", "preparation.seconds"),
    Column(
        "peak host memory", ("preparation.peak_host_bytes", format_bytes), "preparation_host_bytes"
    ),
    Column(
        "peak device memory",
        ("preparation.peak_device_bytes", format_bytes),
        "preparation_device_bytes",
    ),
    *for_programs(from_cache="preparation.from_cache"),
)
_NAMES = choose(ROW, "runtime", "called from")
_LATENCIES = [
    *_NAMES,
    *choose(ROW, "latency", "95 % interval", "speed-up", "95 % of speed-up", "of", "throughput"),
    *choose(ROW, "outputs", "limit"),
]
_WORK = [
    *_NAMES,
    *choose(ROW, "saved", "tax removed", "device time removed", "tax left", "kernels"),
    *choose(ROW, "kernel time", "kernels against eager's", "issue time"),
]
_COSTS = [*_NAMES, *PREPARATION, *choose(ROW, "saves a call", "paid back after")]
