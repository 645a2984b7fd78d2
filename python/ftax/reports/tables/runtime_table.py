"""All runtimes of a receipt side by side, fastest first: how fast, why, and at what cost.

Columns for which no row has a value (tax and kernels on a CPU, throughput unless asked for) are
left out.
"""

from __future__ import annotations

from textwrap import indent

from ftax.errors import LEFT_OUT, LONGEST_REASON, cut, shorten
from ftax.ladders.receipt import Receipt, Unavailable
from ftax.ladders.rows import RuntimeRow
from ftax.reports.table import NOTHING, Cell, Rows, say
from ftax.reports.tables.energy_table import format_bytes
from ftax.reports.tables.measurement_table import make_percentile_table
from ftax.timing.candidate import name_caller
from ftax.timing.measurement import format_measured
from ftax.timing.trust import NOT_RESOLVED
from ftax.timing.units import format_interval, format_time

_LONGEST_OUTPUTS = 100  # characters; a warning says more
_TEXT = ("runtime", "called from", "of", "outputs", "kernels against eager's")
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
    latencies = [_describe_latency(row) for row in rows]
    if not receipt.others:
        return [_make_table("Rungs", latencies), percentiles]
    cell = receipt.rungs[0].cell
    title = f"Runtimes of {cell.model}, batch {cell.batch}, fastest first"
    tables = [_make_table(title, latencies)]
    if any(row.kernels is not None or row.issue_ns is not None for row in rows):
        tables.append(_make_table("Why: tax or kernels", [_describe_work(row) for row in rows]))
    costs = _make_table("What preparing them costs", [_describe_preparation(row) for row in rows])
    return [*tables, costs, percentiles]


def make_unavailable_tables(receipt: Receipt) -> list[Rows]:
    """What could not be measured; none if all could."""
    if not receipt.unavailable:
        return []
    cells: dict[str, Cell] = {
        "runtime": "runtime",
        "called from": ("host", name_caller),
        "why": tell_why,
    }
    return [Rows.of("Not measured", receipt.unavailable, cells, text=cells)]


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


def _describe_latency(row: RuntimeRow) -> dict[str, str]:
    rate = row.examples_per_s
    return {
        **_name(row),
        "latency": format_measured(row.measurement),
        "95 % interval": format_interval(row.measurement.interval_ns),
        **_describe_speedup(row),
        "throughput": say(rate, _format_rate),
        **_describe_outputs(row),
    }


def _describe_work(row: RuntimeRow) -> dict[str, str]:
    def format_if_sure(time_ns: float | None) -> str:
        return NOT_RESOLVED if row.doubt and time_ns is not None else say(time_ns, format_time)

    return {
        **_name(row),
        "saved": format_if_sure(row.saved_ns),
        "tax removed": format_if_sure(row.tax_removed_ns),
        "device time removed": say(row.busy_removed_ns, format_time),
        "tax left": format_if_sure(row.tax_left_ns),
        "kernels": say(row.kernels),
        "kernel time": say(row.kernel_ns, format_time),
        "kernels against eager's": row.difference or NOTHING,
        "issue time": say(row.issue_ns, format_time),
    }


def _describe_preparation(row: RuntimeRow) -> dict[str, str]:
    cost, calls = row.preparation, row.calls_to_pay_back
    seconds = NOTHING
    if cost.seconds is not None:
        seconds = f"{cost.seconds:.2g} s{' (cached)' if cost.from_cache else ''}"
    return {
        **_name(row),
        "preparation": seconds,
        "peak host memory": say(cost.peak_host_bytes, format_bytes),
        "peak device memory": say(cost.peak_device_bytes, format_bytes),
        "saves a call": say(row.saved_ns if row.is_faster else None, format_time),
        "paid back after": say(calls, "{:,} calls".format),
    }


def _name(row: RuntimeRow) -> dict[str, str]:
    cell = row.measurement.cell
    return {"runtime": cell.runtime, "called from": name_caller(cell.host)}


def _make_table(title: str, rows: list[dict[str, str]]) -> Rows:
    columns = [name for name in rows[0] if any(row[name] != NOTHING for row in rows)]
    return Rows(
        title=title,
        columns=tuple(columns),
        numeric=tuple(name for name in columns if name not in _TEXT),
        gives_way=tuple(name for name in _GIVE_WAY if name in columns),
        rows=tuple(tuple(row[name] for name in columns) for row in rows),
    )


def _describe_speedup(row: RuntimeRow) -> dict[str, str]:
    """The speed-up, and of what if that is not Python eager."""
    base, interval, ratio = row.baseline, row.speedup_interval, row.speedup_ratio
    told = {"speed-up": NOTHING, "95 % of speed-up": NOTHING, "of": NOTHING}
    if base is None or ratio is None:
        return told
    told["speed-up"] = NOT_RESOLVED if row.doubt else f"{ratio:.2f}x"
    if interval is not None and not row.doubt and base is not row.measurement:
        told["95 % of speed-up"] = "{:.2f} to {:.2f}".format(*interval)
    if row.preparation.baseline:
        told["of"] = row.preparation.baseline
    return told


def _describe_outputs(row: RuntimeRow) -> dict[str, str]:
    """What became of the outputs, and how far they may be from eager's."""
    outputs = cut(row.outputs, _LONGEST_OUTPUTS)
    words, limit = outputs.removeprefix("equal "), NOTHING
    if row.is_reference:
        words = "the reference" if row.outputs_equal else f"its own change: {outputs}"
    elif row.tolerance is not None and row.outputs_equal and words != row.outputs:
        limit = f"{row.tolerance:.0e}"
    return {"outputs": words, "limit": limit}


def _format_rate(rate: float) -> str:
    return f"{rate:,.0f}/s" if rate >= 100 else f"{rate:.3g}/s"
