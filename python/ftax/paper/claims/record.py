"""Claims as they are read, and what is said of them: verdicts, which results files can hold.

The surprising choice: a verdict keeps its numbers as text of JSON would, name by name, beside those
of the paper, so that a page about it needs neither the results nor the formulas.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, get_args

from ftax.errors import InvalidArgumentError
from ftax.paper.reference import read_data
from ftax.records.fields import Rule
from ftax.records.record import Count, Name, Record
from ftax.records.result import Stored

PaperVerdict = Literal["holds", "partly", "does not hold", "no data"]
Outcome = Literal["holds", "changed", "does not hold", "not resolved", "cannot be tested here"]
TestOutcome = Literal["holds", "another size", "does not hold", "not resolved", "not tested"]
Share = Annotated[float, Rule("a share from 0 to 1", lambda value: 0 <= value <= 1)]

OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimTest:
    """A condition on a claim's names, and whether the paper's data meet it."""

    expression: str
    about: str
    holds: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A statement of the paper (or a check of its numbers), as formulas over its measurements.

    Attributes:
        text: the statement in words.
        kind: "flat", "knee", "ordering", "overhead-share" or "speedup".
        origin: "paper", or "consistency-check" for what the paper does not say itself.
        operands: name -> selector of one row, or of one for each value of a list in it.
        compute: name -> formula; ``computed`` has their values from the paper's data.
        verdict: of ``tests`` on the paper's data.
    """

    id: str
    section: str
    text: str
    kind: str
    origin: str
    expected: str
    operands: Mapping[str, Mapping[str, Any]]
    compute: Mapping[str, str]
    computed: Mapping[str, Any]
    tests: tuple[ClaimTest, ...]
    verdict: PaperVerdict


@functools.cache
def list_claims() -> tuple[Claim, ...]:
    """All claims, in the order of the file."""
    return tuple(_make_claim(item) for item in json.loads(read_data("claims.json")))


def find_claim(name: str) -> Claim:
    """The claim with this id. Raises InvalidArgumentError if there is none."""
    for claim in list_claims():
        if claim.id == name:
            return claim
    raise InvalidArgumentError(
        f"there is no claim {name!r}; there are {', '.join(claim.id for claim in list_claims())}"
    )


# Fields that the file calls so too.
_SAME = ("id", "section", "kind", "origin", "expected", "operands", "compute", "computed")


def _make_claim(item: Mapping[str, Any]) -> Claim:
    stored: dict[Any, PaperVerdict] = {True: "holds", "partly": "partly", False: "does not hold"}
    verdict = stored[item["reproduced_from_papers_own_data"]]
    return Claim(
        **{name: item[name] for name in _SAME},
        text=item["claim"],
        tests=tuple(
            ClaimTest(expression=test["expr"], about=test["about"], holds=test["holds"])
            for test in item["tests"]
        ),
        verdict=verdict if item["data_available"] else "no data",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimValue(Record):
    """A number that a claim computes, or a list of them.

    Attributes:
        paper: from the paper's data; empty where it has none.
        today: from the results; empty with the reason in ``why``.
        low, high: ends of the 95 % interval of each; empty without rounds to resample.
    """

    name: Name
    formula: str
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
        paper: whether the paper's data meet it; None where they cannot say.
        relation: what is left of the condition without its size, "" if nothing is.
        left: what that says.
        share: of the resamples, those in which it holds; None without any.
        why: what was missing.
    """

    __test__ = False  # to pytest its name looks like a class of tests

    expression: Name
    about: str
    paper: bool | None
    today: TestOutcome
    relation: str = ""
    left: str = ""
    share: Share | None = None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict(Stored):
    """What a claim of the paper is worth on today's results.

    Attributes:
        paper: of the paper's own data.
        machine: whose results these are; empty if none were looked at.
        sentence: what it comes to, true by itself.
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
