"""Tables of traces: the numbers in them, and columns only where there is something to say."""

from ftax.instruments.trace.kernel_set import KernelSet
from ftax.instruments.trace.timeline import compute_timeline
from ftax.reports.tables.timeline_table import make_kernel_table, make_timeline_table
from support.traces import make_kernel, make_repeated_trace, make_trace


def test_a_timeline_is_a_row():
    table = make_timeline_table([compute_timeline(make_repeated_trace("a", "b"))])
    assert dict(zip(table.columns, table.rows[0], strict=True)) == {
        "rung": "mlp eager/cpp cuda",
        "wall": "990 ns",
        "device busy": "100 ns",
        "before first": "90 ns",
        "host late": "30 ns",
        "between": "20 ns",
        "tail": "750 ns",
        "busy share": "10.1%",
    }


def test_without_api_calls_idle_time_has_one_column_that_says_why():
    trace = make_trace(kernels=(make_kernel(1100, 1200), make_kernel(1300, 1400)))
    table = make_timeline_table([compute_timeline(trace)])
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert row["idle, no API calls"] == "100 ns"
    assert "host late" not in row
    assert "between" not in row


def test_top_kernels_have_count_total_mean_and_share():
    kernels = KernelSet.of(make_repeated_trace("a", "b", "a"))
    table = make_kernel_table(kernels, limit=1)
    assert table.rows == (("a [grid 2x1x1, block 32x1x1]", "2", "100 ns", "50 ns", "66.7%"),)
    assert "150 ns an iteration" in table.title
