"""The receipt of a workload: where the microseconds of its mean go, and a receipt of each part.

Parts are receipts of the same rounds. As in a receipt, what follows from them is computed each time
it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Self

from ftax.errors import InvalidArgumentError
from ftax.ladders.advice import recommend_mean
from ftax.ladders.findings import Laddered
from ftax.ladders.ladder import Ladder
from ftax.ladders.lines import check_stored_lines
from ftax.ladders.means import MeanEvidence, MeanRow
from ftax.ladders.receipt import Receipt
from ftax.records.record import Name, Record, Rule
from ftax.records.result import Result
from ftax.steps.mix import compute_shares, tell_apart
from ftax.timing.mean import Mean, weigh
from ftax.timing.measurement import Measurement
from ftax.timing.trust import NOT_RESOLVED
from ftax.timing.units import format_measured

Weight = Annotated[float, Rule("a number above 0", lambda value: value > 0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class MixReceipt(Laddered, Result):
    """Several steps, measured in the same rounds, and the mean of them.

    Attributes:
        name: of the workload.
        weights: how often each part comes, in whatever unit; `shares` sum to 1.
        parts: a receipt each, of one ladder and one device.
    """

    kind: ClassVar[str] = "mix"

    name: Name
    weights: tuple[Weight, ...]
    parts: tuple[Receipt, ...]

    def check(self) -> None:
        """Raise InvalidArgumentError unless the parts fit the weights and each other."""
        if not self.parts or len(self.parts) != len(self.weights):
            raise InvalidArgumentError(
                f"a mix has {len(self.parts)} parts and {len(self.weights)} weights; it needs as "
                "many of each, and at least one"
            )
        for what, found in (
            ("ladders", {part.ladder_name for part in self.parts}),
            ("devices", {part.rungs[0].cell.device for part in self.parts}),
        ):
            if len(found) > 1:
                raise InvalidArgumentError(
                    f"the parts of a mix have the {what} {', '.join(sorted(found))}; they need one"
                )
        _ = self.rungs  # which are of the same rounds, or no mean

    @property
    def shares(self) -> tuple[float, ...]:
        """The weights, which sum to 1."""
        return compute_shares(self.weights)

    @property
    def names(self) -> tuple[str, ...]:
        """What each part is called beside the others."""
        cells = [part.rungs[0].cell for part in self.parts]
        return tell_apart([(cell.model, cell.sequence, cell.batch, cell.units) for cell in cells])

    @property
    def ladder(self) -> Ladder:
        """Whose rungs all parts have."""
        return self.parts[0].ladder

    @property
    def rungs(self) -> tuple[Mean, ...]:
        """Means of the rungs that all parts have."""
        return self._take_means([part.rungs for part in self.parts])

    @property
    def others(self) -> tuple[Mean, ...]:
        """Means of the alternatives that all parts have."""
        return self._take_means([part.others for part in self.parts])

    @property
    def evidence(self) -> tuple[MeanEvidence, ...]:
        """On a GPU, of each rung and alternative that was looked at in all parts."""
        found = [{item.place: item for item in part.evidence} for part in self.parts]
        return tuple(
            MeanEvidence(mean=mean, parts=tuple(items[mean.place] for items in found))
            for mean in (*self.rungs, *self.others)
            if all(mean.place in items for items in found)
        )

    @property
    def units(self) -> float:
        """Tokens, samples or the like that one run makes, in the mean."""
        return weigh(self.shares, [part.rungs[0].cell.units for part in self.parts])

    @property
    def runtimes(self) -> tuple[MeanRow, ...]:
        """Rungs and alternatives that all parts have, fastest first."""
        top, *below = (*self.rungs, *self.others)
        found = [{row.measurement.place: row for row in part.runtimes} for part in self.parts]
        stand_ins, rungs = self.ladder.stand_ins, self.ladder.places
        rows = [
            MeanRow.of(
                top,
                mean,
                [rows[mean.place] for rows in found],
                is_able=mean.place in stand_ins or mean.place not in rungs,
            )
            for mean in (top, *below)
        ]
        return tuple(sorted(rows, key=lambda row: row.latency_ns))

    @property
    def label(self) -> str:
        """What the user calls it: "before"."""
        return self.parts[0].label

    def with_label(self, label: str) -> Self:
        """The same, all measurements under another label."""
        return replace(self, parts=tuple(part.with_label(label) for part in self.parts))

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended its rounds, or what was looked at afterwards."""
        return any(part.interrupted for part in self.parts)

    @property
    def recommendation(self) -> str:
        """What the numbers of the mean advise, in sentences."""
        return recommend_mean(self, self.runtimes)

    def describe(self) -> str:
        """The mean, the share of each of its lines, and the parts, in a line."""
        top = self.rungs[0]
        name = f"{self.label}: " if self.label else ""
        lines = ", ".join(
            f"{line.name} {NOT_RESOLVED if line.doubt else f'{line.share_ratio:.0%}'}"
            for line in self.lines
        )
        parts = ", ".join(
            f"{share:.0%} {name}" for share, name in zip(self.shares, self.names, strict=True)
        )
        return f"{name}{self.name}: {format_measured(top)}, of which {lines}; {parts}"

    def collect_warnings(self) -> list[str]:
        """Warnings of all parts once, and those of some with the names of their parts."""
        found = [part.collect_warnings() for part in self.parts]
        shared = [text for text in found[0] if all(text in texts for texts in found)]
        of_one = [
            f"{name}: {text}"
            for name, texts in zip(self.names, found, strict=True)
            for text in texts
            if text not in shared
        ]
        return [*shared, *self._list_missing(), *of_one]

    def to_dict(self) -> dict[str, object]:
        """Plain dicts, lists and scalars; the lines of the mean are stored for other readers."""
        return {**Record.to_dict(self), "lines": [line.to_dict() for line in self.lines]}

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> Self:
        """Build the record that `to_dict` described.

        Raises:
            ResultsError: a field is missing, unknown or refused, or the stored lines are not those
                of the samples.
        """
        fields = dict(data)
        stored = fields.pop("lines", None)
        found = super(MixReceipt, cls).from_dict(fields)
        check_stored_lines(stored, found.lines)
        return found

    def _take_means(self, parts: list[tuple[Measurement, ...]]) -> tuple[Mean, ...]:
        """Of the places that all have, in the order of the first part."""
        found = [{item.place: item for item in items} for items in parts]
        return tuple(
            Mean(parts=tuple(items[place] for items in found), shares=self.shares, names=self.names)
            for place in found[0]
            if all(place in items for items in found)
        )

    def _list_missing(self) -> Iterator[str]:
        """Rungs that are no part of the mean, for lack of them in some part."""
        found = {
            name: [rung.place for rung in part.rungs]
            for name, part in zip(self.names, self.parts, strict=True)
        }
        for place in dict.fromkeys(place for places in found.values() for place in places):
            lacking = [name for name, places in found.items() if place not in places]
            if lacking:
                yield f"{place} is no rung of the mean, since {', '.join(lacking)} has none"
