"""All of the errors that a result keeps, of which its tables have one line each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ftax.ladders.receipt import Receipt, Unavailable
from ftax.timing.measurement import Measurement


def list_errors(result: object) -> Iterator[tuple[str, str]]:
    """What failed, and the whole text of it."""
    if isinstance(result, Receipt):
        for item in result.unavailable:
            if item.error and not _says_no_more(item):
                yield str(item.place), item.error
        for measurement in (*result.rungs, *result.others):
            yield from list_errors(measurement)
    elif isinstance(result, Measurement):
        for name in ("outputs", "second_input"):
            check = result.checks.get(name)
            if isinstance(check, Mapping) and (error := check.get("error")):
                yield f"{result.place}, whose outputs were checked", str(error)


def _says_no_more(item: Unavailable) -> bool:
    """Whether this is a refusal of ftax, whose reason is all of it: its traceback is ftax's."""
    return item.error.count("Traceback") <= 1 and item.error.rstrip().endswith(item.reason)
