"""All of the errors that a result keeps, of which its tables have one line each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ftax.ladders.receipt import Receipt
from ftax.timing.measurement import Measurement


def list_errors(result: object) -> Iterator[tuple[str, str]]:
    """What failed, and the whole text of it."""
    if isinstance(result, Receipt):
        for item in result.unavailable:
            if item.error:
                yield str(item.place), item.error
        for measurement in (*result.rungs, *result.others):
            yield from list_errors(measurement)
    elif isinstance(result, Measurement):
        for name in ("outputs", "second_input"):
            check = result.checks.get(name)
            if isinstance(check, Mapping) and (error := check.get("error")):
                yield f"{result.place}, whose outputs were checked", str(error)
