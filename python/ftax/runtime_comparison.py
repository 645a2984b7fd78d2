"""`ftax.compare_runtimes`: a receipt seen as a table of runtimes and a recommendation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ftax.receipt import Receipt, Unavailable
from ftax.runtime_table import RuntimeRow

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeComparison:
    """Every way to run one model that was measured; all numbers come from ``receipt``."""

    receipt: Receipt

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

    def to_dict(self) -> dict[str, object]:
        """Rows, reasons and recommendation as plain dicts, lists and scalars."""
        return {
            "rows": [row.to_dict() for row in self.rows],
            "unavailable": [item.to_dict() for item in self.unavailable],
            "recommendation": self.recommendation,
        }

    def save(self, path: str | Path) -> None:
        """Append the receipt, with its raw samples, to the results file ``path``."""
        self.receipt.save(path)

    def __rich__(self) -> RenderableType:
        from ftax.report.runtime_table import render_runtimes

        return render_runtimes(self.receipt)

    def __str__(self) -> str:
        from ftax.report.plain import to_text

        return to_text(self)
