"""What a measurement of any kind gives the user: a record that saves and shows itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Self

from ftax.records.kinds import KINDS, find
from ftax.records.record import Record
from ftax.records.store import append_record, read_records


class Shown:
    """Prints itself as its kind is drawn: `print(x)`, and ``rich.print(x)`` with colours."""

    __slots__ = ()
    kind: ClassVar[str]

    def draw(self) -> Any:
        """What is printed of it, an `ftax.reports.table.Printout`."""
        return find(KINDS[self.kind].drawing)(self)

    def __rich__(self) -> Any:
        return self.draw()

    def __str__(self) -> str:
        text: str = find("ftax.reports.terminal:to_text")(self.draw())
        return text


class Result(Shown, Record):
    """A record that a results file can hold on a line of its own."""

    __slots__ = ()

    def save(self, path: str | Path) -> None:
        """Append it to the results file ``path``."""
        append_record(path, self)

    @classmethod
    def load(cls, path: str | Path) -> tuple[Self, ...]:
        """Those of its kind in a results file; records of other kinds are left.

        Raises:
            ResultsError: any line of the file cannot be read.
        """
        return tuple(record for record in read_records(path).records if isinstance(record, cls))
