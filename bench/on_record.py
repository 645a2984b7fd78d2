"""What receipts that are on record say of rounds and hosts; nothing is measured.

``spread``: of each cell the least, the middle and the largest total among its receipts, and the
line of the middle one. ``settling``: the first requests of a round against the later ones, for each
rung. ``quiet``: Python eager with all rounds and with those in which the host was not disturbed.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace

from ftax import Receipt
from ftax.timing.measurement import Measurement
from record import Figure, figure, finish, make_parser, read_receipts, show

_PLACES = 3  # of a round, compared with all that follow
_HOSTS = {"python": "Python", "cpp": "C++"}


def show_spread(receipts: Sequence[Receipt]) -> None:
    """A row a cell; of an even number of receipts the middle one is the smaller of the two."""
    cells: dict[str, list[tuple[float, int]]] = {}
    for line, receipt in enumerate(receipts, 1):
        cell = receipt.rungs[0].cell
        label = f"{cell.model}, {cell.dtype}, {cell.batch}"
        cells.setdefault(label, []).append((receipt.latency_ns / 1e6, line))
    rows = []
    for label, totals in cells.items():
        middle_ms, line = statistics.median_low(totals)
        least, most = min(totals)[0], max(totals)[0]
        rows.append((label, str(len(totals)), f"{least:.2f}", f"{middle_ms:.2f}", str(line),
                     f"{most:.2f}", f"{most / least:.2f}"))  # fmt: skip
    columns = ("model, dtype, batch", "receipts", "least, ms", "middle", "its line", "most",
               "most / least")  # fmt: skip
    show("receipts on record", columns, rows)


def compare_places(measurement: Measurement) -> list[float] | None:
    """By how many percent the first samples of a round take longer than those after them, in the
    median over rounds; None if rounds are too short to tell."""
    rounds = measurement.samples_ns
    length = min(map(len, rounds))
    if length <= _PLACES:
        return None
    middle = [statistics.median(samples[place] for samples in rounds) for place in range(length)]
    settled = statistics.median(middle[_PLACES:])
    return [100 * (value / settled - 1) for value in middle[:_PLACES]]


def show_settling(receipts: Sequence[Receipt]) -> list[Figure]:
    """A row a rung: medians over receipts."""
    found: dict[str, list[list[float]]] = {}
    for rung in (rung for receipt in receipts for rung in receipt.rungs):
        if (excess := compare_places(rung)) is not None:
            name = f"{rung.cell.runtime}, {_HOSTS[rung.cell.host]}"
            found.setdefault(name, []).append(excess)
    columns = {name: list(zip(*excesses, strict=True)) for name, excesses in found.items()}
    rows = [
        (name, str(len(found[name])), *(f"{statistics.median(values):+.1f}" for values in places))
        for name, places in columns.items()
    ]
    show("requests of a round against the later ones, median over receipts",
         ("rung", "receipts", "first, % longer", "second", "third"), rows)  # fmt: skip
    return [
        figure(f"second request of a round, {name}", places[1], "% longer")
        for name, places in columns.items()
    ]


def find_half_width(measurement: Measurement) -> float:
    """In percent of the latency."""
    low, high = measurement.interval_ns or (0.0, 0.0)
    return 50 * (high - low) / measurement.latency_ns


def show_quiet(receipts: Sequence[Receipt]) -> list[Figure]:
    """A row a receipt; and the half-widths of both ways to count."""
    tops = [receipt.rungs[0] for receipt in receipts]
    pairs = [(replace(top, counted="all"), replace(top, counted="quiet")) for top in tops]
    rows = []
    for every, quiet in pairs:
        cell, hz = every.cell, quiet.core_hz
        counted = (
            text for one in (every, quiet)
            for text in (f"{one.latency_ns / 1e3:.0f}", f"{find_half_width(one):.1f}")
        )  # fmt: skip
        clock = ("-", "-")
        if hz is not None:
            clock = (f"{hz / 1e9:.2f}", f"{hz * quiet.latency_ns / 1e15:.1f}")
        rows.append((f"{cell.model}, {cell.dtype}, batch {cell.batch}", str(len(every.values_ns)),
                     str(len(quiet.values_ns)), *counted, *clock))  # fmt: skip
    columns = ("receipt", "rounds", "count", "all, us", "all, +-%", "that count, us", "+-%",
               "host core, GHz", "million cycles")  # fmt: skip
    show("Python eager, counted both ways", columns, rows)
    return [
        figure(
            f"half-width of eager, {name}",
            (find_half_width(pair[place]) for pair in pairs),
            "% of the latency",
        )
        for place, name in enumerate(("all rounds", "rounds that count"))
    ]


def main() -> None:
    """Print the table; save the record of what has figures."""
    parser = make_parser(__doc__)
    parser.add_argument("what", choices=("spread", "settling", "quiet"))
    parser.add_argument("--records", default="gpu_receipts_records", help="a file of results/")
    parser.add_argument("--begun", default="", help="only receipts of this time: 2026-11-22T11")
    options = parser.parse_args()
    receipts = [
        receipt
        for receipt in read_receipts(options.records)
        if receipt.rungs[0].conditions[0].utc.startswith(options.begun)
    ]
    if not receipts:
        sys.exit(f"on_record: no receipt began at {options.begun!r}: give --begun another date")
    if options.what == "spread":
        show_spread(receipts)
        return
    figures = (show_settling if options.what == "settling" else show_quiet)(receipts)
    environment = receipts[0].rungs[0].environment.to_dict()
    finish(__file__, options, figures, raw={"what": options.what}, environment=environment)


if __name__ == "__main__":
    main()
