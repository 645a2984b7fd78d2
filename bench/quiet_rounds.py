"""What leaving out the rounds in which the host was disturbed does to receipts that are on record.

The latency of Python eager and its interval, once with all rounds and once with those that count,
for each receipt of a results file, and how many cycles of the host's core it is. The surprising
choice: nothing is measured. The samples of a record can be counted either way, on any machine.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ftax import Receipt
from ftax.timing.measurement import Measurement
from record import RESULTS, Figure, finish, make_parser, show

_COLUMNS = (
    *("receipt", "rounds", "count", "all, us", "+-%", "that count, us", "+-%"),
    *("host core, GHz", "million cycles"),
)


def find_receipts(path: Path, begun: str) -> list[Receipt]:
    """Those whose rounds began at a time (UTC) that starts with ``begun``."""
    found = [
        receipt
        for receipt in Receipt.load(path)
        if receipt.rungs[0].conditions[0].utc.startswith(begun)
    ]
    if not found:
        sys.exit(f"quiet_rounds: no receipt of {path.name} began at {begun!r}: give --begun a date")
    return found


def find_half_width(measurement: Measurement) -> float:
    """In percent of the latency."""
    if measurement.interval_ns is None:
        return float("nan")
    low, high = measurement.interval_ns
    return 50 * (high - low) / measurement.latency_ns


def count_both_ways(receipts: Sequence[Receipt]) -> list[tuple[Measurement, Measurement]]:
    """Python eager of each receipt: with all rounds, and with those that count."""
    tops = [receipt.rungs[0] for receipt in receipts]
    return [(replace(top, counted="all"), replace(top, counted="quiet")) for top in tops]


def make_row(every: Measurement, quiet: Measurement) -> tuple[str, ...]:
    """Of the table."""
    cell = every.cell
    return (
        f"{cell.model}, {cell.dtype}, batch {cell.batch}",
        str(len(every.values_ns)),
        str(len(quiet.values_ns)),
        *(
            text
            for found in (every, quiet)
            for text in (f"{found.latency_ns / 1e3:.0f}", f"{find_half_width(found):.1f}")
        ),
        "-" if quiet.core_hz is None else f"{quiet.core_hz / 1e9:.2f}",
        "-" if quiet.core_hz is None else f"{quiet.core_hz * quiet.latency_ns / 1e15:.1f}",
    )


def main() -> None:
    """Print the table, save the record."""
    parser = make_parser(__doc__)
    parser.add_argument("--records", type=Path, default=RESULTS / "gpu_receipts_records.jsonl")
    parser.add_argument("--begun", default="", help="only receipts of this time: 2026-11-22T11")
    options = parser.parse_args()
    pairs = count_both_ways(find_receipts(options.records, options.begun))
    show("Python eager, counted both ways", _COLUMNS, [make_row(*pair) for pair in pairs])
    figures = [
        Figure(
            name=f"half-width of eager, {name}",
            values=tuple(find_half_width(pair[place]) for pair in pairs),
            unit="% of the latency",
        )
        for place, name in enumerate(("all rounds", "rounds that count"))
    ]
    raw = [
        {
            "cell": every.cell.to_dict(),
            "core_hz": every.core_hz,
            **{
                name: {"rounds": len(found.values_ns), "latency_ns": found.latency_ns,
                       "interval_ns": found.interval_ns}
                for name, found in (("all", every), ("quiet", quiet))
            },
        }
        for every, quiet in pairs
    ]  # fmt: skip
    finish(__file__, options, figures, raw=raw, environment=pairs[0][0].environment.to_dict())


if __name__ == "__main__":
    main()
