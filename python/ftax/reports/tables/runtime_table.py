"""All runtimes of a receipt side by side, fastest first: how fast, why, and at what cost.

Columns for which no row has a value (tax and kernels on a CPU, throughput unless asked for) are
left out.
"""

from __future__ import annotations

from rich.console import Group, RenderableType

from ftax.ladders.receipt import Receipt
from ftax.ladders.rows import RuntimeRow
from ftax.ladders.runtime_comparison import RuntimeComparison
from ftax.reports.table import Rows
from ftax.reports.tables.energy_table import format_bytes
from ftax.reports.terminal import plain
from ftax.timing.trust import NOT_RESOLVED
from ftax.timing.units import format_interval, format_latency, format_time

_NOTHING = "-"
_TEXT = ("runtime", "host", "outputs", "kernels against eager's", "95 % interval")


def make_runtime_tables(receipt: Receipt) -> list[Rows]:
    """Latencies; and beside alternatives why they are faster, and what preparing them costs.

    Rungs alone stay in the order of the ladder, and have nothing to be told why.
    """
    rows = list(receipt.runtimes)
    if not receipt.others:
        rows.sort(key=lambda row: receipt.rungs.index(row.measurement))
        return [_make_table("Rungs", [_describe_latency(row) for row in rows])]
    cell = receipt.rungs[0].cell
    title = f"Runtimes of {cell.model}, batch {cell.batch}, fastest first"
    tables = [_make_table(title, [_describe_latency(row) for row in rows])]
    if any(row.kernels is not None or row.issue_ns is not None for row in rows):
        tables.append(_make_table("Why: tax or kernels", [_describe_work(row) for row in rows]))
    title = "What preparing them costs"
    return [*tables, _make_table(title, [_describe_preparation(row) for row in rows])]


def make_unavailable_table(receipt: Receipt) -> Rows | None:
    """What could not be measured; None if all could."""
    if not receipt.unavailable:
        return None
    return Rows(
        title="Not measured",
        columns=("runtime", "host", "why"),
        numeric=(),
        rows=tuple((u.runtime, u.host, u.reason) for u in receipt.unavailable),
    )


def render_comparison(comparison: RuntimeComparison) -> RenderableType:
    """What `ftax.compare_runtimes` gives, for a terminal."""
    return render_runtimes(comparison.receipt)


def render_runtimes(receipt: Receipt) -> RenderableType:
    """The comparison without the ladder, for a terminal."""
    tables = make_runtime_tables(receipt)
    unavailable = make_unavailable_table(receipt)
    parts: list[RenderableType] = [table.to_rich() for table in tables]
    if unavailable is not None:
        parts.append(unavailable.to_rich())
    parts.append(plain(receipt.recommendation))
    parts += [plain(f"! {warning}", "yellow") for warning in receipt.collect_warnings()]
    return Group(*parts)


def _describe_latency(row: RuntimeRow) -> dict[str, str]:
    summary, rate = row.measurement.summary, row.examples_per_s
    return {
        **_name(row),
        "latency": format_latency(row.latency_ns, row.measurement.doubt),
        "95 % interval": format_interval(row.measurement.interval_ns),
        "p50": format_time(summary.p50_ns),
        "p90": format_time(summary.p90_ns),
        "p99": format_time(summary.p99_ns),
        "speed-up": _format_speedup(row),
        "throughput": _NOTHING if rate is None else f"{_format_rate(rate)}/s",
        "outputs": _format_outputs(row),
    }


def _describe_work(row: RuntimeRow) -> dict[str, str]:
    def format_if_sure(time_ns: float | None) -> str:
        return NOT_RESOLVED if row.doubt and time_ns is not None else _format_time(time_ns)

    return {
        **_name(row),
        "saved": format_if_sure(row.saved_ns),
        "tax removed": format_if_sure(row.tax_removed_ns),
        "device time removed": _format_time(row.busy_removed_ns),
        "tax left": format_if_sure(row.tax_left_ns),
        "kernels": _NOTHING if row.kernels is None else str(row.kernels),
        "kernel time": _format_time(row.kernel_ns),
        "kernels against eager's": row.difference or _NOTHING,
        "issue time": _format_time(row.issue_ns),
    }


def _describe_preparation(row: RuntimeRow) -> dict[str, str]:
    cost, calls = row.preparation, row.calls_to_pay_back
    seconds = _NOTHING
    if cost.seconds is not None:
        seconds = f"{cost.seconds:.2g} s{' (cached)' if cost.from_cache else ''}"
    return {
        **_name(row),
        "preparation": seconds,
        "peak host memory": _format_bytes(cost.peak_host_bytes),
        "peak device memory": _format_bytes(cost.peak_device_bytes),
        "saves a call": _format_time(row.saved_ns if row.is_faster else None),
        "paid back after": _NOTHING if calls is None else f"{calls:,} calls",
    }


def _name(row: RuntimeRow) -> dict[str, str]:
    return {"runtime": row.measurement.cell.runtime, "host": row.measurement.cell.host}


def _make_table(title: str, rows: list[dict[str, str]]) -> Rows:
    columns = [name for name in rows[0] if any(row[name] != _NOTHING for row in rows)]
    return Rows(
        title=title,
        columns=tuple(columns),
        numeric=tuple(name for name in columns if name not in _TEXT),
        rows=tuple(tuple(row[name] for name in columns) for row in rows),
    )


def _format_speedup(row: RuntimeRow) -> str:
    if row.baseline is None or row.speedup_ratio is None:
        return _NOTHING
    if row.doubt:
        return NOT_RESOLVED
    if row.baseline is row.measurement:
        return f"{row.speedup_ratio:.2f}x"
    text = f"{row.speedup_ratio:.2f}x"
    if row.speedup_interval is not None:
        text += " ({:.2f} to {:.2f})".format(*row.speedup_interval)
    baseline = row.preparation.baseline
    return f"{text} of {baseline}" if baseline else text


def _format_outputs(row: RuntimeRow) -> str:
    if row.is_top:
        return "the reference" if row.outputs_equal else f"its own change: {row.outputs}"
    if row.tolerance is None or not row.outputs_equal or row.outputs.startswith("bitwise equal"):
        return row.outputs
    return f"{row.outputs} (limit {row.tolerance:.0e})"


def _format_time(time_ns: float | None) -> str:
    return _NOTHING if time_ns is None else format_time(time_ns)


def _format_bytes(count: int | None) -> str:
    return _NOTHING if count is None else format_bytes(count)


def _format_rate(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"
