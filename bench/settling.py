"""How long a runner needs, after another has run, until its requests take as long as later ones.

Of receipts that are on record: the first, second and third sample of a round over the later ones,
for each rung. The surprising choice: nothing is measured. A record holds the samples that no
statistic counts, so what dropping them is for can be looked up, on any machine.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from ftax import Receipt
from ftax.timing.measurement import Measurement
from record import RESULTS, Figure, finish, make_parser, show

_PLACES = 3  # of a round, compared with all that follow
_HOSTS = {"python": "Python", "cpp": "C++"}

Excesses = dict[tuple[str, str], list[list[float]]]


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


def collect(receipts: Sequence[Receipt]) -> Excesses:
    """By runtime and host, of each receipt."""
    found: Excesses = {}
    for receipt in receipts:
        for rung in receipt.rungs:
            excess = compare_places(rung)
            if excess is not None:
                found.setdefault((rung.cell.runtime, rung.cell.host), []).append(excess)
    return found


def main() -> None:
    """Print the table, save the record."""
    parser = make_parser(__doc__)
    parser.add_argument("--records", type=Path, default=RESULTS / "gpu_receipts_records.jsonl")
    options = parser.parse_args()
    receipts = list(Receipt.load(options.records))
    found = collect(receipts)
    if not found:
        sys.exit(f"settling: no receipt of {options.records.name} has rounds of four samples")
    rows, figures = [], []
    for (runtime, host), excesses in found.items():
        by_place = list(zip(*excesses, strict=True))
        name = f"{runtime}, {_HOSTS[host]}"
        middle = (f"{statistics.median(values):+.1f}" for values in by_place)
        rows.append((name, str(len(excesses)), *middle))
        figures.append(
            Figure(name=f"second request of a round, {name}", values=by_place[1], unit="% longer")
        )
    columns = ("rung", "receipts", "first, % longer", "second", "third")
    show("requests of a round against the later ones, median over receipts", columns, rows)
    environment = receipts[0].rungs[0].environment.to_dict()
    finish(__file__, options, figures, raw={"rows": rows}, environment=environment)


if __name__ == "__main__":
    main()
