"""What it took to make a runtime ready, and what was found out on the way.

What code reads again is a field here, and all else is `details`, which no code may read. A results
file has both on one level (`Measurement.preparation`), under names that have not changed since the
first of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self


@dataclass(frozen=True, slots=True, kw_only=True)
class Launches:
    """What one request of a captured graph launches, one driver call each: how many, and how often
    each type of node and each attribute of a launch occurs."""

    count: int
    types: Mapping[str, int]
    attributes: Mapping[str, int]
    is_chain: bool
    lost_programmatic_edges: int

    def to_dict(self) -> dict[str, object]:
        """As it is stored."""
        return {
            "launches": self.count,
            "launch_types": dict(self.types),
            "launch_attributes": dict(self.attributes),
            "is_chain": self.is_chain,
            "lost_programmatic_edges": self.lost_programmatic_edges,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """How a runtime was made ready.

    Attributes:
        made_seconds: for making its artefact or variant, whenever that was; None: it has none.
        peak_host_bytes, peak_device_bytes: most memory meanwhile, beyond what was in use before;
            None where this machine does not tell.
        from_cache: whether making it was paid before.
        ready_seconds: for all that was done this time.
        baseline: the runtime that it is compared with; "" for the first rung.
        launches: of one request, where a graph tells them.
        details: JSON-able, for readers of the record.
    """

    made_seconds: float | None = None
    peak_host_bytes: int | None = None
    peak_device_bytes: int | None = None
    from_cache: bool = False
    ready_seconds: float | None = None
    baseline: str = ""
    launches: Launches | None = None
    details: Mapping[str, object] = field(default_factory=dict)

    @property
    def seconds(self) -> float | None:
        """For making it once and loading it now; None where neither was timed."""
        if self.ready_seconds is None:
            return self.made_seconds
        made_s = self.made_seconds or 0.0
        return max(self.ready_seconds + (made_s if self.from_cache else 0.0), made_s)

    def also(self, **details: object) -> Self:
        """With more details."""
        return replace(self, details={**self.details, **details})

    def costing(self, other: Self) -> Self:
        """With what making the other one cost."""
        return replace(
            self,
            made_seconds=other.made_seconds,
            peak_host_bytes=other.peak_host_bytes,
            peak_device_bytes=other.peak_device_bytes,
            from_cache=other.from_cache,
        )

    def to_dict(self) -> dict[str, object]:
        """As `Measurement.preparation` has it."""
        stored: dict[str, object] = dict(self.details)
        if self.made_seconds is not None:
            stored |= {
                "seconds": self.made_seconds,
                "peak_host_bytes": self.peak_host_bytes,
                "peak_device_bytes": self.peak_device_bytes,
                "from_cache": self.from_cache,
            }
        if self.ready_seconds is not None:
            stored["ready_seconds"] = self.ready_seconds
        if self.baseline:
            stored["baseline"] = self.baseline
        return stored | (self.launches.to_dict() if self.launches else {})

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Self:
        """What `to_dict` stored, or an artefact's facts; launches stay among the details."""
        details = dict(stored)

        def take(name: str, *kinds: type) -> Any:
            value = details.pop(name, None)
            return value if type(value) in kinds else None  # a file may hold anything

        return cls(
            made_seconds=take("seconds", float, int),
            peak_host_bytes=take("peak_host_bytes", int),
            peak_device_bytes=take("peak_device_bytes", int),
            from_cache=take("from_cache", bool) is True,
            ready_seconds=take("ready_seconds", float, int),
            baseline=take("baseline", str) or "",
            details=details,
        )
