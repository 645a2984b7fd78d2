"""Times for people: microseconds below a tenth of a second, milliseconds above, three digits."""

from __future__ import annotations


def format_time(time_ns: float) -> str:
    """``'12.3 us'``, ``'143 ms'``."""
    sign, size = ("-" if time_ns < 0 else ""), abs(time_ns)
    if size < 1e3:
        return f"{sign}{size:.0f} ns"
    value, unit = (size / 1e3, "us") if size < 1e7 else (size / 1e6, "ms")
    if value >= 1e3:
        return f"{sign}{value:,.0f} {unit}"
    return f"{sign}{value:.3g} {unit}"


def format_interval(interval_ns: tuple[float, ...] | None) -> str:
    """``'11.9 us to 12.8 us'``, or a dash where there is none."""
    if interval_ns is None:
        return "-"
    return f"{format_time(interval_ns[0])} to {format_time(interval_ns[1])}"
