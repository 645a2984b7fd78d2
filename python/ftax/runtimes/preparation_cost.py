"""What it cost to make a runtime ready, read from the facts that preparing it left behind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparationCost:
    """What it cost to make a runtime ready: making its artefact once, and loading it now.

    ``seconds`` has both, also where the artefact came from the cache: then making it was paid
    before. Bytes are peaks while it was made; None where this machine does not tell.
    """

    seconds: float
    peak_host_bytes: int | None
    peak_device_bytes: int | None
    from_cache: bool

    @classmethod
    def of(cls, facts: Mapping[str, object]) -> PreparationCost | None:
        """Read from the facts that `RuntimeSpec.prepare` leaves; None if there are none."""
        ready_s, made_s = (read_number(facts, name) for name in ("ready_seconds", "seconds"))
        if ready_s is None and made_s is None:
            return None
        from_cache = facts.get("from_cache") is True
        total_s = (ready_s or 0.0) + (made_s or 0.0 if from_cache else 0.0)
        host, device = (read_number(facts, f"peak_{name}_bytes") for name in ("host", "device"))
        return cls(
            seconds=max(total_s, made_s or 0.0),
            peak_host_bytes=None if host is None else int(host),
            peak_device_bytes=None if device is None else int(device),
            from_cache=from_cache,
        )


def read_number(facts: Mapping[str, object], name: str) -> float | None:
    """The number of that name; None if there is none."""
    value = facts.get(name)
    return float(value) if isinstance(value, (int, float)) and type(value) is not bool else None
