"""Verdicts on claims, which results files hold, each with its numbers beside the paper's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, get_args

from ftax.errors import InvalidArgumentError
from ftax.records.fields import Rule
from ftax.records.record import Count, Name, Record
from ftax.records.result import Stored

PaperVerdict = Literal["holds", "partly", "does not hold", "no data"]
Outcome = Literal["holds", "changed", "does not hold", "not resolved", "cannot be tested here"]
TestOutcome = Literal["holds", "another size", "does not hold", "not resolved", "not tested"]
Share = Annotated[float, Rule("a share from 0 to 1", lambda value: 0 <= value <= 1)]

OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimValue(Record):
    """A number that a claim computes, or a list of them.

    Attributes:
        paper: from the paper's data; empty where it has none.
        today: from the results; empty with the reason in ``why``.
        low, high: ends of the 95 % interval of each; empty without rounds to resample.
    """

    name: Name
    paper: tuple[float, ...] = ()
    today: tuple[float, ...] = ()
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    why: str = ""

    def check(self) -> None:
        """Raise InvalidArgumentError unless intervals belong to values, and gaps have reasons."""
        ends = {len(self.low), len(self.high)}
        if ends != {len(self.today)} and ends != {0}:
            raise InvalidArgumentError(
                f"value {self.name!r} has {len(self.today)} numbers and {sorted(ends)} ends of "
                "intervals; give one of each for a number, or none"
            )
        if bool(self.today) == bool(self.why):
            raise InvalidArgumentError(
                f"value {self.name!r} has the numbers {self.today} and the reason {self.why!r}; "
                "give either"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class TestVerdict(Record):
    """One condition of a claim, today.

    Attributes:
        about: what it says.
        paper: whether the paper's data meet it, on all of its GPUs; None where they cannot say.
        left: what is left of the condition without its size, "" if nothing is.
        share: of the resamples, those in which it holds; None without any.
        why: what was missing.
    """

    __test__ = False  # to pytest its name looks like a class of tests

    about: Name
    paper: bool | None
    today: TestOutcome
    left: str = ""
    share: Share | None = None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict(Stored):
    """What a claim of the paper is worth on today's results.

    Attributes:
        paper: of the paper's own data.
        machine: whose results these are; empty if none were looked at.
        sentence: the verdict in words.
        reason: why it cannot be tested, what is missing, or what it could not be told from.
        shares: of the resamples, by outcome; empty without any.
        notes: what a reader should know before quoting it.
    """

    kind: ClassVar[str] = "claim-verdict"

    id: Name
    section: str
    claim: Name
    claim_kind: str
    origin: str
    expected: str
    paper: PaperVerdict
    today: Outcome
    machine: str = ""
    sentence: str = ""
    reason: str = ""
    tests: tuple[TestVerdict, ...] = ()
    values: tuple[ClaimValue, ...] = ()
    shares: Mapping[str, Share]
    resamples: Count = 0
    notes: tuple[str, ...] = ()

    def check(self) -> None:
        """Raise InvalidArgumentError for what is neither tested nor has a reason."""
        if self.today in ("not resolved", "cannot be tested here") and not self.reason:
            raise InvalidArgumentError(f"the verdict of {self.id} is {self.today!r}; give a reason")

    @property
    def tested(self) -> int:
        """How many of the conditions could be tested."""
        return sum(test.today != "not tested" for test in self.tests)
