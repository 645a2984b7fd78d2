"""What a measurement of any kind gives the user: a record that saves itself, and shows itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Self

from ftax.records.kinds import KINDS, find
from ftax.records.record import Record, inherit_repr
from ftax.records.store import append_record, read_records


class Shown:
    """Prints itself as its kind is drawn: `print(x)`, ``rich.print(x)`` with colours, and the same
    tables in a notebook. A prompt echoes one line of it, however many samples it holds."""

    __slots__ = ()
    kind: ClassVar[str]

    def __init_subclass__(cls) -> None:
        inherit_repr(cls)

    def describe(self) -> str:
        """What it says, in a sentence."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.describe()}>"

    def draw(self, **told: Any) -> Any:
        """What is printed of it, an `ftax.reports.table.Printout`; ``told`` is for its drawing."""
        return find(KINDS[self.kind].drawing)(self, **told)

    @property
    def details(self) -> Any:
        """All that can be printed of it: ``print(receipt.details)``. More than `draw` gives where
        that is the first screen."""
        kind = KINDS[self.kind]
        return find(kind.details or kind.drawing)(self)

    def __rich__(self) -> Any:
        return self.draw()

    def _repr_html_(self) -> str:
        return str(self.draw()._repr_html_())

    def to_dataframe(self) -> Any:
        """Its numbers as a pandas.DataFrame: times in ns, intervals in columns of their own, the
        columns that --csv has (docs/results.md).

        Raises:
            UnavailableError: pandas is not installed.
        """
        return self.draw().to_numbers().to_dataframe()

    def __str__(self) -> str:
        return str(find("ftax.reports.terminal:to_text")(self.draw()))


class Stored(Record):
    """A record that a results file can hold on a line of its own."""

    __slots__ = ()
    kind: ClassVar[str]

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


class Result(Shown, Stored):
    """A record that shows itself too."""

    __slots__ = ()
