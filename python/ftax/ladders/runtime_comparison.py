"""`ftax.compare_runtimes`: a receipt seen as a table of runtimes and a recommendation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Self

from ftax.ladders.receipt import Receipt, Unavailable
from ftax.ladders.rows import RuntimeRow
from ftax.records.result import Shown
from ftax.timing.units import format_measured


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeComparison(Shown):
    """Every way to run one model that was measured; all numbers come from ``receipt``."""

    kind: ClassVar[str] = "runtimes"

    receipt: Receipt

    def describe(self) -> str:
        """How many runtimes, and the fastest of them, in a line."""
        first = self.rows[0]
        latency = format_measured(first.measurement)
        return (
            f"{len(self.rows)} runtimes of {first.measurement.cell.model}, the fastest "
            f"{first.label}: {latency}"
        )

    def with_label(self, label: str) -> Self:
        """The same, its measurements under another label."""
        return replace(self, receipt=self.receipt.with_label(label))

    @property
    def rows(self) -> tuple[RuntimeRow, ...]:
        """Fastest first, the rungs of the ladder among them."""
        return self.receipt.runtimes

    @property
    def unavailable(self) -> tuple[Unavailable, ...]:
        """What could not be measured, and why."""
        return self.receipt.unavailable

    @property
    def recommendation(self) -> str:
        """What the numbers advise, in sentences."""
        return self.receipt.recommendation

    @property
    def adoption(self) -> str:
        """Code that puts the fastest in the model's place, see `Receipt`."""
        return self.receipt.adoption

    def to_dict(self) -> dict[str, object]:
        """Rows, reasons and recommendation as plain dicts, lists and scalars."""
        return {
            "rows": [row.to_dict() for row in self.rows],
            "unavailable": [item.to_dict() for item in self.unavailable],
            "recommendation": self.recommendation,
            "adoption": self.adoption,
        }

    def save(self, path: str | Path) -> None:
        """Append the receipt, with its raw samples, to the results file ``path``."""
        self.receipt.save(path)
