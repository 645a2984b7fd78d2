"""Times for people.

Times are nanoseconds below a microsecond, microseconds below ten milliseconds, milliseconds above;
three digits. Both ends of an interval have the unit of the longer one, which is written once.
"""

from __future__ import annotations

from ftax.timing.trust import NOT_RESOLVED

_UNITS = (("ns", 1.0, 1e3), ("us", 1e3, 1e7), ("ms", 1e6, float("inf")))  # name, ns, up to ns


def choose_unit(time_ns: float) -> tuple[str, float]:
    """The unit of a time and its length in ns, ``('us', 1e3)``."""
    unit, unit_ns, _ = next((unit for unit in _UNITS if abs(time_ns) < unit[2]), _UNITS[-1])
    return unit, unit_ns


def format_time(time_ns: float, like_ns: float | None = None) -> str:
    """``'12.3 us'``, ``'143 ms'``; in the unit of ``like_ns``, if one is given."""
    unit, unit_ns = choose_unit(time_ns if like_ns is None else like_ns)
    value = time_ns / unit_ns
    if unit == "ns" or abs(value) >= 999.5:  # which three digits would write as 1e+03
        return f"{value:,.0f} {unit}"
    return f"{value:.3g} {unit}"


def format_latency(
    time_ns: float, doubt: str, disturbance: str = "", *, like_ns: float | None = None
) -> str:
    """``'12.3 us'``, or ``'12.3 us, not resolved'``; the doubt itself is said below the table."""
    mark = f", {NOT_RESOLVED}" if doubt else ", disturbed" if disturbance else ""
    return format_time(time_ns, like_ns) + mark


def name_interval(confidence: float) -> str:
    """``"95% interval"``, with as many digits as it takes: 99.9999 is not 100."""
    return f"{100 * confidence:.8g}% interval"


def format_interval(interval_ns: tuple[float, ...] | None) -> str:
    """``'11.9 to 12.8 us'``, or a dash where there is none."""
    if interval_ns is None:
        return "-"
    low, high = interval_ns
    largest = max(abs(low), abs(high))
    return f"{format_time(low, largest).rpartition(' ')[0]} to {format_time(high, largest)}"
